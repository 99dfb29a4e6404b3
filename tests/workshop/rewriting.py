"""Small models for rewrites, what becomes of them, and the comparison of both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from model_texts import clean, parse
from plain_runtime import run
from trtnode.partitioner.passes.rewrites.apply import RewriteOptions, rewrite_model

SHAPE = (2, 8, 6, 10)

CONSTANTS = {
    "zero": 0.0, "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "sixth": 1 / 6, "epsilon": 1e-5,
}  # fmt: skip

CENTRED = "m = ReduceMean(x, last) d = Sub(x, m)"
AFFINE = "k = Mul(n, scale) y = Add(k, bias)"


def weights(name: str, *shape: int) -> onnx.TensorProto:
    rng = np.random.default_rng([len(name), *name.encode()])
    return onnx.numpy_helper.from_array((rng.random(shape) + 0.5).astype(np.float32), name)


def model_of(nodes: str, *, opset: int = 18, shape: Sequence[int | str] = SHAPE, outputs: str = "") -> onnx.ModelProto:
    """A model of nodes from x to y, with the constants that they read."""
    sizes = ",".join(map(str, shape))
    free = ",".join("?" * len(shape))
    model = parse(
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[{sizes}] x) => (float[{free}] y{outputs}) {{ {nodes} }}'
    )
    arrays = {name: np.array(number, np.float32) for name, number in CONSTANTS.items()}
    arrays |= {"last": np.array([-1]), "channel": np.array([1])}
    arrays |= {"ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32), "true": np.array(True)}
    tensors = {name: onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()}
    tensors |= {t.name: t for t in (weights("scale", 10), weights("bias", 10), weights("w", 8, 8, 1, 1))}
    tensors |= {t.name: t for t in (weights("cs", 8, 1, 1), weights("cb", 8, 1, 1), weights("w3", 8, 8, 3, 3))}
    tensors |= {f"{kind}8": weights(f"{kind}8", 8) for kind in "sbmv"}
    read = dict.fromkeys(name for node in model.graph.node for name in node.input)
    model.graph.initializer.extend(tensors[name] for name in read if name in tensors)
    return model


def rewritten(model: onnx.ModelProto, engine: str, **rewriting: object) -> tuple[onnx.ModelProto, list[str]]:
    """The model with all that its engine would get, and the rules."""
    graph = clean(model).model
    wanted = RewriteOptions(engine=engine, **rewriting)
    done = rewrite_model(graph, wanted)
    return ir.to_proto(graph), [one.rule for one in done]


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def assert_same(actual: onnx.ModelProto, expected: onnx.ModelProto, x: np.ndarray) -> None:
    for one, other in zip(run(actual, {"x": x}), run(expected, {"x": x}), strict=True):
        assert np.abs(one - other).max(initial=0) <= 1e-5 * np.abs(other).max(initial=0)
