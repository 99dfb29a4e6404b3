from __future__ import annotations

import ast
import gc
import pathlib
import pickle
import subprocess
import sys
import weakref

import pytest
import tritonclient.grpc as triton
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor

from trtnode import protos
from trtnode.protos import generate

FOLDER = pathlib.Path(protos.__file__).parent
SERVICE = protos.DESCRIPTOR.services_by_name["GRPCInferenceService"]
MESSAGES = sorted(protos.DESCRIPTOR.message_types_by_name)


def fields(descriptor: Descriptor) -> set[tuple[object, ...]]:
    return {
        (descriptor.full_name, field.number, field.name, field.type, field.is_repeated) for field in descriptor.fields
    }.union(*[fields(nested) for nested in descriptor.nested_types])


def stub_fields(text: str) -> dict[str, set[str]]:
    """Names of all annotated attributes by qualified class name."""
    found: dict[str, set[str]] = {}

    def visit(node: ast.Module | ast.ClassDef, prefix: str) -> None:
        for child in node.body:
            if isinstance(child, ast.ClassDef):
                found[f"{prefix}{child.name}"] = {
                    item.target.id
                    for item in child.body
                    if isinstance(item, ast.AnnAssign) and not item.target.id.endswith("_FIELD_NUMBER")
                }
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(text), "")
    return found


def test_generated_module_is_up_to_date_with_the_proto() -> None:
    texts = generate.generate(generate.SOURCE)

    assert (FOLDER / "inference_pb2.py").read_text() == texts[FOLDER / "inference_pb2.py"]


def test_generated_stub_names_the_fields_of_the_proto() -> None:
    texts = generate.generate(generate.SOURCE)

    assert stub_fields((FOLDER / "inference_pb2.pyi").read_text()) == stub_fields(texts[FOLDER / "inference_pb2.pyi"])


@pytest.mark.parametrize("name", MESSAGES)
def test_field_numbers_and_types_are_those_of_tritonclient(name: str) -> None:
    home = triton.service_pb2 if hasattr(triton.service_pb2, name) else triton.model_config_pb2

    # Triton adds fields; we have those that we read or set.
    assert fields(getattr(protos, name).DESCRIPTOR) <= fields(getattr(home, name).DESCRIPTOR)


def test_the_numbers_of_data_types_are_those_of_tritonclient() -> None:
    ours = protos.DESCRIPTOR.enum_types_by_name["DataType"].values_by_name

    assert {name: value.number for name, value in ours.items()} == dict(triton.model_config_pb2.DataType.items())


def test_every_message_is_exported() -> None:
    assert set(protos.__all__) == {"DESCRIPTOR", *MESSAGES}


def test_messages_stay_out_of_the_default_pool() -> None:
    ours = protos.ModelInferRequest.DESCRIPTOR

    assert descriptor_pool.Default().FindMessageTypeByName("inference.ModelInferRequest") is not ours


@pytest.mark.parametrize(
    "order",
    [
        pytest.param("from trtnode import protos; import tritonclient.grpc", id="ours-first"),
        pytest.param("import tritonclient.grpc; from trtnode import protos", id="tritonclient-first"),
    ],
)
def test_tritonclient_imports_in_the_same_process(order: str) -> None:
    code = f"{order}; assert protos.ModelInferRequest(id='7').SerializeToString()"

    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_survive_a_trip_to_another_process(name: str) -> None:
    message = getattr(protos, name)()

    assert pickle.loads(pickle.dumps(message)) == message


def test_service_has_every_method_of_the_protocol() -> None:
    assert SERVICE.full_name == "inference.GRPCInferenceService"
    theirs = triton.service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    assert set(theirs) == set(SERVICE.methods_by_name)


@pytest.mark.parametrize("name", sorted(SERVICE.methods_by_name))
def test_methods_take_and_give_what_those_of_tritonclient_do(name: str) -> None:
    method = SERVICE.methods_by_name[name]
    theirs = triton.service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name[name]

    assert method.input_type.full_name == theirs.input_type.full_name
    assert method.output_type.full_name == theirs.output_type.full_name
    assert (method.client_streaming, method.server_streaming) == (theirs.client_streaming, theirs.server_streaming)


def test_classes_of_nested_messages_outlive_their_messages() -> None:
    request = protos.ModelInferRequest()
    tensor = request.inputs.add()
    tensor.parameters["binary_data"].bool_param = True
    kinds = [weakref.ref(type(one)) for one in (tensor, tensor.contents, request.outputs.add())]

    del request, tensor
    gc.collect()

    assert all(kind() is not None for kind in kinds)
