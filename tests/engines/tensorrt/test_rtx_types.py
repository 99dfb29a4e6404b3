"""The types of each target: in docs/tensorrt.md, in our labels, and in what TensorRT for RTX really builds."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from model_texts import parse
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.names import TARGET_NAMES
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.errors import BuildError
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model

pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "tensorrt.md"
PORTABLE = "none"

INT8, FLOAT8, INT4, FLOAT4 = np.int8, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.float4_e2m1fn

CONV = "g (T[1,16,8,8] x) => (T[1,8,6,6] y) { y = Conv(x, w) }"
MATMUL = "g (T[2,64] x) => (T[2,8] y) { y = MatMul(x, w) }"
QDQ = "q = QuantizeLinear(x, a, az) e = DequantizeLinear(q, a, az) d = DequantizeLinear<axis = %d>(w, s, z)"
QDQ_MATMUL = f"g (T[2,64] x) => (T[2,8] y) {{ {QDQ % 1} y = MatMul(e, d) }}"
QDQ_CONV = f"g (T[1,16,8,8] x) => (T[1,8,6,6] y) {{ {QDQ % 0} y = Conv(e, d) }}"
BLOCKS = "g (T[2,64] x) => (T[2,8] y) { d = DequantizeLinear<axis = 0, block_size = 16>(w, s) y = MatMul(x, d) }"
ATTENTION = "g (T[1,2,16,32] q, T[1,2,16,32] k, T[1,2,16,32] v) => (T[1,2,16,32] y) { y = Attention(q, k, v) }"
LSTM = "g (T[2,1,8] x) => (T[2,1,1,4] y) { y = LSTM<hidden_size = 4>(x, w, r) }"


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(4).normal(size=shape).clip(-3, 3).astype(dtype)


def steps(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, 0.1, dtype)


def quantized(dtype: Any, *shape: int, floats: Any = np.float32) -> dict[str, np.ndarray]:
    """Weights in a quantized type with a scale for each of 8 channels, and a scale for the activation."""
    zeros = {"z": np.zeros(8, dtype), "az": np.zeros((), dtype)}
    return {"w": numbers(*shape, dtype=dtype), "s": steps(8, dtype=floats), "a": steps(dtype=floats), **zeros}


def blocks(dtype: Any, floats: Any = np.float32) -> dict[str, np.ndarray]:
    return {"w": numbers(64, 8, dtype=dtype), "s": steps(4, 8, dtype=floats)}


KINDS: Mapping[str, tuple[str, str, Mapping[str, np.ndarray]]] = {
    "float32: convolution": ("float", CONV, {"w": numbers(8, 16, 3, 3)}),
    "float32: matrix product": ("float", MATMUL, {"w": numbers(64, 8)}),
    "float32: LSTM, GRU, RNN": ("float", LSTM, {"w": numbers(1, 16, 8), "r": numbers(1, 16, 4)}),
    "float16": ("float16", MATMUL, {"w": numbers(64, 8, dtype=np.float16)}),
    "float16: Attention": ("float16", ATTENTION, {}),
    "bfloat16": ("bfloat16", MATMUL, {"w": numbers(64, 8, dtype=ml_dtypes.bfloat16)}),
    "int8: convolution in float32": ("float", QDQ_CONV, quantized(INT8, 8, 16, 3, 3)),
    "int8: matrix product in float32": ("float", QDQ_MATMUL, quantized(INT8, 64, 8)),
    "int8: matrix product in float16": ("float16", QDQ_MATMUL, quantized(INT8, 64, 8, floats=np.float16)),
    "fp8: convolution": ("float", QDQ_CONV, quantized(FLOAT8, 8, 16, 3, 3)),
    "fp8: matrix product": ("float", QDQ_MATMUL, quantized(FLOAT8, 64, 8)),
    "int4 weights": ("float", BLOCKS, blocks(INT4)),
    "fp4 weights": ("float16", BLOCKS, blocks(FLOAT4, np.float16)),
}  # fmt: skip
"""Element type, graph and constants, by the first column of the table."""


def model_of(kind: str) -> onnx.ModelProto:
    dtype, graph, constants = KINDS[kind]
    opset = 24 if "Attention" in kind else 23
    text = graph.replace("T[", f"{dtype}[")
    model = parse(text, opset=opset, ir_version=11)
    model.graph.initializer.extend(ir.to_proto(ir.tensor(a, name=n)) for n, a in constants.items())
    return onnx.shape_inference.infer_shapes(model)


def documented() -> dict[tuple[str, str], bool]:
    """The table: whether a kind is built for a target."""
    rows = [line.strip("|").split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    columns = next(row for row in cells if row[0] == "type")[1:]
    found = {row[0]: row[1:] for row in cells if row[0] in KINDS}
    return {(kind, c): cell == "yes" for kind, row in found.items() for c, cell in zip(columns, row, strict=True)}


def options(target: str) -> BuildOptions:
    return BuildOptions(tensorrt=TensorRtOptions(targets=() if target == PORTABLE else (target,)))


def refusals(kind: str, target: str) -> list[Verdict]:
    """Our verdicts on nodes of a kind that aren't taken for a target."""
    backend = get_backend("tensorrt-rtx")
    nodes = Graph.of(view_model(model_of(kind), pathlib.Path("model.onnx"))).nodes
    verdicts = [v for node in nodes for v in (backend.label(node), backend.check_targets(node, options(target)))]
    return [verdict for verdict in verdicts if not verdict.supported]


