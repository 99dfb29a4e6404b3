"""The models that are served, requests to them, and their right answers according to plain ONNX Runtime."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.grpc_client import inference_request
from protos import ModelInferRequest, ModelInferResponse
from serving.signature import BYTES, DATATYPES

REQUESTS_A_MODEL = 12
SIDE = 96
"""Pixels: the images of the model ``image`` have 36 KB."""

_NUMPY = {datatype.name: datatype.numpy for datatype in DATATYPES.values()}


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A request and what it may be answered with.

    Attributes:
        request: Its inputs are raw.
        answers: The outputs by name, from each of the files that may be in place; raw contents of BYTES as uint8.
    """

    request: ModelInferRequest
    answers: tuple[Mapping[str, np.ndarray], ...]

    def accepts(self, response: ModelInferResponse) -> bool:
        """Whether a response has the outputs of one of the answers, all of them from the same."""
        return self.accepts_outputs(
            {
                output.name: as_array(output.datatype, tuple(output.shape), raw)
                for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
            }
        )

    def accepts_outputs(self, outputs: Mapping[str, np.ndarray]) -> bool:
        """Whether outputs by name are those of one of the answers."""
        return any(_equal(outputs, answer) for answer in self.answers)


@dataclasses.dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the soak.

    Attributes:
        name: As served.
        settings: Its keys in servable.yaml beside name and path.
        variants: Contents of its file, which take turns.
        feeds: Inputs of the requests to it.
    """

    name: str
    settings: Mapping[str, object]
    variants: Sequence[onnx.ModelProto]
    feeds: Sequence[Mapping[str, np.ndarray]]

    def file(self, folder: pathlib.Path) -> pathlib.Path:
        """Return where its file is."""
        return folder / f"{self.name}.onnx"

    def put(self, folder: pathlib.Path, turn: int) -> None:
        """Put the variant whose turn it is in place, in one step."""
        unfinished = folder / f"{self.name}.unfinished"
        onnx.save(self.variants[turn % len(self.variants)], unfinished)
        unfinished.replace(self.file(folder))

    def questions(self) -> list[Question]:
        """Return its requests with their right answers."""
        sessions = [onnxruntime.InferenceSession(variant.SerializeToString()) for variant in self.variants]
        return [
            Question(inference_request(self.name, feeds), tuple(_answer(session, feeds) for session in sessions))
            for feeds in self.feeds
        ]


def served_models(rng: np.random.Generator) -> list[ServedModel]:
    """Make the models and their inputs: an engine with batching, an engine on images, native numbers, native texts."""
    batching = {"max_batch_size": 8, "max_queue_delay_us": 500}
    rows = [int(size) for size in rng.integers(1, 4, REQUESTS_A_MODEL)]
    texts = [[str(number) * number, "", "é"] for number in range(REQUESTS_A_MODEL)]
    return [
        ServedModel(
            "layers",
            {"engine": "openvino", "watch": True, "batching": batching},
            [_layers(rng), _layers(rng)],
            [{"x": rng.standard_normal((n, 16), np.float32)} for n in rows],
        ),
        ServedModel(
            "image",
            {"engine": "openvino", "instances": 2},
            [_image(rng), _image(rng)],
            [{"x": rng.standard_normal((1, 1, SIDE, SIDE), np.float32)} for _ in rows],
        ),
        ServedModel(
            "numbers",
            {"engine": "native", "instances": 2},
            [_numbers()],
            [{"a": rng.integers(-9, 9, (n, 3)), "b": rng.integers(-9, 9, (n, 3))} for n in rows],
        ),
        ServedModel("texts", {"engine": "native"}, [_texts()], [{"x": np.array(row, object)} for row in texts]),
    ]


def as_array(datatype: str, shape: tuple[int, ...], raw: bytes | memoryview) -> np.ndarray:
    """Return raw contents as an array; those of BYTES as uint8[N]."""
    if datatype == BYTES.name:
        return np.frombuffer(raw, np.uint8)
    return np.frombuffer(raw, _NUMPY[datatype]).reshape(shape)


def _answer(session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs by name, as a response would carry them."""
    names = [output.name for output in session.get_outputs()]
    return {name: _as_sent(array) for name, array in zip(names, session.run(None, dict(feeds)), strict=True)}


def _as_sent(array: np.ndarray) -> np.ndarray:
    if array.dtype != object:
        return array
    request = inference_request("", {"x": array})
    return np.frombuffer(request.raw_input_contents[0], np.uint8)


def _equal(outputs: Mapping[str, np.ndarray], answer: Mapping[str, np.ndarray]) -> bool:
    if outputs.keys() != answer.keys():
        return False
    pairs = [(outputs[name], answer[name]) for name in answer]
    return all(
        one.shape == other.shape and one.dtype == other.dtype and np.allclose(one, other, rtol=1e-3, atol=1e-4)
        for one, other in pairs
    )


def _layers(rng: np.random.Generator) -> onnx.ModelProto:
    weights = {"w": rng.standard_normal((16, 64), np.float32), "v": rng.standard_normal((64, 10), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["positive"]),
        helper.make_node("MatMul", ["positive", "v"], ["y"]),
    ]
    return _model(nodes, {"x": (TensorProto.FLOAT, ["n", 16])}, {"y": (TensorProto.FLOAT, ["n", 10])}, weights)


def _image(rng: np.random.Generator) -> onnx.ModelProto:
    weights = {"w": rng.standard_normal((1, 1, 3, 3), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["edges"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["edges"], ["y"]),
    ]
    shape = (TensorProto.FLOAT, [1, 1, SIDE, SIDE])
    return _model(nodes, {"x": shape}, {"y": shape}, weights)


def _numbers() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Shape", ["a"], ["size"])]
    shape: tuple[Any, list[int | str]] = (TensorProto.INT64, ["n", 3])
    return _model(nodes, {"a": shape, "b": shape}, {"sum": shape, "size": (TensorProto.INT64, [2])}, {})


def _texts() -> onnx.ModelProto:
    shape = (TensorProto.STRING, ["n"])
    return _model([helper.make_node("Identity", ["x"], ["y"])], {"x": shape}, {"y": shape}, {})


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    outputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    weights: Mapping[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "soak",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return onnx.ModelProto(ir_version=8, graph=graph, opset_import=[helper.make_opsetid("", 17)])
