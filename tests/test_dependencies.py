"""The libraries of the server and Triton's client fit each other, whichever is installed first."""

from __future__ import annotations

import importlib.metadata

import pytest
from packaging.requirements import Requirement

EXTRAS = ("grpc", "http")


def requirements(distribution: str) -> list[Requirement]:
    """Return the requirements of an installed distribution here, with the extras of Triton's client."""
    found = map(Requirement, importlib.metadata.requires(distribution) or ())
    return [one for one in found if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in EXTRAS)]


@pytest.mark.parametrize("distribution", ["grpcio-health-checking", "grpcio-reflection", "tritonclient"])
def test_all_take_the_same_libraries(distribution: str) -> None:
    refused = [
        str(one)
        for one in requirements(distribution)
        if not one.specifier.contains(importlib.metadata.version(one.name), prereleases=True)
    ]

    assert refused == []
