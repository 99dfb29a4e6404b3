"""The onnx backend test suite with TensorRT for RTX itself, which builds here for GPUs that are elsewhere.

Each case is compiled. What the table takes, the library must parse and build; the compiled file must run natively in
plain ONNX Runtime with the case's answer. What the table refuses, the library builds as a whole: where it can,
``GIVEN_AWAY`` holds the reason for which it must not.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from backend_suite import PlainOnnxruntime, Prepared, failure, run_natively, sample, suite
from rtx_judges import Judgement, Outcome, judge
from tensorrt_labels import BASE_CASES, OPSETS
from trtnode.engines.backends import library_jobs
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.tensorrt.labelling.labels import label
from trtnode.engines.tensorrt.labelling.rtx import RTX
from trtnode.partitioner.cut.labels import label_nodes
from trtnode.partitioner.cut.options import Allowance, PartitionOptions
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model

pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that the library builds and the table refuses.

    Attributes:
        name: As in the summary.
        refusal: Pattern of the table's words.
        reason: The reason why the table is right.
    """

    name: str
    refusal: str
    reason: str


GIVEN_AWAY = (
    Group(
        name="opset",
        refusal=r"is another than in opsets",
        reason="the parser reads any opset as those that it knows; broadcasting or an attribute means something else",
    ),
    Group(
        name="double",
        refusal=r"is double",
        reason="the library narrows double to float32 without a word, and another rule refuses the node as well",
    ),
    Group(
        name="sizes of a run",
        refusal=r"must be a constant or come from Shape|\((?:'axis'|'k'|'K')\) of (?:CumSum|TopK) must be a constant",
        reason="an engine is built for a range of such values, which a profile has to name",
    ),
    Group(
        name="unknown shapes",
        refusal=r"The rank of .* can't be inferred",
        reason="ONNX infers no shape that the network could be compared with",
    ),
    Group(
        name="Attention",
        refusal=r"^Attention: ",
        reason="only some forms in float32 have a kernel; nonpad_kv_seqlen is an input that NVIDIA describes nowhere",
    ),
    Group(
        name="scale of a run",
        refusal=r"^DequantizeLinear: Input 1 .* must be a constant",
        reason="NVIDIA asks for constant scales, greater than zero",
    ),
    Group(
        name="8-bit integers",
        refusal=r"^Clip: .* clips int8 between two constants|is uint8, which",
        reason="bounds of Clip that are left out are floats; uint8 is read as int8",
    ),
    Group(name="seed", refusal=r"ignores seed", reason="the numbers would be others than those of the seed"),
    Group(name="Constant", refusal=r"^Constant: ", reason="the model computes nothing"),
)
"""The first that matches a refusal of the table counts."""

ATTENTION = "g (float[1,2,3,16] q, float[1,2,3,16] k) => (float[1,2,3,16] y) { y = Attention(q, k, k) }"

PROFILES = ({"x": ShapeRange(min=(4,), opt=(4,), max=(4,))},)
"""For the operator whose plain form has a shape that varies."""


class _ForGpus(PlainOnnxruntime):
    """Compiles for the first inputs that are given, and runs the compiled file in plain ONNX Runtime."""

    folder: pathlib.Path
    worker: SubprocessWorker
    judgement: Judgement | None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Prepared:
        source = cls.folder / "model.onnx"
        source.write_bytes(model.SerializeToString())

        def run(feeds: dict[str, Any]) -> list[Any]:
            cls.judgement = cls.judgement or judge(source, feeds, cls.worker, cls.folder)
            return run_natively(str(cls.judgement.compiled or source), feeds)

        return Prepared(model, run)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kind = "op" if "op" in metafunc.fixturenames else "name"
    names = sorted(set(RTX.dtypes) - set(RTX.lacking)) if kind == "op" else sorted(suite(PlainOnnxruntime))
    asked = metafunc.config.getoption("conformance")
    metafunc.parametrize(kind, names if asked in ("all", "tensorrt-rtx") else sample(names))


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_case_is_built_as_the_table_says_and_runs_natively(
    name: str,
    worker: SubprocessWorker,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setenv("ONNX_HOME", str(tmp_path))
    _ForGpus.folder, _ForGpus.worker, _ForGpus.judgement = tmp_path, worker, None

    problem = failure(_ForGpus, name)

    judgement = _ForGpus.judgement
    if judgement is not None:
        record_property("outcome", judgement.outcome.value)
        record_property("crashed", judgement.crashed)
        assert judgement.outcome not in (Outcome.PARSER_REFUSES, Outcome.BUILDER_REFUSES), judgement.refusals
        if judgement.outcome == Outcome.GIVEN_AWAY:
            record_property("group", _group_of(judgement))
    if problem is not None and failure(PlainOnnxruntime, name) is None:
        raise problem
    if problem is not None:
        pytest.skip(f"plain onnxruntime does not pass this case, nor does it compiled: {str(problem)[:200]}")


def _group_of(judgement: Judgement) -> str:
    for refusal in judgement.refusals:
        for group in GIVEN_AWAY:
            if re.search(group.refusal, refusal):
                return group.name
    pytest.fail(f"The library builds what the table refuses for no reason that is known: {judgement.refusals}")


@pytest.mark.conformance
def test_operator_is_built_in_each_type_that_the_table_takes(
    op: str, worker: SubprocessWorker, tmp_path: pathlib.Path
) -> None:
    path, built = tmp_path / "node.onnx", 0
    for dtype in RTX.dtypes[op]:
        model = _typed(ATTENTION if op == "Attention" else BASE_CASES[op].replace("#", op), dtype, OPSETS.get(op, 24))
        if model is None or not _is_taken(model, path):
            continue
        onnx.save(model, path)
        worker.call(
            library_jobs.build, 120, "tensorrt-rtx", path, tmp_path / "node.engine", BuildOptions(profiles=PROFILES)
        )
        built += 1

    assert built


def _typed(graph: str, dtype: ir.DataType, opset: int) -> onnx.ModelProto | None:
    """Return a graph with its floats in another type; None where ONNX has no such node."""
    text = re.sub(r"\bfloat(?=[\[ ])", dtype.name.lower(), graph)
    try:
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
        return onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=dtype != ir.DataType.FLOAT)
    except (onnx.parser.ParseError, onnx.shape_inference.InferenceError):
        return None


def _is_taken(model: onnx.ModelProto, path: pathlib.Path) -> bool:
    graph = Graph.of(view_model(model, path))
    supports = functools.partial(label, allow=tuple(Allowance), table=RTX)
    return all(verdict.supported for verdict in label_nodes(graph, supports, PartitionOptions()).values())
