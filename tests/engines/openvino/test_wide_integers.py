"""int64 values beyond 32 bits stay in engines where only their order counts; all others are answered natively."""

from __future__ import annotations

import numpy as np
import pytest

from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.compile.opening import open_model
from workshop import Workshop

POSITIONS = """g (int64[8] far, int64[8] near) => (int64[8] y) <int64 eight = {8}, int64 most = {15}> {
    is_near = Less(near, eight) z = Min(far, most) y = Where(is_near, near, z)
}"""
TABLE = ", ".join(map(str, range(48)))
FEEDS = {"far": np.full(8, np.iinfo(np.int64).min), "near": np.arange(8)}


@pytest.mark.parametrize(
    ("graph", "fallbacks"),
    [
        pytest.param(POSITIONS, [], id="what-is-chosen-fits"),
        pytest.param(
            POSITIONS.replace("int64[8] y", "int64[8] y, int64[8] z"), ["int64_range"], id="a-result-is-beyond"
        ),
    ],
)
def test_values_of_which_the_order_counts_stay_in_engines(
    graph: str,
    fallbacks: list[str],
    workshop: Workshop,
    in_process: InProcessWorker,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    source, told = workshop.write(graph), []
    executable = open_model(workshop.compile_file(source, worker=in_process))
    executable.on_fallback = told.append

    answers = [executable.run(FEEDS) for _ in range(2)]

    assert executable.facts.segments == 1
    assert told == fallbacks * 2
    for answer in answers:
        same(answer, plain(source, FEEDS))


def test_positions_of_t5_lose_no_node_to_the_logarithm_of_0(workshop: Workshop, in_process: InProcessWorker) -> None:
    """Places up to 7 are exact there. Behind them follows the logarithm, which is beyond 64 bits for 0."""
    logarithm = "zeros = Mul(x, zero) low = Log(zeros) far = Cast<to = 7>(low)"
    graph = POSITIONS.replace("int64[8] far", "float[8] x").replace("is_near", f"{logarithm} is_near", 1)

    compiled = workshop.compile(workshop.write(graph.replace("<", "<float zero = {0}, ", 1)), worker=in_process)

    assert [node.op_type for node in compiled.report.native] == ["Cast"]


def test_positions_that_end_as_indices_stay_in_engines(
    workshop: Workshop, in_process: InProcessWorker, plain: RunPlainly, same: AssertSame
) -> None:
    """T5 as torch exports it makes the limit of the positions' shape, and takes rows of a table at them."""
    graph = f"""g (int64[8] far, int64[8] near) => (float[8, 3] rows)
        <int64 eight = {{8}}, int64 most = {{15}}, float[16, 3] table = {{{TABLE}}}> {{
            is_near = Less(near, eight) sizes = Shape(far) limit = Expand(most, sizes) z = Min(far, limit)
            y = Where(is_near, near, z) rows = Gather(table, y)
        }}"""
    source, told = workshop.write(graph), []
    executable = open_model(workshop.compile_file(source, worker=in_process))
    executable.on_fallback = told.append

    answer = executable.run(FEEDS)

    assert (executable.facts.segments, told) == (1, [])
    same(answer, plain(source, FEEDS))


def test_values_that_are_computed_with_are_answered_natively(
    workshop: Workshop, in_process: InProcessWorker, plain: RunPlainly, same: AssertSame
) -> None:
    source, told = workshop.write("g (int64[4] x) => (float[4] y) { f = Cast<to = 1>(x) y = Sqrt(f) }"), []
    executable = open_model(workshop.compile_file(source, worker=in_process))
    executable.on_fallback = told.append
    feeds = {"x": np.array([0, 1, 2**31, 2**40])}

    same(executable.run(feeds), plain(source, feeds))

    assert told == ["int64_range"]
