"""``explain`` reads from the record of the last compilation what a build alone can tell."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from faulty_backends import UnreliableBackend
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.partitioning import partition_model
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.report import Report
from workshop import Workshop

PLACES = """g (float[4] x) => (float[A] y, float[4] z) <float[4] never = {1e9, 1e9, 1e9, 1e9}> {
    a = Exp(x) z = Neg(a) high = Greater(x, never) places = NonZero(high)
    chosen = Cast <to = 1>(places) flat = Flatten(chosen) y = Relu(flat)
}""".replace("float[A] y", "float[A, B] y")
"""No generated input has an element that is high enough, so the nodes behind NonZero get empty tensors."""


def explained(source: pathlib.Path, engine: str, cache: EngineCache | None, *native_ops: str) -> Report:
    options = CompileOptions(engine=engine, partition=PartitionOptions(native_ops=native_ops))
    return partition_model(source, options, cache=cache, worker=InProcessWorker())[1]  # type: ignore[arg-type]


def placed(report: Report) -> list[list[str]]:
    return [[node.name for node in segment.nodes] for segment in report.segments]


@pytest.mark.parametrize("fault", ["refuses", "miscomputes"])
def test_explain_agrees_with_the_compilation_before(
    fault: str,
    unreliable: type[UnreliableBackend],
    in_process: InProcessWorker,
    workshop: Workshop,
    source: pathlib.Path,
    cache: EngineCache,
) -> None:
    setattr(unreliable, fault, ("Exp",))
    expected = explained(source, "unreliable", cache, "Relu")

    compiled = workshop.compile(source, engine="unreliable", native_ops=("Relu",), cache=cache, worker=in_process)
    found = explained(source, "unreliable", cache, "Relu")

    assert (expected.compiled_before, found.compiled_before, compiled.report.compiled_before) == (False, True, None)
    assert len(placed(expected)) == 2
    assert placed(found) == placed(compiled.report) == [["Neg:y"]]
    assert found.native == compiled.report.native
    assert found.as_json()["compiled_before"] is True


def test_a_compilation_tells_nothing_about_other_options_nor_without_a_cache(
    in_process: InProcessWorker, workshop: Workshop, source: pathlib.Path, cache: EngineCache
) -> None:
    workshop.compile(source, engine="reference", cache=cache, worker=in_process)

    assert explained(source, "reference", cache).compiled_before is True
    assert explained(source, "reference", cache, "Relu").compiled_before is False
    assert explained(source, "reference", None).compiled_before is False
    assert explained(source, "native", cache).compiled_before is None


def test_a_damaged_record_tells_nothing(
    in_process: InProcessWorker, workshop: Workshop, source: pathlib.Path, cache: EngineCache
) -> None:
    workshop.compile(source, engine="reference", cache=cache, worker=in_process)
    for record in (workshop.folder / "cache").glob("*.json"):
        record.write_text(record.read_text().replace('"demoted": {}', '"demoted": 7'))

    assert explained(source, "reference", cache).compiled_before is False


def test_an_engine_that_gets_empty_tensors_alone_is_unchecked_and_others_stay(
    in_process: InProcessWorker, workshop: Workshop, cache: EngineCache
) -> None:
    source = workshop.write(PLACES)

    compiled = workshop.compile(source, native_ops=("NonZero",), cache=cache, worker=in_process).report

    refused = [node for node in compiled.native if node.code == ReasonCode.UNCHECKED]
    assert {node.node for node in refused} >= {"Relu:y"}
    assert "is empty on every input that was tried" in refused[0].detail
    assert "Neg:z" in [name for names in placed(compiled) for name in names]
    assert placed(explained(source, "openvino", cache, "NonZero")) == placed(compiled)


def test_inputs_that_fill_the_tensors_check_the_engine(
    in_process: InProcessWorker, workshop: Workshop, cache: EngineCache
) -> None:
    source = workshop.write(PLACES)
    samples = workshop.folder / "high.npz"
    np.savez(samples, x=np.array([1, 2e9, 3, 4e9], np.float32))

    compiled = workshop.compile(source, native_ops=("NonZero",), cache=cache, samples=samples, worker=in_process)

    assert "Relu:y" in [name for names in placed(compiled.report) for name in names]
    assert placed(explained(source, "openvino", cache, "NonZero")) == placed(compiled.report)


@pytest.mark.usefixtures("brief_tuning", "choosing_engines")
def test_what_tuning_recalls_from_its_own_record_is_in_the_outcome_too(
    workshop: Workshop, source: pathlib.Path, cache: EngineCache
) -> None:
    options = CompileOptions(engine="openvino")

    reports = [workshop.compile(source, cache=cache).report for _ in range(2)]
    found = partition_model(source, options, cache=cache, worker=workshop.worker)[1]

    assert placed(found) == placed(reports[0]) == placed(reports[1])
    assert found.native == reports[1].native
