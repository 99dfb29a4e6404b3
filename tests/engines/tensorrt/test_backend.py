"""TensorRT where it is not installed: models are explained by the table, and nothing pretends to build."""

from __future__ import annotations

import json
import pathlib

import pytest

from trtnode.engines.backends.registry import get_backend, resolve_engine
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.cuda import devices
from trtnode.engines.errors import BackendMissingError
from trtnode.engines.tensorrt.backend import TensorRtBackend
from trtnode.engines.tensorrt.library import TENSORRT
from trtnode.serving.cli.program import main
from workshop import Workshop

pytestmark = pytest.mark.skipif(TENSORRT.find().module is not None, reason="TensorRT is installed")

MENDING = "TensorRT is not installed here. Install it on a machine with an NVIDIA GPU: pip install 'trtnode[tensorrt]'."


def test_explain_labels_by_the_table_and_says_so(digits: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(digits), "--engine", "tensorrt", "--no-cache", "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["labelled_by"] == f"the table; {MENDING}"
    assert (report["engine"], report["engine_nodes"], len(report["segments"])) == ("tensorrt", 10, 1)


def test_explain_tells_people_too(digits: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(digits), "--engine", "tensorrt", "--no-cache"])

    assert "Labelled by the table; TensorRT is not" in capsys.readouterr().out


def test_labels_that_the_library_confirmed_need_no_such_word(digits: pathlib.Path) -> None:
    _, report = partition_model(digits, CompileOptions(engine="openvino"))

    assert "labelled_by" not in report.as_json()


def test_compile_ends_with_one_sentence_and_exit_code_1(
    digits: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "compiled.onnx"

    code = main(["compile", str(digits), "-o", str(output), "--engine", "tensorrt", "--no-cache"])

    assert (code, capsys.readouterr().err) == (1, f"trtnode: {MENDING}\n")
    assert not output.exists()


def test_native_nodes_have_reasons(workshop: Workshop) -> None:
    source = workshop.write(
        "g (float[4,4] x, double[4] d) => (float y, double[4] e, int64[2,N] z)"
        " { a = Relu(x) y = Det(a) e = Exp(d) z = NonZero(x) }"
    )

    _, report = partition_model(source, CompileOptions(engine="tensorrt"))

    assert {node.op_type: node.code for node in report.native} == {
        "Det": "UNSUPPORTED_OP",
        "Exp": "UNSUPPORTED_DTYPE",
        "NonZero": "DATA_DEPENDENT",
    }


def test_the_user_can_allow_what_is_slow_or_loses_digits(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    source = workshop.write("g (double[4] d, float[4] x) => (double[4] e, int64[1,N] z) { e = Exp(d) z = NonZero(x) }")
    allowing = ["--allow", "narrow-double", "--allow", "data-dependent"]

    main(["explain", str(source), "--engine", "tensorrt", "--no-cache", "--json", *allowing])

    assert json.loads(capsys.readouterr().out)["native"] == []


def test_an_allowance_that_does_not_exist_is_a_usage_error(
    digits: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(digits), "--allow", "everything"]) == 2
    assert "data-dependent" in capsys.readouterr().err


def test_operators_that_onnx_defines_as_functions_are_expanded_where_that_joins_segments(workshop: Workshop) -> None:
    source = workshop.write(
        "g (float[2,3] x) => (float[2,3] y)"
        " { a = Relu(x) b, m = LayerNormalization<axis = 1>(a, s) c = Mul(b, m) y = Tanh(c) }".replace(
            "(float[2,3] y)", "(float[2,3] y) <float[3] s = {1, 2, 3}>"
        )
    )

    partition, report = partition_model(source, CompileOptions(engine="tensorrt"))

    assert len(report.segments) == 1
    assert "LayerNormalization" not in {node.op_type for node in partition.graph.nodes}


def test_nothing_is_built_or_loaded(tmp_path: pathlib.Path, digits: pathlib.Path) -> None:
    backend = TensorRtBackend(TENSORRT)

    for call in (
        lambda: compile_model(digits, CompileOptions(engine="tensorrt")),
        lambda: backend.build(digits, CompileOptions().build),
        lambda: backend.load(b"", None),  # type: ignore[arg-type]
        lambda: backend.check_support(digits),
        backend.version,
        backend.device,
    ):
        with pytest.raises(BackendMissingError, match="TensorRT is not installed here"):
            call()


def test_auto_takes_tensorrt_only_where_nothing_of_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_engine("auto") == "openvino"

    monkeypatch.setattr(devices, "find_gpu", lambda: devices.Gpu(name="simulated", compute_capability="8.6"))
    monkeypatch.setattr(type(get_backend("tensorrt")), "unavailable_reason", lambda self: None)

    assert resolve_engine("auto") == "tensorrt"
