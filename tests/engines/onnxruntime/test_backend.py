"""ONNX Runtime in place of engines that can't run: it computes the models that they were built from."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from model_texts import parse
from trtnode.engines.artifact.envelope import Envelope, current_platform
from trtnode.engines.backends.plugins import engine_names
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.errors import EngineRejectedError
from trtnode.partitioner.graph.view import TensorSpec

MODEL = parse("g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Abs(x) }")
X = np.array([1, -2], np.float32)


@pytest.fixture
def envelope() -> Envelope:
    """The envelope of the model, whose outputs are bound in the other order."""
    backend = get_backend("onnxruntime")
    spec = TensorSpec(name="x", dtype=ir.DataType.FLOAT, shape=(2,))
    return Envelope(
        backend=backend.name,
        backend_version=backend.version(),
        platform=current_platform(),
        device=backend.device(),
        precision_asked="fp32",
        precision_effective="fp32",
        options={},
        inputs=(spec,),
        outputs=(dataclasses.replace(spec, name="z"), dataclasses.replace(spec, name="y")),
        engine_sha256="",
        segment_sha256="",
        builder_version="",
    )


def test_model_runs_as_an_engine_with_outputs_in_binding_order(envelope: Envelope) -> None:
    engine = get_backend("onnxruntime").load(MODEL.SerializeToString(), envelope)
    engine.bind([X], None)

    assert [result.tolist() for result in engine.run()] == [[1, 2], [-1, 2]]


def test_fork_writes_into_buffers_of_its_own(envelope: Envelope) -> None:
    fork = get_backend("onnxruntime").load(MODEL.SerializeToString(), envelope).fork()
    buffers = [np.empty(2, np.float32), np.empty(2, np.float32)]
    fork.bind([X], buffers)

    assert fork.run() is buffers
    assert [buffer.tolist() for buffer in buffers] == [[1, 2], [-1, 2]]


def test_what_onnx_runtime_refuses_is_no_engine(envelope: Envelope) -> None:
    model = parse("g (float x) => (float y) { y = No(x) }")

    with pytest.raises(EngineRejectedError, match="ONNX Runtime"):
        get_backend("onnxruntime").load(model.SerializeToString(), envelope)


def test_no_user_can_choose_it() -> None:
    assert "onnxruntime" not in engine_names()
