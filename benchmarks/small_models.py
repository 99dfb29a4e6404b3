"""Thirty small models as servers have them: single nodes, chains of narrow layers, and some of wider ones."""

from __future__ import annotations

import itertools
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SINGLE = "Relu Sigmoid Tanh Exp Neg Abs Sqrt Floor Erf Softplus Sign Softmax".split()
"""Operators of the models of one node, in turn."""

LAYERS, NARROW, NARROW_STEP = range(5, 17), 32, 4
"""Layers of the chains, in turn; their width at first, and by how much each chain is wider than the one before."""

WIDE_LAYERS, WIDE = 8, range(256, 577, 64)
"""Layers of the wider chains, and their widths, in turn."""

KINDS = 5
"""Of five models in a row, two have one node, two are narrow chains and one is a wide one."""


def write_models(count: int, folder: pathlib.Path) -> list[pathlib.Path]:
    """Write models of all kinds into a folder."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(count):
        group, place = divmod(number, KINDS)
        if place < 2:
            model = _single(SINGLE[(2 * group + place) % len(SINGLE)])
        elif place < 4:
            turn = (2 * group + place - 2) % len(LAYERS)
            model = _chain(random, LAYERS[turn], NARROW + turn * NARROW_STEP)
        else:
            model = _chain(random, WIDE_LAYERS, WIDE[group % len(WIDE)])
        paths.append(folder / f"model_{number}.onnx")
        onnx.save(model, paths[-1])
    return paths


def _single(operator: str) -> onnx.ModelProto:
    return _model([helper.make_node(operator, ["x"], ["y"])], [], 64)


def _chain(random: np.random.Generator, layers: int, width: int) -> onnx.ModelProto:
    """Return a chain of so many matrix products, each with a Relu behind it."""
    nodes, weights = [], []
    names = ["x", *(f"layer_{number}" for number in range(layers - 1)), "y"]
    for before, after in itertools.pairwise(names):
        values = random.standard_normal((width, width), dtype=np.float32) / np.float32(width) ** np.float32(0.5)
        weights.append(numpy_helper.from_array(values, f"weight_{after}"))
        nodes.append(helper.make_node("MatMul", [before, f"weight_{after}"], [f"product_{after}"]))
        nodes.append(helper.make_node("Relu", [f"product_{after}"], [after]))
    return _model(nodes, weights, width)


def _model(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], width: int) -> onnx.ModelProto:
    values = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width]) for name in "xy")
    given, made = values
    graph = helper.make_graph(nodes, "small", [given], [made], weights)
    return onnx.ModelProto(ir_version=10, graph=graph, opset_import=[helper.make_opsetid("", 17)])
