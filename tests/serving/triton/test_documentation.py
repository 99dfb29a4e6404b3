"""docs/triton.md: its table of fields is that of the program, and the program's covers the protocol's message."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import tritonclient.grpc as triton

from trtnode.protos import ModelConfig
from trtnode.serving.triton.keys import KEYS, Effect

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "triton.md"


def table() -> list[str]:
    """Return the rows that the page should have; a run of this file as a program prints them."""
    return [f"| `{path}` | {key.effect}{': ' if key.text else ''}{key.text} |" for path, key in sorted(KEYS.items())]


def test_the_table_of_the_page_is_that_of_the_program() -> None:
    text, _, _ = PAGE.read_text().partition("## Clients")
    rows = [line for line in text.splitlines() if line.startswith("| `")]

    assert [row for row in rows if row not in table()] == []
    assert [row for row in table() if row not in rows] == []


def leaves(descriptor: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each field of a message that has no fields of its own."""
    for field in descriptor.fields:
        below, here = field.message_type, f"{path}{field.name}"
        if below is not None and below.GetOptions().map_entry:
            below = below.fields_by_name["value"].message_type
        yield from leaves(below, f"{here}.") if below is not None and below.fields else [here]


def test_every_field_of_the_message_has_an_entry_or_stands_below_one() -> None:
    missed = [
        path for path in leaves(ModelConfig.DESCRIPTOR) if not any(f"{path}.".startswith(f"{key}.") for key in KEYS)
    ]

    assert missed == []


def test_every_entry_but_those_that_are_followed_says_more() -> None:
    assert {key.effect for key in KEYS.values() if not key.text} == {Effect.FOLLOWED}


@pytest.mark.parametrize("path", sorted(KEYS))
def test_every_entry_is_a_field_of_the_message(path: str) -> None:
    descriptor = ModelConfig.DESCRIPTOR
    for step in path.split("."):
        if descriptor.GetOptions().map_entry:
            descriptor = descriptor.fields_by_name["value"].message_type
        descriptor = descriptor.fields_by_name[step].message_type or descriptor


def test_the_message_has_every_field_of_tritonclient() -> None:
    theirs = triton.model_config_pb2.ModelConfig.DESCRIPTOR

    assert set(ModelConfig.DESCRIPTOR.fields_by_name) == set(theirs.fields_by_name)


if __name__ == "__main__":
    print("\n".join(table()))
