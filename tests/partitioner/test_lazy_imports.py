"""Modules that take long to import are imported where somebody needs them."""

from __future__ import annotations

import subprocess
import sys


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_server_starts_without_sympy() -> None:
    imported = printed("import sys, serving.process.signals, serving.workers.worker; print(*sys.modules)").split()

    assert "onnx_ir" in imported
    assert "sympy.core" not in imported


def test_a_server_starts_without_what_few_of_them_need() -> None:
    imported = printed("import sys, serving.process.signals, serving.grpc.server; print(*sys.modules)").split()

    unneeded = {
        *{"PIL", "cryptography", "google.protobuf.text_format", "httpx", "jinja2", "onnx.reference", "openvino"},
        *{"google.protobuf.internal.python_message", "onnx_ir.passes", "onnx_ir.schemas", "packaging.version"},
        *{"asyncio", "grpc.aio", "grpc_reflection.v1alpha", "prometheus_client", "starlette", "uvicorn", "yaml"},
        *{"engines.compile.compiler", "engines.cuda.programs", "engines.inputs.source", "engines.tuning.timing"},
        *{"partitioner.cut.report", "partitioner.passes.clean_up", "serving.rest.app"},
    }
    assert unneeded.isdisjoint(imported)


def test_a_configuration_is_read_without_the_libraries_that_run_models() -> None:
    imported = printed("import sys, serving.config.command_line; print(*sys.modules)").split()

    assert {"grpc", "numpy", "onnx", "onnxruntime", "openvino"}.isdisjoint(imported)


def test_a_function_is_imported_when_it_is_called_first() -> None:
    code = """
import sys
from partitioner.lazy_names import on_first_call
mean = on_first_call("statistics:mean")
print("statistics" in sys.modules, mean([1, 3]), "statistics" in sys.modules)
"""

    assert printed(code) == "False 2 True"


def test_symbolic_dimensions_can_be_computed_with() -> None:
    code = """
import engines.build.subprocess_worker, onnx_ir, sys
print("sympy.core" in sys.modules, onnx_ir.SymbolicDim("N") + 1, hasattr(sys.modules["sympy"], "no_such_name"))
"""

    assert printed(code) == "False N + 1 False"


def test_the_text_forms_of_protobuf_are_imported_when_somebody_reads_or_writes_them() -> None:
    code = """
import sys, partitioner, onnx
late = {"google.protobuf.json_format", "google.protobuf.text_format"}
print(late.isdisjoint(sys.modules))
model = onnx.ModelProto(ir_version=8)
print(model, end="")
for form in ("json", "textproto"):
    written = onnx.serialization.registry.get(form).serialize_proto(model)
    print(onnx.serialization.registry.get(form).deserialize_proto(written, onnx.ModelProto()).ir_version)
import google.protobuf.text_format
print(late <= set(sys.modules), google.protobuf.text_format.MessageToString(model), end="")
"""

    assert printed(code).splitlines() == ["True", "ir_version: 8", "8", "8", "True ir_version: 8"]


def test_calls_of_grpc_in_an_event_loop_are_imported_with_the_loop_when_somebody_makes_one() -> None:
    code = """
import sys, partitioner, grpc
print({"asyncio", "grpc.aio"}.isdisjoint(sys.modules))
async def call():
    async with grpc.aio.insecure_channel("unix:/nobody/here") as channel:
        await channel.unary_unary("/service/method")(b"")
import asyncio
try:
    asyncio.run(call())
except grpc.aio.AioRpcError as error:
    print(error.code().name)
"""

    assert printed(code).splitlines() == ["True", "UNAVAILABLE"]


def test_openvino_s_operators_and_converter_are_imported_when_somebody_makes_a_model_with_them() -> None:
    code = """
import engines.openvino.library, sys
import openvino
late = {"openvino.opset1", "openvino.opset13", "openvino.tools.ovc"}
print(late.isdisjoint(sys.modules), openvino.opset13.relu.__name__, "openvino.tools.ovc" in sys.modules)
from openvino import opset8
try:
    openvino.convert_model("none.onnx")
except Exception as error:
    print(opset8.relu.__name__, type(error).__module__)
"""

    assert printed(code).splitlines() == ["True relu False", "relu openvino.tools.ovc.error"]


def test_parts_of_libraries_that_a_server_leaves_out_are_imported_when_somebody_names_them() -> None:
    code = """
import engines.openvino.library, sys
import onnx_ir, openvino
late = {"onnx_ir.passes", "onnx_ir.schemas", "onnx_ir._safetensors", "openvino.properties"}
print(late.isdisjoint(sys.modules), onnx_ir.passes.PassResult.__name__, onnx_ir.schemas.OpSignature.__name__)
import openvino.properties.hint
from onnx_ir.passes import common
print(openvino.properties.hint.num_requests(2)[0], common.TopologicalSortPass.__name__)
"""

    assert printed(code).splitlines() == [
        "True PassResult OpSignature",
        "PERFORMANCE_HINT_NUM_REQUESTS TopologicalSortPass",
    ]


def test_keys_of_caches_need_no_engine_library() -> None:
    code = """
import sys
from engines.backends.build_environment import measuring_environment
from engines.backends.registry import get_backend
from engines.onnxruntime.limits import native_version
measuring_environment(get_backend("openvino"), native_version())
print("openvino" in sys.modules, "onnxruntime" in sys.modules)
"""

    assert printed(code) == "False False"
