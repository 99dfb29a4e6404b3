"""The onnx package's own backend test suite: whatever plain ONNX Runtime passes must pass compiled as well.

The other cases are compiled too: operators that ONNX Runtime lacks run in another form, in an engine, or in
onnx.reference. None of them may be answered wrongly.
Each case is compiled twice: with OpenVINO, and with a simulated TensorRT on a simulated GPU. The latter tests our
labels, rewrites, profiles and execution streams, not TensorRT's results. ``make conformance`` runs all cases; pytest
without ``--conformance=all`` runs a sample.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx
import pytest

from backend_suite import PlainOnnxruntime, Prepared, failure, sample, suite
from simulated_tensorrt import Simulation
from streams import ANYONE, InProcessWorker, profile_of, samples_of
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.cut.labels import ReasonCode

ANSWERED_OTHERWISE = {
    "test_attention_4d_with_past_and_present_qk_matmul_bias_": "ONNX Runtime masks its optional output otherwise",
    "test_bernoulli_": "the results are random",
    "test_dft_": "ONNX Runtime rounds to float32 where the case has a tolerance of 1e-7 around zero",
    "test_maxunpool_export_with_output_shape_": "ONNX Runtime takes the indices for those of the given shape",
    "test_resize_downsample_scales_": "ONNX Runtime aligns corners with the size in whole pixels",
    "test_stft_": "ONNX Runtime rounds to float32 where the case has a tolerance of 1e-7 around zero",
    "test_training_dropout_": "the results are random",
}
"""Reasons of cases whose answer may differ from the suite's, by the beginning of their names. In every other case, what
has no right answer must be refused."""

NATIVE_FAILS = "plain onnxruntime does not pass this case"
NO_ENGINE = "no node of this case is labelled for TensorRT"
PASSES_NATIVELY = "passes_natively"


class _Compiled(PlainOnnxruntime):
    """Compiles with OpenVINO, writes the file, reads it back, runs it."""

    folder: pathlib.Path
    worker: SubprocessWorker
    numbers = itertools.count()

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Prepared:
        number = next(cls.numbers)
        source, compiled = cls.folder / f"{number}.onnx", cls.folder / f"{number}.compiled.onnx"
        source.write_bytes(model.SerializeToString())
        compile_model(source, CompileOptions(engine="openvino"), worker=cls.worker).save(compiled)
        source.unlink()
        executable = open_model(compiled)
        return Prepared(model, lambda feeds: executable.run(feeds).values())


class _NoEngineError(Exception):
    """No node of a case runs on the simulated GPU."""


class _OnSimulatedGpu(PlainOnnxruntime):
    """Compiles with the simulated TensorRT for the shapes of the inputs, and runs on the simulated GPU."""

    folder: pathlib.Path

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Prepared:
        return Prepared(model, lambda feeds: cls._load(model, feeds).run(feeds).values())

    @classmethod
    def _load(cls, proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> Executable:
        source, compiled = cls.folder / "model.onnx", cls.folder / "compiled.onnx"
        source.write_bytes(proto.SerializeToString())
        shapes = tuple(filter(None, [profile_of(source, [feeds])]))
        options = CompileOptions(engine="tensorrt", shapes=shapes, check_inputs=samples_of(feeds, cls.folder))
        model = compile_model(source, options, worker=InProcessWorker())
        assert [n for n in model.report.native if n.code == ReasonCode.BUILD_FAILED] == []
        if not model.report.segments:
            raise _NoEngineError
        model.save(compiled)
        return open_model(compiled, run=RunOptions(trust=ANYONE))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = sorted(suite(PlainOnnxruntime))
    asked = metafunc.config.getoption("conformance")
    ours = "all" if "simulate" in metafunc.fixturenames else "openvino"
    metafunc.parametrize("name", names if asked in ("all", ours) else sample(names))


@pytest.fixture(scope="session", autouse=True)
def _compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    _Compiled.folder = tmp_path_factory.mktemp("conformance")
    with SubprocessWorker() as _Compiled.worker, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_HOME", str(_Compiled.folder))  # the suite writes inputs of its larger models there
        yield


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_case_passes_compiled_if_it_passes_natively(name: str, record_property: Callable[[str, object], None]) -> None:
    native = failure(PlainOnnxruntime, name) is None
    record_property(PASSES_NATIVELY, native)

    problem = failure(_Compiled, name)

    wrong = isinstance(problem, AssertionError) and not name.startswith(tuple(ANSWERED_OTHERWISE))
    if problem is not None and (native or wrong):
        raise problem
    if problem is not None:
        pytest.skip(f"{NATIVE_FAILS}, nor does it compiled: {type(problem).__name__}: {str(problem)[:200]}")


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_case_passes_on_a_simulated_gpu_if_it_passes_natively(
    name: str,
    simulate: Callable[..., Simulation],
    tmp_path: pathlib.Path,
    record_property: Callable[[str, object], None],
) -> None:
    simulate()
    _OnSimulatedGpu.folder = tmp_path

    problem = failure(_OnSimulatedGpu, name)

    if isinstance(problem, _NoEngineError):
        pytest.skip(NO_ENGINE)
    if problem is not None and failure(PlainOnnxruntime, name) is None:
        raise problem
    if problem is not None:
        pytest.skip(f"{NATIVE_FAILS}, nor does it compiled: {type(problem).__name__}: {str(problem)[:200]}")
