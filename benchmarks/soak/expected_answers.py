"""The models of a soak, requests to them, and the expected answers from plain ONNX Runtime."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.soak.sentences import graph, sentences_of, tokenized, tokenizer
from trtnode.bench.server_process import inference_request
from trtnode.engines.onnxruntime.library import onnxruntime
from trtnode.protos import ModelInferRequest, ModelInferResponse
from trtnode.serving.protocol.wire_signature import BYTES, DATATYPES

REQUESTS_A_MODEL = 12
SUMS = "sums"
"""The model that keeps state."""
SIDE = 96
"""Side of the images of the model ``image`` in pixels."""

_NUMPY = {datatype.name: datatype.numpy for datatype in DATATYPES.values()}


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request with its expected answers.

    Attributes:
        request: The request, with raw inputs.
        answers: The outputs by name, for each variant of the model's file; raw contents of BYTES as uint8.
    """

    request: ModelInferRequest
    answers: tuple[Mapping[str, np.ndarray], ...]

    def accepts(self, response: ModelInferResponse) -> bool:
        """Return whether a response has all outputs of one of the answers."""
        return self.accepts_outputs(
            {
                output.name: as_array(output.datatype, tuple(output.shape), raw)
                for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
            }
        )

    def accepts_outputs(self, outputs: Mapping[str, np.ndarray]) -> bool:
        """Return whether outputs by name are those of one of the answers."""
        return any(_equal(outputs, answer) for answer in self.answers)


@dataclasses.dataclass(frozen=True, slots=True)
class SoakModel:
    """A model of the soak.

    Attributes:
        name: Its name on the server.
        settings: Its keys in servable.yaml beside name and path.
        variants: Contents of its file, used in turn.
        feeds: Inputs of the requests to it.
        sent: The same as clients send them; None where the server gives the model what comes.
        files: Contents of further files beside it, by name.
    """

    name: str
    settings: Mapping[str, object]
    variants: Sequence[onnx.ModelProto]
    feeds: Sequence[Mapping[str, np.ndarray]]
    sent: Sequence[Mapping[str, np.ndarray]] | None = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def file(self, folder: pathlib.Path) -> pathlib.Path:
        """Return the path of its file."""
        return folder / f"{self.name}.onnx"

    def put(self, folder: pathlib.Path, turn: int) -> None:
        """Replace the file by the variant of a turn, atomically."""
        for name, content in self.files.items():
            (folder / name).write_text(content, encoding="utf-8")
        unfinished = folder / f"{self.name}.unfinished"
        onnx.save(self.variants[turn % len(self.variants)], unfinished)
        unfinished.replace(self.file(folder))

    def checked_requests(self) -> list[CheckedRequest]:
        """Return its requests with their expected answers."""
        sessions = [onnxruntime.InferenceSession(variant.SerializeToString()) for variant in self.variants]
        return [
            CheckedRequest(inference_request(self.name, sent), tuple(_answer(session, feeds) for session in sessions))
            for sent, feeds in zip(self.sent or self.feeds, self.feeds, strict=True)
        ]


def soak_models(rng: np.random.Generator) -> list[SoakModel]:
    """Make the models and their inputs: engines with batching, images and sentences, native numbers and texts."""
    batching = {"max_batch_size": 8, "max_queue_delay_us": 500}
    rows = [int(size) for size in rng.integers(1, 4, REQUESTS_A_MODEL)]
    texts = [[str(number) * number, "", "é"] for number in range(REQUESTS_A_MODEL)]
    sentences = [sentences_of(rng, 1 + 3 * number) for number in range(REQUESTS_A_MODEL)]
    return [
        SoakModel(
            "layers",
            {"engine": "openvino", "watch": True, "batching": batching},
            [_layers(rng), _layers(rng)],
            [{"x": rng.standard_normal((n, 16), np.float32)} for n in rows],
        ),
        SoakModel(
            "image",
            {"engine": "openvino", "instances": 2},
            [_image(rng), _image(rng)],
            [{"x": rng.standard_normal((1, 1, SIDE, SIDE), np.float32)} for _ in rows],
        ),
        SoakModel(
            "numbers",
            {"engine": "native", "instances": 2},
            [_numbers()],
            [{"a": rng.integers(-9, 9, (n, 3)), "b": rng.integers(-9, 9, (n, 3))} for n in rows],
        ),
        SoakModel("texts", {"engine": "native"}, [_texts()], [{"x": np.array(row, object)} for row in texts]),
        SoakModel(
            "sentences",
            {
                "engine": "openvino",
                "lengths": "auto",
                "batching": {**batching, "max_batch_tokens": 128},
                "preprocess": [{"tokenize": {"file": "tokenizer.json"}}],
            },
            [graph(rng)],
            [tokenized(some) for some in sentences],
            sent=[{"text": np.array([" ".join(words) for words in some], object)} for some in sentences],
            files={"tokenizer.json": tokenizer()},
        ),
        SoakModel(SUMS, {"engine": "native", "state": "auto", "sequences": {"max": 24, "idle_s": 30}}, [_sums()], []),
    ]


def as_array(datatype: str, shape: tuple[int, ...], raw: bytes | memoryview) -> np.ndarray:
    """Return raw contents as an array; those of BYTES as uint8[N]."""
    if datatype == BYTES.name:
        return np.frombuffer(raw, np.uint8)
    return np.frombuffer(raw, _NUMPY[datatype]).reshape(shape)


def _answer(session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs by name, as in a response."""
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


def _sums() -> onnx.ModelProto:
    shape: tuple[Any, list[int | str]] = (TensorProto.INT64, ["n", 3])
    nodes = [helper.make_node("Add", ["x", "state"], ["stateN"]), helper.make_node("Identity", ["stateN"], ["sum"])]
    return _model(nodes, {"x": shape, "state": shape}, {"sum": shape, "stateN": shape}, {})


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
