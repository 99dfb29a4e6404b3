"""The check of engines refuses what odd sizes, ties, rows of several scales and integers of the whole range show."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import pytest

from stand_in_workers import InProcessWorker
from trtnode.engines.build import native_runs
from trtnode.engines.inputs.input_uses import uses_of
from trtnode.engines.inputs.samples import find_samples
from trtnode.engines.inputs.varied_samples import varied_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.openvino import cpu_plugin, labels
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from trtnode.partitioner.passes.rewrites import apply, rules
from trtnode.partitioner.passes.rewrites.replacement import Replacement
from workshop import Workshop

FAULTS = {
    "remainders": "g (float[n] x) => (float[n] y) <float p = {6.2831855}> { y = Mod<fmod = 1>(x, p) }",
    "quotients": "g (uint8[n] x) => (uint8[n] y) <uint8 z = {7}> { y = Div(x, z) }",
    "small-rows": "g (float[n,c] x) => (float[n,c] y) { y = LpNormalization<p = 2>(x) }",
}
"""Models that OpenVINO computes otherwise, where its labels and rewrites don't prevent it."""


@pytest.fixture
def without_mending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "label", lambda node: SUPPORTED)
    monkeypatch.setattr(cpu_plugin, "compute_bytes_in_32_bits", lambda model: None)


def leave_out_varied_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_runs, "varied_samples", lambda *_, **__: iter(()))


def refused(workshop: Workshop, graph: str) -> set[str]:
    report = workshop.compile(workshop.write(graph), worker=InProcessWorker(), no_optimize=("all",)).report
    return {node.code for node in report.native}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_engine_is_refused(fault: str, workshop: Workshop, without_mending: None) -> None:
    assert refused(workshop, FAULTS[fault]) == {ReasonCode.INACCURATE}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_usual_samples_alone_would_not_show_it(
    fault: str, workshop: Workshop, without_mending: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_varied_samples(monkeypatch)

    assert refused(workshop, FAULTS[fault]) == set()


def test_another_neighbour_of_resize_is_refused_at_a_width_that_shows_it(
    workshop: Workshop, without_mending: None
) -> None:
    graph = """g (float[1,1,1,20] x) => (float[1,1,1,6] y) <int64[4] s = {1, 1, 1, 6}> {
        y = Resize<mode = "nearest", nearest_mode = "round_prefer_ceil",
        coordinate_transformation_mode = "half_pixel">(x, "", "", s) }"""

    assert refused(workshop, graph) == {ReasonCode.INACCURATE}


POOLED = """g (float[n,1,h,w] x) => (float[n,1,?,?] y) {
    y = AveragePool<auto_pad = "SAME_UPPER", kernel_shape = [2, 2], strides = [2, 2], count_include_pad = 1>(x) }"""


def uncounted_padding(graph: ir.Graph) -> Iterator[Replacement]:
    """Leave padding out of averages, which is wrong where there is some."""
    for op in graph:
        if op.attributes.get_int("count_include_pad", 0):
            yield Replacement((op,), functools.partial(op.attributes.pop, "count_include_pad"))


@pytest.mark.parametrize("varied", [True, False])
def test_a_wrong_rewrite_is_refused_on_an_odd_size(
    varied: bool, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = (frozenset({"AveragePool"}),)
    rule = rules.Rule(name="wrong", find=uncounted_padding, gains=rules.EVERYWHERE, needs=needs, opens=True)
    monkeypatch.setattr(apply, "RULES", (rule,))
    if not varied:
        leave_out_varied_samples(monkeypatch)

    assert refused(workshop, POOLED) == ({ReasonCode.INACCURATE} if varied else set())


def samples_of(workshop: Workshop, graph: str) -> list[dict[str, np.ndarray]]:
    path = workshop.write(graph)
    cleaned, session = clean_up(load_model(path)), NativeSession(path)
    inputs = tuple(TensorSpec.of(v) for v in Graph.of(load_model(path)).inputs)
    base = find_samples(session, inputs, None)[0]
    return [dict(sample.feeds) for sample in varied_samples(session, inputs, base, uses_of(cleaned))]


def test_sizes_are_odd_and_beyond_the_largest_window(workshop: Workshop) -> None:
    graph = "g (float[1,1,w] x) => (float[1,1,v] y) { y = MaxPool<kernel_shape = [5], dilations = [2]>(x) }"

    assert [sample["x"].shape[2] for sample in samples_of(workshop, graph)] == [19, 16]


def test_integers_lie_in_the_range_that_their_uses_allow(workshop: Workshop) -> None:
    graph = """g (int64[n] i, int64[n] mask, uint8[n,4] image, int32[n] d)
        => (float[n,3] e, float[n] m, float[n,4] f, int32[n] q)
        <float[5,3] table = {0,1,2,3,4,5,6,7,8,9,1,2,3,4,5}, int32 k = {9}> {
        e = Gather(table, i) m = Cast<to = 1>(mask) f = Cast<to = 1>(image) q = Div(k, d) }"""

    samples = samples_of(workshop, graph)
    bounds = {name: (min(s[name].min() for s in samples), max(s[name].max() for s in samples)) for name in samples[0]}

    assert 0 <= bounds["i"][0] < 2 < bounds["i"][1] <= 4
    assert bounds["mask"] == (0, 1)
    assert bounds["image"][1] > 100
    assert bounds["d"][0] >= 1
    assert bounds["d"][1] > 8


def test_numbers_are_ties_zeros_and_rows_of_several_scales(workshop: Workshop) -> None:
    graph = "g (float[6,64] x) => (float[6,64] y) <float c = {0.3}> { y = Mod<fmod = 1>(x, c) }"

    ties, scaled = (sample["x"] for sample in samples_of(workshop, graph))

    assert {np.float32(0.5), np.float32(0.3) * 7} <= set(ties.ravel())
    assert not ties[1].any()
    assert np.signbit(ties[ties == 0]).any()
    assert np.abs(scaled).max(axis=1).argsort().tolist()[-2:] in ([2, 5], [5, 2])
    assert np.abs(scaled[0]).max() < 1e-2


def test_strings_stay_as_they_are(workshop: Workshop) -> None:
    samples = samples_of(workshop, "g (string[n] s) => (string[n] y) { y = Identity(s) }")

    assert all(set(sample["s"]) == {"a"} for sample in samples)
