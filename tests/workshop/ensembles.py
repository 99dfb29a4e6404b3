"""Repositories of Triton with ensembles of small models, and what those answer step by step."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime

from trtnode.serving.cli.serve import SERVE
from trtnode.serving.config.command_line import config_from
from trtnode.serving.schema.server import ServableConfig

HEAD = '<ir_version: 8, opset_import: ["": {}]> g '
SCALE = "(uint8[n, 4] raw) => (float[n, 4] out) <float s = {255}> { c = Cast<to = 1>(raw) out = Div(c, s) }"
DENSE = """(float[N, 4] x) => (float[N, 4] y, float[N, 4] other)
    <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}> { y = MatMul(x, w) other = Neg(x) }"""
SOFTMAX = "(float[k, 4] logits) => (float[k, 4] scores) { scores = Softmax(logits) }"
JOIN = "(float[N, 4] a, float[N, 4] b) => (float[N, 4] sum) { sum = Add(a, b) }"
GRAPHS = {"scale": (13, SCALE), "dense": (18, DENSE), "softmax": (17, SOFTMAX), "join": (14, JOIN)}
"""The opset and the graph of each model."""

Steps = list[tuple[str, dict[str, str], dict[str, str]]]
"""The model of each step, the tensor of each of its inputs, and of its outputs that are used."""

IN, OUT = {"raw": "image"}, {"scores": "answer"}
ENSEMBLES: dict[str, Steps] = {
    "three": [
        ("scale", IN, {"out": "pixels"}),
        ("dense", {"x": "pixels"}, {"y": "logits"}),
        ("softmax", {"logits": "logits"}, OUT),
    ],
    "five": [
        ("softmax", {"logits": "d"}, OUT),
        ("dense", {"x": "c"}, {"y": "d"}),
        ("scale", IN, {"out": "a"}),
        ("dense", {"x": "b"}, {"y": "c"}),
        ("dense", {"x": "a"}, {"y": "b"}),
    ],
    "diamond": [
        ("scale", IN, {"out": "top"}),
        ("dense", {"x": "top"}, {"y": "left"}),
        ("softmax", {"logits": "top"}, {"scores": "right"}),
        ("join", {"a": "left", "b": "right"}, {"sum": "answer"}),
    ],
    "nested": [("three", {"image": "image"}, {"answer": "inner"}), ("dense", {"x": "inner"}, {"y": "answer"})],
}
PORTS = """
input [ { name: "image" data_type: TYPE_UINT8 dims: [ 4 ] } ]
output [ { name: "answer" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" } ]
"""
X = np.array([[1, 2, 3, 4], [250, 0, 7, 9]], np.uint8)


def entries(field: str, names: Mapping[str, str]) -> str:
    return "".join(f'\n      {field} {{ key: "{key}" value: "{value}" }}' for key, value in names.items())


def configured(steps: Steps, head: str = "max_batch_size: 8", ports: str = PORTS) -> str:
    written = (
        f'    {{ model_name: "{model}" model_version: -1{entries("input_map", ins)}{entries("output_map", outs)} }}'
        for model, ins, outs in steps
    )
    listed = ",\n".join(written)
    return f'platform: "ensemble"\n{head}{ports}ensemble_scheduling {{\n  step [\n{listed}\n  ]\n}}\n'


def write_model(folder: pathlib.Path, graph: str, opset: int, version: int = 1) -> None:
    (folder / str(version)).mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(HEAD.replace("{}", str(opset)) + graph), folder / str(version) / "model.onnx")


def write_ensemble(folder: pathlib.Path, text: str) -> None:
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(text)
    (folder / "labels.txt").write_text("red\ngreen\nblue\nwhite\n")


def written(repository: pathlib.Path, *names: str) -> pathlib.Path:
    """Write a repository of four models, and of the ensembles that are named, or all."""
    for name, (opset, graph) in GRAPHS.items():
        write_model(repository / name, graph, opset)
    for name in names or ENSEMBLES:
        write_ensemble(repository / name, configured(ENSEMBLES[name]))
    return repository


def one_by_one(steps: Steps, image: np.ndarray) -> np.ndarray:
    """Run the steps one after the other in ONNX Runtime."""
    tensors, waiting = {"image": image}, list(steps)
    while waiting:
        name, ins, outs = step = next(s for s in waiting if all(tensor in tensors for tensor in s[1].values()))
        waiting.remove(step)
        feeds = {key: tensors[tensor] for key, tensor in ins.items()}
        if name in ENSEMBLES:
            tensors[outs["answer"]] = one_by_one(ENSEMBLES[name], feeds["image"])
            continue
        opset, graph = GRAPHS[name]
        model = onnx.parser.parse_model(HEAD.replace("{}", str(opset)) + graph)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        results = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))
        tensors |= {tensor: results[key] for key, tensor in outs.items()}
    return tensors["answer"]


def read(repository: pathlib.Path, *flags: str) -> ServableConfig:
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)
    flags = ("--model-repository", str(repository), "--port", "0", "--http-port", "0", *flags)
    return config_from(parser.parse_args(flags))
