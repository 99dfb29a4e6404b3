"""Engines of this package keep the contract that those of others have to keep."""

from __future__ import annotations

import pytest

from trtnode.engines.backends.contract import *  # noqa: F403  (its tests run here, on these engines)


@pytest.fixture(scope="session", params=["onnxruntime", "openvino", "reference", "sparse"])
def engine_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
