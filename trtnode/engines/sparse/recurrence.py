"""Writes sparse operators in place of an LSTM or a GRU.

The products of all steps' inputs are one matrix product in front. The operator behind it runs the recurrence: in each
step, the product of the state, and the gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trtnode.engines.sparse import patches
from trtnode.engines.sparse.packing import best_block, pack
from trtnode.engines.sparse.tensors import floats_of, packed_tensors, sparse_node

GATES = {"LSTM": 4, "GRU": 3}

DEFAULTS = {"LSTM": (b"Sigmoid", b"Tanh", b"Tanh"), "GRU": (b"Sigmoid", b"Tanh")}
"""Activations of each direction; with others, a layer stays dense."""


def sparse_recurrence(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], *, patched: bool = False
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]] | None:
    """Return nodes and weights that replace a recurrent layer; None for other nodes, and where dense ones are faster.

    The state's weights decide: their product is computed step by step, and takes most of the time.

    Args:
        node: A node of the model.
        constants: Its weights are among these, by name.
        patched: Whether it reads one sequence, with instructions that are faster on patches.
    """
    if node.domain or node.op_type not in GATES or not _is_plain(node):
        return None
    weights, state_weights = (floats_of(constants.get(name)) for name in node.input[1:3])
    if weights is None or state_weights is None or weights.ndim != 3 or state_weights.ndim != 3:
        return None
    hidden = state_weights.shape[2]
    matrix = state_weights.reshape(-1, hidden)
    biases = _biases(node, constants, matrix.shape[0])
    block = best_block(matrix, whole=hidden)
    if block is None or biases is None:
        return None
    patched = patched and block == patches.BLOCK and patches.pays(matrix, hidden)
    product = f"{node.output[0] or node.name}/sparse/inputs"
    nodes, tensors = _product(node, product, weights.reshape(matrix.shape[0], -1), biases[0])
    bias = biases[1]
    if patched:
        matrix, bias = (patches.with_gates_side_by_side(rows, GATES[node.op_type], hidden) for rows in (matrix, bias))
    packed = patches.pack_patches(matrix) if patched else pack(matrix, block)
    state_tensors = packed_tensors(f"{product}/states", packed, bias)
    recurrence = sparse_node(
        f"Sparse{node.op_type}",
        [product, *(tensor.name for tensor in state_tensors), *node.input[5:7]],
        list(node.output),
        name=node.name,
        weights=packed,
        attributes={
            "reverse": int(_attributes(node).get("direction", b"forward") == b"reverse"),
            "linear_before_reset": _attributes(node).get("linear_before_reset", 0),
        },
    )
    return [*nodes, recurrence], [*tensors, *state_tensors]


def _product(
    node: onnx.NodeProto, product: str, matrix: np.ndarray, bias: np.ndarray
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Return the product of all steps' inputs: a sparse operator where it gains, else a dense one."""
    x = node.input[0]
    block = best_block(matrix)
    if block is not None:
        packed = pack(matrix, block)
        tensors = packed_tensors(product, packed, bias)
        names = [x, *(tensor.name for tensor in tensors)]
        return [sparse_node("SparseMatMul", names, [product], name=product, weights=packed, attributes={})], tensors
    weights, sums = f"{product}/weights", f"{product}/sums"
    tensors = [
        numpy_helper.from_array(np.ascontiguousarray(matrix.T), weights),
        numpy_helper.from_array(bias, f"{product}/bias"),
    ]
    multiply = helper.make_node("MatMul", [x, weights], [sums], name=sums)
    return [multiply, helper.make_node("Add", [sums, tensors[1].name], [product], name=product)], tensors


def _is_plain(node: onnx.NodeProto) -> bool:
    """Return whether the operator computes it: no lengths of sequences, peepholes, clips or other activations."""
    attributes = _attributes(node)
    given = [bool(name) for name in node.input]
    special = any(given[4:5]) or any(given[7:8])
    altered = "clip" in attributes or attributes.get("layout", 0) or attributes.get("input_forget", 0)
    direction = attributes.get("direction", b"forward")
    usual = DEFAULTS[node.op_type] * (2 if direction == b"bidirectional" else 1)
    return not special and not altered and tuple(attributes.get("activations", usual)) == usual


def _biases(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], rows: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the biases of the inputs' and of the states' product, ``float32[rows]``; None if they aren't constant."""
    name = node.input[3] if len(node.input) > 3 else ""
    if not name:
        return np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    bias = floats_of(constants.get(name))
    if bias is None or bias.size != 2 * rows:
        return None
    of_inputs, of_states = bias.reshape(bias.shape[0], 2, -1).swapaxes(0, 1).reshape(2, rows)
    return of_inputs, of_states


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def single_sequences(model: onnx.ModelProto) -> set[str]:
    """Return the inputs of recurrent layers that are known to be one sequence, ``[steps, 1, inputs]``."""
    read = {node.input[0] for node in model.graph.node if node.op_type in GATES}
    if not read:
        return set()
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.input, *graph.value_info)}
    return {name for name in read if shapes.get(name, [])[1:2] == [1]}