def is_built(kind: str, target: str, folder: pathlib.Path) -> bool:
    path = folder / "segment.onnx"
    onnx.save(model_of(kind), path)
    try:
        return len(get_backend("tensorrt-rtx").build(path, options(target))) > 1000
    except BuildError:
        return False


def test_table_has_every_kind_and_every_target() -> None:
    assert documented().keys() == {(kind, target) for kind in KINDS for target in (PORTABLE, *TARGET_NAMES)}


@pytest.mark.parametrize("target", TARGET_NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_library_builds_for_a_target_what_the_table_says_and_labels_allow(
    kind: str, target: str, tmp_path: pathlib.Path
) -> None:
    refused = refusals(kind, target)

    assert is_built(kind, target, tmp_path) == documented()[kind, target] == (not refused)
    assert all(verdict.code == ReasonCode.UNSUPPORTED_DTYPE and target in verdict.detail for verdict in refused)


@pytest.mark.parametrize("kind", KINDS)
def test_portable_engine_has_only_types_of_every_gpu_that_it_is_for(kind: str, tmp_path: pathlib.Path) -> None:
    covered = [target for target in TARGET_NAMES if target != "sm75"]

    assert is_built(kind, PORTABLE, tmp_path)  # a GPU without the type would refuse the engine
    assert (not refusals(kind, PORTABLE)) == documented()[kind, PORTABLE]
    assert documented()[kind, PORTABLE] == all(documented()[kind, target] for target in covered)


@pytest.mark.parametrize(
    ("graph", "taken"),
    [
        ('g (float[2,3] x, float[3,4] z) => (float[2,4] y) { y = Einsum<equation = "ij,jk->ik">(x, z) }', False),
        ('g (float[2,3] x) => (float[3,2] y) { y = Einsum<equation = "ij->ji">(x) }', True),
        ("g (float[1,2,4,4,4] x, float[2,2,3,3,3] w) => (float[1,2,2,2,2] y) { y = Conv(x, w) }", False),
        ("g (float[1,2,4,4] x, float[2,2,3,3] w) => (float[1,2,6,6] y) { y = ConvTranspose(x, w) }", True),
        ("g (float[2,3] x, float[3,4] z) => (float[2,4] y) { y = Gemm(x, z) }", False),
    ],
    ids=["product", "transposition", "volume", "image", "gemm"],
)
def test_float32_products_are_not_for_turing(graph: str, taken: bool, tmp_path: pathlib.Path) -> None:
    model = parse(graph)
    (node,) = Graph.of(view_model(model, pathlib.Path("model.onnx"))).nodes
    onnx.save(model, tmp_path / "segment.onnx")
    backend = get_backend("tensorrt-rtx")

    verdict = backend.check_targets(node, options("sm75"))

    assert verdict.supported == taken
    if not taken:
        assert verdict.detail == (
            f"It is a {node.op_type} in float32: sm75 can't compute that; sm80, sm86, sm89, sm120, sm121 can."
        )
        with pytest.raises(BuildError, match=r"Turing \(SM75\)"):
            backend.build(tmp_path / "segment.onnx", options("sm75"))
