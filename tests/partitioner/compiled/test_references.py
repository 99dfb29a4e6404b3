"""An engine leaves out the weights that its file has, and is put together again, byte for byte."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtnode.partitioner.compiled.references import (
    LEAST_BYTES,
    Reference,
    find_references,
    put_together,
    references_from_bytes,
    references_to_bytes,
    without_ranges,
)

RNG = np.random.default_rng(0)


def weight(count: int, dtype: str = "float32") -> ir.Tensor:
    return ir.Tensor(RNG.standard_normal(count).astype(dtype))


def of(*parts: object) -> np.ndarray:
    """An engine of some bytes and weights."""
    return np.frombuffer(b"".join(p if isinstance(p, bytes) else np.asarray(p).tobytes() for p in parts), np.uint8)


WEIGHTS = {3: weight(500), 4: weight(700, "float16"), 5: weight(400), 6: ir.Tensor(np.zeros(1000, np.float32))}
PARTS = [*(tensor.numpy() for tensor in WEIGHTS.values()), WEIGHTS[4].numpy().astype(np.float32)]


@given(
    order=st.lists(st.sampled_from(range(len(PARTS))), max_size=8),
    between=st.lists(st.binary(max_size=40), min_size=9, max_size=9),
    padding=st.integers(0, 3_000_000),
)
def test_an_engine_is_what_it_was_without_any_weight_that_is_found(
    order: list[int], between: list[bytes], padding: int
) -> None:
    engine = of(
        bytes(padding), *(part for k, gap in zip(order, between, strict=False) for part in (gap, PARTS[k])), between[8]
    )

    references = references_from_bytes(references_to_bytes(list(find_references(engine, WEIGHTS))))
    rest = without_ranges(engine, references)

    assert np.array_equal(put_together(rest, references, WEIGHTS), engine)
    varied = [k for k in order if np.any(PARTS[k])]
    assert len(references) == len(varied)
    assert len(rest) == len(engine) - sum(PARTS[k].nbytes for k in varied)


def test_weights_that_an_engine_holds_as_float32_are_found_widened() -> None:
    (found,) = find_references(of(b"head", PARTS[4]), WEIGHTS)

    assert found == Reference(offset=4, length=2800, weight=4, widened=1)


def test_changed_and_small_weights_stay_in_the_engine() -> None:
    small = {0: ir.Tensor(np.arange(LEAST_BYTES // 4 - 1, dtype=np.float32))}
    changed = PARTS[0].copy()
    changed[-1] += 1

    assert not list(find_references(of(small[0].numpy(), changed), small | WEIGHTS))


def test_pruned_weights_are_sought_by_what_is_left_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros stand in a million places, and comparing whole weights at each took minutes."""
    pruned = np.where(RNG.random(200_000) < 0.8, np.float32(0), weight(200_000).numpy())
    pruned[:4] = 1, 1, 0, 0
    compared: list[int] = []
    whole = np.array_equal
    monkeypatch.setattr(np, "array_equal", lambda a, b: compared.append(len(b)) or whole(a, b))

    (found,) = find_references(of(bytes(8_000_000), pruned), {0: ir.Tensor(pruned)})

    assert (found.offset, found.length) == (8_000_000, pruned.nbytes)
    assert len(compared) < 10


def test_the_longest_of_weights_that_begin_alike_is_found() -> None:
    long = weight(900)
    alike = {0: ir.Tensor(long.numpy()[:500]), 1: long}

    assert [one.weight for one in find_references(of(b"x", long.numpy()), alike)] == [1]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"weight": 9}, id="of-no-weight"),
        pytest.param({"weight": -1}, id="of-a-negative-weight"),
        pytest.param({"length": 10_000}, id="longer-than-the-weight"),
        pytest.param({"length": 1 << 60}, id="of-more-than-any-memory"),
        pytest.param({"length": -8}, id="of-negative-length"),
        pytest.param({"start": 8}, id="beyond-the-end-of-the-weight"),
        pytest.param({"offset": 10_000}, id="behind-the-end-of-the-engine"),
        pytest.param({"offset": -1}, id="before-the-engine"),
        pytest.param({"widened": 1}, id="widened-float32"),
        pytest.param({"widened": 2}, id="in-an-unknown-form"),
    ],
)
def test_damaged_references_are_refused(damage: dict[str, int]) -> None:
    engine = of(b"head", PARTS[0], b"tail")
    (found,) = find_references(engine, WEIGHTS)

    with pytest.raises(ValueError, match=r"it has no|impossible sizes"):
        put_together(without_ranges(engine, [found]), [found._replace(**damage)], WEIGHTS)


def test_ranges_that_overlap_are_refused() -> None:
    engine = of(b"head", PARTS[0], b"tail")
    (found,) = find_references(engine, WEIGHTS)

    with pytest.raises(ValueError, match="it has no"):
        put_together(without_ranges(engine, [found]), [found, found._replace(offset=8)], WEIGHTS)


@pytest.mark.parametrize("data", [b"x", bytes(39), bytes(41)])
def test_bytes_that_are_no_references_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cannot reshape|multiple of element size"):
        references_from_bytes(data)
