"""Inputs and outputs of state, found by the names that exporters give."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from trtnode.partitioner.graph.states import find_states
from trtnode.partitioner.graph.view import TensorSpec


def spec(name: str, *shape: int | str | None, dtype: ir.DataType = ir.DataType.FLOAT) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("past_key_values.3.key", "present.3.key"),
        ("past_key_values.3.value", "present_key_values.3.value"),
        ("past_0", "present_0"),
        ("h0", "hn"),
        ("c_0", "c_n"),
        ("h", "h_out"),
        ("h_in", "h_out"),
        ("hx", "hx_out"),
        ("state", "stateN"),
        ("state1", "state1_out"),
        ("cache_last_channel", "cache_last_channel_next"),
        ("cached_key_0", "new_cached_key_0"),
        ("att_cache", "r_att_cache"),
        ("prev_state", "next_prev_state"),
        ("rnn_hidden", "rnn_hidden_out"),
    ],
)
def test_names_of_exporters_are_pairs(name: str, output: str) -> None:
    found = find_states([spec("x", 1, 8), spec(name, 1, 4)], [spec("y", 1, 8), spec(output, 1, 4)])

    assert found.kept == {output: name}
    assert [one.name for one in (*found.inputs, *found.outputs)] == ["x", "y"]


def test_an_image_and_what_becomes_of_it_are_no_state() -> None:
    found = find_states([spec("image", 1, 8)], [spec("image_out", 1, 8)])

    assert (found.pairs, found.left) == ((), ())


@pytest.mark.parametrize(
    "output",
    [spec("hn", 1, 5), spec("hn", 1, 4, dtype=ir.DataType.DOUBLE), spec("hn", 4), spec("other", 1, 4)],
    ids=["shape", "type", "rank", "name"],
)
def test_what_does_not_fit_is_left_and_named(output: TensorSpec) -> None:
    found = find_states([spec("h0", 1, 4)], [output])

    assert (found.pairs, found.left) == ((), ("h0",))


@pytest.mark.parametrize(
    ("shape", "small"),
    [((1, 2, 128), True), (("batch", 16_384), True), ((1, 16_385), False), (("batch", 2, "past", 4), False)],
)
def test_a_state_is_small_if_it_has_a_fixed_size_that_is_quickly_copied(
    shape: tuple[int | str, ...], small: bool
) -> None:
    others = [spec("x", "batch", 8)], [spec("y", "batch", 8)]
    after = tuple("total" if size == "past" else size for size in shape)

    found = find_states([*others[0], spec("state", *shape)], [*others[1], spec("state_out", *after)])

    assert found.is_small is small


def test_what_was_found_and_left_is_told() -> None:
    found = find_states([spec("h0", 1, 4), spec("past_1", 1, 2)], [spec("hn", 1, 4)])

    assert found.sentences() == [
        "keeps 1 tensor of state: h0 from hn, at first float32[1, 4]",
        "'past_1' looks like state, and no output fits it by name, type and shape",
    ]


@pytest.mark.parametrize(
    ("before", "after", "first", "grows"),
    [
        pytest.param(("b", 2, "past", 4), ("b", 2, "past + s", 4), ("b", 2, 0, 4), True, id="cache"),
        pytest.param(("b", 2, "past", 4), ("c", 2, "total", 4), ("b", 2, 0, 4), True, id="renamed-batch"),
        pytest.param(("b", 2, "past", 4), (None, None, None, None), ("b", 2, 0, 4), True, id="unknown-output"),
        pytest.param((None, 2, None, 4), (None, 2, None, 4), (1, 2, 0, 4), True, id="no-names"),
        pytest.param(("past", "b", 4), ("total", "b", 4), (0, "b", 4), True, id="length-first"),
        pytest.param((2, "b", 4), (2, "b", 4), (2, "b", 4), False, id="recurrent"),
        pytest.param((2, "n", 4), (2, "n", 4), (2, 1, 4), False, id="own-batch"),
        pytest.param((2, "n", 4), (2, 1, 4), (2, 1, 4), False, id="known-after"),
    ],
)
def test_caches_begin_empty_and_batches_with_the_rows_of_the_request(
    before: tuple[int | str | None, ...], after: tuple[int | str | None, ...], first: tuple[int | str, ...], grows: bool
) -> None:
    (pair,) = find_states([spec("ids", "b", "s"), spec("state", *before)], [spec("state_out", *after)]).pairs

    assert (pair.shape, pair.grows) == (first, grows)
