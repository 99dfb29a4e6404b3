"""Relations between the sizes of decoders and other models, which only runs show."""

from __future__ import annotations

import pytest

from decoders import OPTIMUM, PLAIN, decoder
from trtnode.engines.inputs.samples import find_samples, relate_sizes
from trtnode.engines.inputs.size_relations import MOST_TRIES, SizeRelations, Sizes
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop


@pytest.mark.parametrize(
    ("names", "aliases", "mask", "value"),
    [
        pytest.param(OPTIMUM, False, OPTIMUM[3], OPTIMUM[2], id="expression"),
        pytest.param(PLAIN, False, "sequence + past", "past", id="symbol"),
        pytest.param(PLAIN, True, "sequence + past", "past", id="several-names-of-one-size"),
    ],
)
def test_the_mask_of_a_decoder_is_as_long_as_cache_and_tokens(
    names: tuple[str, str, str, str], aliases: bool, mask: str, value: str, workshop: Workshop
) -> None:
    path = workshop.write(decoder(names, aliases=aliases))
    session, inputs = NativeSession(path), tuple(TensorSpec.of(v) for v in Graph.of(load_model(path)).inputs)

    related = {spec.name: spec.shape for spec in relate_sizes(session, inputs) or ()}

    assert related["mask"] == (names[0], mask)
    assert related["past_value"] == (names[0], 2, value, 4)
    assert len(find_samples(session, inputs, None)) == 2


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        pytest.param(lambda s: s["a"] != s["b"], {"b": "a"}, id="equal"),
        pytest.param(lambda s: s["c"] != s["a"] + s["b"], {"c": "b + a"}, id="sum"),
        pytest.param(lambda s: s["c"] < s["a"] + s["b"], {"c": "b + a"}, id="at-least-the-sum"),
        pytest.param(lambda s: s["c"] != s["a"] + 1, {"c": "a + 1"}, id="one-more"),
        pytest.param(lambda s: s["a"] % 2, {}, id="even"),
        pytest.param(lambda s: False, {}, id="free"),
    ],
)
def test_a_size_that_grows_with_others_is_their_sum(problem: object, expected: dict[str, str]) -> None:
    relations = SizeRelations("abc", lambda s: "node" if problem(s) else None)  # type: ignore[operator]

    start = relations.find_start(2)

    assert start is not None
    found = relations.expressions(start)
    assert {name: set(text.split(" + ")) for name, text in found.items()} == {
        name: set(text.split(" + ")) for name, text in expected.items()
    }


def test_the_search_ends_where_nothing_runs() -> None:
    tries: list[Sizes] = []

    def refuse(sizes: Sizes) -> str:
        tries.append(sizes)
        return str(len(tries))

    assert SizeRelations([f"s{i}" for i in range(50)], refuse).find_start(2) is None
    assert len(tries) <= MOST_TRIES
