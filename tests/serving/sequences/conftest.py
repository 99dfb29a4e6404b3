"""Servers of models with state, and their clients."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton

from model_texts import parse
from stateful_models import COUNTER
from tests.serving.conftest import Running, Starter, given


def add(client: triton.InferenceServerClient, value: float, sequence: int | str, **options: object) -> float:
    """Have a counter add a number, and return its sum."""
    inputs = [given("x", np.array([[value]], np.float32))]
    result = client.infer("counter", inputs, sequence_id=sequence, **options)
    return float(result.as_numpy("sum")[0, 0])


@pytest.fixture(scope="package")
def counter(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("sequences") / "counter.onnx"
    onnx.save(parse(COUNTER), path)
    return path


@pytest.fixture(scope="package")
def counting(
    counter: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path
) -> Iterator[Running]:
    """One server of the counter, for tests that leave it as it is."""
    starter = Starter(tmp_path_factory.mktemp("counting"), warm_cache)
    yield starter(f"- {{name: counter, path: {counter}, engine: native, state: auto}}\n")
    starter.close()
