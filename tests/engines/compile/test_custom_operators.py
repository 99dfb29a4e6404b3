"""Models whose operators are in a library: refused without it, and compiled and run like others with it."""

from __future__ import annotations

import pathlib
import threading

import numpy as np
import onnxruntime
import pytest

import trtnode
from operator_libraries import DOMAIN, SCALE, broken_libraries, compile_library
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.errors import CustomOperatorsError, ModelLoadError
from trtnode.serving.cli.program import main
from workshop import Workshop

pytestmark = pytest.mark.slow

GRAPH = """g (float[N,4] x) => (float[A,B] y) {
    a = Exp(x) [scale] b = test.operators.Scale(a) c = Neg(b) d = Tanh(c) y = Relu(d)
}"""
X = np.linspace(-2, 1, 12, dtype=np.float32).reshape(3, 4)
REFUSAL = r"Scale\(-1\) is not a registered function/op. If a library has it, give that with --custom-op-library"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return compile_library(tmp_path_factory.mktemp("operators") / "scale.so", SCALE)


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(GRAPH, domains=DOMAIN)


def plainly(model: pathlib.Path, library: pathlib.Path, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    (y,) = onnxruntime.InferenceSession(model, options).run(None, {"x": x})
    return np.asarray(y)


def test_what_compile_refuses_explain_refuses(source: pathlib.Path) -> None:
    with pytest.raises(ModelLoadError, match=REFUSAL):
        compile_model(source, CompileOptions())
    with pytest.raises(ModelLoadError, match=REFUSAL):
        partition_model(source, CompileOptions())


def test_nodes_around_an_operator_of_a_library_are_in_engines(
    source: pathlib.Path, library: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    options, output = CompileOptions(custom_op_libraries=(library,)), tmp_path / "compiled.onnx"

    _, explained = partition_model(source, options)
    compiled = compile_model(source, options)
    compiled.save(output)
    executable = trtnode.load(output, custom_op_library=[library])

    assert [node.node for node in compiled.report.native] == ["scale"]
    assert [node.node for node in explained.native] == ["scale"]
    assert executable.facts.segments == 2
    np.testing.assert_allclose(executable.run({"x": X})["y"], plainly(source, library, X), rtol=1e-4)
    np.testing.assert_allclose(plainly(output, library, X), plainly(source, library, X), rtol=1e-4)


def test_native_answers_of_another_thread_have_the_operators(
    source: pathlib.Path, library: pathlib.Path, workshop: Workshop
) -> None:
    with custom_operators([library]):
        executable = open_model(workshop.compile_file(source))
    answers: list[np.ndarray] = []
    x = np.full((1, 4), np.nan, np.float32)

    asking = threading.Thread(target=lambda: answers.append(executable.run({"x": x})["y"]))
    asking.start()
    asking.join()

    np.testing.assert_array_equal(answers[0], plainly(source, library, x))


def test_a_compiled_file_names_no_library(source: pathlib.Path, library: pathlib.Path, tmp_path: pathlib.Path) -> None:
    output = tmp_path / "compiled.onnx"
    trtnode.compile(source, output, custom_op_library=[library])

    with pytest.raises(ModelLoadError, match=REFUSAL):
        trtnode.load(output)


def test_another_content_of_a_library_is_another_key_of_the_cache(
    source: pathlib.Path, tmp_path: pathlib.Path, cache: EngineCache
) -> None:
    first, second = tmp_path / "first.so", tmp_path / "second.so"
    compile_library(first, SCALE)
    second.write_bytes(first.read_bytes())

    built = compile_model(source, CompileOptions(custom_op_libraries=(first,)), cache=cache)
    same = compile_model(source, CompileOptions(custom_op_libraries=(second,)), cache=cache)
    compile_library(tmp_path / "new.so", SCALE, factor=3).replace(second)
    other = compile_model(source, CompileOptions(custom_op_libraries=(second,)), cache=cache)

    assert (built.engines_built, same.engines_built, other.engines_built) == (2, 0, 2)


def test_a_library_that_can_not_be_used_is_one_sentence(tmp_path: pathlib.Path) -> None:
    for library, problem in broken_libraries(tmp_path).items():
        with pytest.raises(CustomOperatorsError) as caught, custom_operators([library]):
            pass

        assert str(caught.value).startswith(f"{library}: this library of custom operators ")
        assert problem in str(caught.value)


def test_extensions_of_onnx_runtime_are_found_by_the_name_of_their_package(
    library: pathlib.Path, source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tmp_path / "onnxruntime_extensions-9.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-extensions\nVersion: 9\n")
    (facts / "RECORD").write_text("onnxruntime_extensions/_pydll.so,,\n")
    (tmp_path / "onnxruntime_extensions").mkdir()
    (tmp_path / "onnxruntime_extensions" / "_pydll.so").write_bytes(library.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    named = pathlib.Path("onnxruntime-extensions")

    compiled = compile_model(source, CompileOptions(custom_op_libraries=(named,)))
    (facts / "RECORD").write_text("")

    assert len(compiled.report.segments) == 2
    with pytest.raises(CustomOperatorsError, match="is not installed; run `pip install onnxruntime-extensions`"):
        compile_model(source, CompileOptions(custom_op_libraries=(named,)))


def test_commands_that_open_a_model_take_libraries(
    source: pathlib.Path, library: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, inputs, ranges = (tmp_path / name for name in ("compiled.onnx", "in.npz", "ranges.json"))
    np.savez(inputs, x=X)
    given = ["--custom-op-library", str(library)]

    assert main(["compile", str(source), "-o", str(output), *given]) == 0
    assert main(["run", str(output), "--inputs", str(inputs), "--outputs", str(tmp_path / "out.npz"), *given]) == 0
    assert main(["align", str(output), "--reference", str(source), "--inputs", str(inputs), *given]) == 0
    assert main(["calibrate", str(source), "--data", str(inputs), "-o", str(ranges), *given]) == 0
    assert main(["run", str(output), "--inputs", str(inputs), "--outputs", str(tmp_path / "out.npz")]) == 1

    assert "--custom-op-library" in capsys.readouterr().err
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], plainly(source, library, X), rtol=1e-4)
