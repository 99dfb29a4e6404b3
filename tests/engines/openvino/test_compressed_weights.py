"""Weights that come quantized stay so in engines of OpenVINO, in every form that its kernels read right."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from onnx import TensorProto, numpy_helper

from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.reference import ReferenceBackend, ReferenceSession
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.compile.opening import open_model
from trtnode.engines.openvino.labels import label
from trtnode.engines.openvino.library import ov
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from workshop import Workshop

COLUMNS = 24

TYPES = {
    "int8": (TensorProto.INT8, -128, 128),
    "uint8": (TensorProto.UINT8, 0, 256),
    "int4": (TensorProto.INT4, -8, 8),
    "uint4": (TensorProto.UINT4, 0, 16),
}

Part = tuple[list[onnx.NodeProto], list[onnx.TensorProto]]


def product(name: str, *, rows: int, block: int, bits: int, zeros: str = "", bias: bool = False, **more: Any) -> Part:
    """A MatMulNBits that reads ``x{rows}`` and gives ``name``."""
    rng, blocks = np.random.default_rng(rows), -(-rows // block)
    given: dict[str, np.ndarray] = {
        "b": rng.integers(0, 256, (COLUMNS, blocks, block * bits // 8), dtype=np.uint8),
        "s": rng.uniform(0.01, 0.02, COLUMNS * blocks).astype(np.float32),
    }
    if zeros == "packed":
        given["z"] = rng.integers(0, 256, COLUMNS * -(-blocks * bits // 8), dtype=np.uint8)
    elif zeros:
        given["z"] = rng.uniform(0, 2**bits, COLUMNS * blocks).astype(np.float32)
    if bias:
        given["bias"] = rng.normal(size=COLUMNS).astype(np.float32)
    if more.pop("order", False):
        given["order"] = (np.arange(rows) // block).astype(np.int32)
    names = [f"{name}_{part}" if part in given else "" for part in ("b", "s", "z", "order", "bias")]
    sizes = {"K": rows, "N": COLUMNS, "block_size": block, "bits": bits, **more}
    node = oh.make_node("MatMulNBits", [f"x{rows}", *names], [name], name, domain="com.microsoft", **sizes)
    return [node], [numpy_helper.from_array(array, f"{name}_{part}") for part, array in given.items()]


def dequantized(name: str, shape: Sequence[int], kind: str, axis: int | None, block: int = 0, *, zero: bool) -> Part:
    """A DequantizeLinear of a constant, with one scale, or one along an axis for each element or block."""
    element, low, high = TYPES[kind]
    rng, sizes = np.random.default_rng(0), [] if axis is None else [shape[axis]]
    if block and axis is not None:
        sizes = [-(-n // block) if at == axis else n for at, n in enumerate(shape)]
    weight = oh.make_tensor(f"{name}_q", element, shape, rng.integers(low, high, shape).ravel())
    scale = numpy_helper.from_array(np.asarray(rng.uniform(0.01, 0.02, sizes), np.float32), f"{name}_s")
    zeros = [oh.make_tensor(f"{name}_z", element, sizes, np.ravel(rng.integers(low, high, sizes)))] if zero else []
    attributes = {} if axis is None else {"axis": axis, **({"block_size": block} if block else {})}
    inputs = [weight.name, scale.name, *(z.name for z in zeros)]
    return [oh.make_node("DequantizeLinear", inputs, [name], name, **attributes)], [weight, scale, *zeros]


def model(parts: Sequence[Part], inputs: dict[str, list[Any]], outputs: dict[str, list[Any]]) -> onnx.ModelProto:
    nodes, constants = ([one for part in parts for one in part[place]] for place in (0, 1))
    declared = [[oh.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in d.items()] for d in (inputs, outputs)]
    opsets = [oh.make_opsetid("", 21), oh.make_opsetid("com.microsoft", 1)]
    graph = oh.make_graph(nodes, "g", *declared, constants)
    return oh.make_model(graph, opset_imports=opsets, ir_version=10)


def verdict(proto: onnx.ModelProto, workshop: Workshop, op_type: str) -> Verdict:
    graph: Graph = clean_up(load_model(workshop.write(proto)))
    return next(label(node) for node in graph.nodes if node.op_type == op_type)


PRODUCTS = [
    {"rows": rows, "block": block, "bits": bits, "zeros": zeros, "bias": bias}
    for rows, block, bits, zeros, bias in itertools.product(
        (64, 100), (16, 32, 128), (2, 4, 8), ("", "packed", "float"), (False, True)
    )
    if (bits, zeros) != (8, "float")  # which ONNX Runtime refuses
]


def test_products_of_all_sizes_are_what_onnxruntime_computes(
    workshop: Workshop, in_process: InProcessWorker, plain: RunPlainly, same: AssertSame
) -> None:
    parts = [product(f"y{n}", **form) for n, form in enumerate(PRODUCTS)]
    outputs = {f"y{n}": ["a", "b", COLUMNS] for n in range(len(parts))}
    source = workshop.write(model(parts, {"x64": ["a", "b", 64], "x100": ["a", "b", 100]}, outputs))

    compiled = workshop.compile(source, worker=in_process)

    assert not compiled.report.native
    rng = np.random.default_rng(1)
    feeds = {f"x{n}": rng.normal(size=(2, 3, n)).astype(np.float32) for n in (64, 100)}
    path = workshop.folder / "compiled.onnx"
    compiled.save(path)
    same(open_model(path).run(feeds), plain(source, feeds), tolerance=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_stay_compressed_in_the_engine(bits: int, workshop: Workshop) -> None:
    proto = model([product("y", rows=64, block=32, bits=bits)], {"x64": ["a", 64]}, {"y": ["a", COLUMNS]})

    engine = get_backend("openvino").build(workshop.write(proto), BuildOptions())

    loaded = ov.Core().import_model(engine, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    layers = [op.get_rt_info() for op in loaded.get_runtime_model().get_ordered_ops()]
    kinds = {info["outputPrecisions"].astype(str) for info in layers if info["layerType"].astype(str) == "Const"}
    assert f"u{bits}" in kinds


@pytest.mark.parametrize(
    ("form", "detail"),
    [
        ({"accuracy_level": 4}, "accuracy_level 4 lets ONNX Runtime multiply in 8 bits"),
        ({"order": True}, "OpenVINO has no g_idx"),
    ],
)
def test_products_that_differ_stay_native(form: dict[str, Any], detail: str, workshop: Workshop) -> None:
    part = product("y", rows=64, block=32, bits=4, **form)

    found = verdict(model([part], {"x64": ["a", 64]}, {"y": ["a", COLUMNS]}), workshop, "MatMulNBits")

    assert found.code == ReasonCode.UNSUPPORTED_ATTRIBUTE
    assert detail in found.detail


def test_product_whose_weight_is_computed_stays_native(workshop: Workshop) -> None:
    nodes, (weight, scale) = product("y", rows=64, block=32, bits=4)
    twice = oh.make_node("Max", ["given", weight.name], ["b"])
    nodes[0].input[1] = "b"
    proto = model([([twice, *nodes], [weight, scale])], {"x64": ["a", 64]}, {"y": ["a", COLUMNS]})
    proto.graph.input.append(oh.make_tensor_value_info("given", TensorProto.UINT8, [COLUMNS, 2, 16]))

    assert verdict(proto, workshop, "MatMulNBits").code == ReasonCode.UNSUPPORTED_INPUT


def test_other_backends_take_no_operator_of_onnxruntime(workshop: Workshop) -> None:
    proto = model([product("y", rows=64, block=32, bits=4)], {"x64": ["a", 64]}, {"y": ["a", COLUMNS]})
    (node,) = clean_up(load_model(workshop.write(proto))).nodes

    assert ReferenceBackend().label(node).code == ReasonCode.FOREIGN_DOMAIN


READ_RIGHT = {
    "MatMul by column": ("MatMul", {}, 1, 0),
    "MatMul by block of rows": ("MatMul", {}, 0, 16),
    "MatMul with one scale": ("MatMul", {}, None, 0),
    "Gemm by row": ("Gemm", {"transB": 1}, 0, 0),
    "Gemm by block of columns": ("Gemm", {"transB": 1}, 1, 16),
    "sum by column": ("Add", {}, 1, 0),
    "sum by block": ("Add", {}, 0, 16),
}
"""The reader of a square weight, its attributes, the axis of the scales and their block."""

READ_WRONG = {
    "MatMul by row": ("MatMul", {}, 0, 0),
    "MatMul by block of columns": ("MatMul", {}, 1, 16),
    "Gemm by column": ("Gemm", {"transB": 1}, 1, 0),
    "Gemm by block of rows": ("Gemm", {"transB": 1}, 0, 16),
}


def reading(name: str, form: tuple[str, dict[str, Any], int | None, int], kind: str, *, zero: bool) -> Part:
    op_type, attributes, axis, block = form
    nodes, constants = dequantized(f"{name}_w", [32, 32], kind, axis, block, zero=zero)
    return [*nodes, oh.make_node(op_type, ["x", f"{name}_w"], [name], name, **attributes)], constants


def test_dequantized_weights_are_what_the_specification_says(workshop: Workshop, in_process: InProcessWorker) -> None:
    forms = list(itertools.product(READ_RIGHT.values(), TYPES, (False, True)))
    parts = [reading(f"y{n}", form, kind, zero=zero) for n, (form, kind, zero) in enumerate(forms)]
    proto = model(parts, {"x": [32, 32]}, {f"y{n}": [32, 32] for n in range(len(parts))})

    compiled = workshop.compile(workshop.write(proto), worker=in_process)

    assert not compiled.report.native
    path = workshop.folder / "compiled.onnx"
    compiled.save(path)
    feeds = {"x": np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)}
    session = ReferenceSession(proto)
    for expected, actual in zip(session.run(feeds), open_model(path).run(feeds).values(), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("form", READ_WRONG.values(), ids=READ_WRONG)
def test_scales_along_another_axis_stay_native(
    form: tuple[str, dict[str, Any], int, int], turned: bool, workshop: Workshop
) -> None:
    op_type, attributes, axis, block = form
    nodes, constants = dequantized("w", [32, 32], "int4", 1 - axis if turned else axis, block, zero=False)
    if turned:
        nodes.append(oh.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    nodes.append(oh.make_node(op_type, ["x", nodes[-1].output[0]], ["y"], **attributes))

    found = verdict(model([(nodes, constants)], {"x": ["a", 32]}, {"y": ["a", 32]}), workshop, "DequantizeLinear")

    assert found.code == ReasonCode.UNSUPPORTED_ATTRIBUTE
    assert f"OpenVINO reads wrong scales along axis {axis if not attributes else 1 - axis}" in found.detail


@pytest.mark.parametrize(("axis", "taken"), [(0, True), (1, False)])
def test_table_is_read_by_scales_of_its_rows_alone(axis: int, taken: bool, workshop: Workshop) -> None:
    nodes, constants = dequantized("w", [32, 32], "int8", axis, zero=False)
    proto = model([(nodes, constants)], {}, {"y": ["a", 32]})
    proto.graph.node.append(oh.make_node("Gather", ["w", "at"], ["y"]))
    proto.graph.input.append(oh.make_tensor_value_info("at", TensorProto.INT64, ["a"]))

    assert verdict(proto, workshop, "DequantizeLinear").supported == taken


def test_block_that_is_cut_off_stays_native(workshop: Workshop) -> None:
    nodes, constants = dequantized("w", [40, 32], "int4", 0, 16, zero=False)
    nodes.append(oh.make_node("MatMul", ["x", "w"], ["y"]))

    found = verdict(model([(nodes, constants)], {"x": ["a", 40]}, {"y": ["a", 32]}), workshop, "DequantizeLinear")

    assert "cuts off" in found.detail


IN_BYTES = """q, s, z = DynamicQuantizeLinear(h) i = MatMulInteger(q, w, z) f = Cast<to = 1>(i) y = Mul(f, s)"""


@pytest.mark.parametrize(("width", "taken"), [(4, False), (40, True)])
def test_model_most_of_whose_weights_are_quantized_in_each_run_stays_whole(
    width: int, taken: bool, workshop: Workshop
) -> None:
    """Else it would be cut at each of their products."""
    source = workshop.write(f"""g (float[N,{width}] x) => (float[N,16] y)
        <float[{width},16] v = {{{", ".join(["1"] * width * 16)}}}, int8[16,16] w = {{{", ".join(["1"] * 256)}}}>
        {{ p = MatMul(x, v) h = Relu(p) {IN_BYTES} }}""")

    labels = {node.op_type: label(node) for node in clean_up(load_model(source)).nodes}

    assert labels["MatMulInteger"].code == ReasonCode.UNSUPPORTED_OP
    assert labels["Relu"].supported == taken
    if not taken:
        assert labels["Relu"].code == ReasonCode.NOT_FASTER
        assert "multiplies most weights of this model in 8 bits" in labels["Relu"].detail


def test_products_in_bytes_keep_a_model_whole(workshop: Workshop) -> None:
    nodes, constants = product("y", rows=64, block=32, bits=4, accuracy_level=4)
    nodes[0].input[0] = "h"
    nodes.insert(0, oh.make_node("Relu", ["x64"], ["h"]))

    found = verdict(model([(nodes, constants)], {"x64": ["a", 64]}, {"y": ["a", COLUMNS]}), workshop, "Relu")

    assert found.code == ReasonCode.NOT_FASTER
