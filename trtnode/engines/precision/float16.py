"""Converts a model to float16 or bfloat16 where that is safe, so that every operator works on one type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

from trtnode.partitioner.model.new_values import NewNames

HALF_TYPES: Mapping[str, int] = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
"""ONNX element types, by precision."""

NUMPY_TYPES: Mapping[str, np.dtype] = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}

LARGEST = 65504.0
"""Largest float16."""

FIRST_NUMBERED_CAST = 6

HEADROOM = 2.0
"""A value may become so many times as large as in the calibration."""

SMALLEST = 2.0**-14
"""The least normal float16: a tensor whose values are all below it loses its digits."""

EXACT_OPS = frozenset(
    "CumSum Exp GroupNormalization InstanceNormalization LayerNormalization LogSoftmax LpNormalization LpPool "
    "MeanVarianceNormalization Pow RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean "
    "ReduceProd ReduceSum ReduceSumSquare Softmax DequantizeLinear QuantizeLinear".split()
)
"""Operators that stay float32. Their sums or powers leave the range of float16 although inputs and results don't, or
they belong to a quantized operator."""

FLOAT32_KERNELS = frozenset(
    "AffineGrid ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceConstruct SequenceErase"
    " SequenceInsert SplitToSequence".split()
)
"""Operators that ONNX Runtime computes in float32, or fails to. Those of sequences stay so together."""

Ranges = Mapping[str, tuple[float, float]]


def to_half(
    model: onnx.ModelProto,
    precision: str,
    *,
    keep: Collection[str] = (),
    ranges: Ranges | None = None,
) -> onnx.ModelProto:
    """Convert a model's float32 operators.

    An operator is converted as a whole: all of its float32 inputs get the other type if the operator's schema allows
    it. A Cast stands between operators of different types, in front of its first reader. So the nodes stay in
    topological order, and no operator mixes types that its schema ties together.

    Args:
        model: Types of all values must be known or inferable.
        precision: ``fp16`` or ``bf16``.
        keep: First outputs of nodes that stay float32.
        ranges: Smallest and largest value of tensors. For float16, operators that touch a tensor outside of its range
            stay float32.

    Returns:
        A new model. Operators with subgraphs, of other domains, or without a float16 form stay as they are; before
        opset 6, whose Cast takes no number, all do.
    """
    if any(o.domain in ("", "ai.onnx") and o.version < FIRST_NUMBERED_CAST for o in model.opset_import):
        return model
    inferred = onnx.shape_inference.infer_shapes(model)
    return _Conversion(inferred, precision, keep, ranges or {}).run()


def holds_halves(model: onnx.ModelProto, precision: str) -> bool:
    """Return whether something in a model has the other type: a value, a weight, or the result of a Cast."""
    half, graph = HALF_TYPES[precision], model.graph
    casts = {a.i for node in graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to"}
    values = (value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info))
    return half in casts.union(values, (tensor.data_type for tensor in graph.initializer))


class _Conversion:
    """One conversion. A float32 value has up to two versions, the second of which gets a name of its own."""

    def __init__(self, model: onnx.ModelProto, precision: str, keep: Collection[str], ranges: Ranges) -> None:
        graph = model.graph
        self._model = model
        self._precision = precision
        self._keep = frozenset(keep)
        self._ranges = ranges if precision == "fp16" else {}
        self._opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
        self._weights = {t.name: t for t in graph.initializer}
        infos = {v.name: v for v in (*graph.input, *graph.output, *graph.value_info)}
        self._infos = infos
        self._floats = {n for n, v in infos.items() if v.type.tensor_type.elem_type == TensorProto.FLOAT}
        self._floats |= {n for n, t in self._weights.items() if t.data_type == TensorProto.FLOAT}
        self._dequantized = {o for node in graph.node if node.op_type == "DequantizeLinear" for o in node.output}
        names = (name for node in graph.node for name in (node.name, *node.output))
        self._new = NewNames([*infos, *self._weights, *names])
        self._names: dict[str, str] = {}
        self._present: set[tuple[str, bool]] = set()
        self._nodes: list[onnx.NodeProto] = []
        self._halves: list[onnx.TensorProto] = []

    def run(self) -> onnx.ModelProto:
        graph = self._model.graph
        self._present.update((v.name, False) for v in graph.input)
        self._present.update((name, False) for name in self._weights)
        for node in graph.node:
            self._add(node)
        for output in graph.output:
            if output.name in self._floats:
                self._version(output.name, half=False)
        return self._assembled()

    def _add(self, node: onnx.NodeProto) -> None:
        slots = self._half_slots(node)
        for name in captured_names([node]):
            if name in self._floats:
                self._version(name, half=False)
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        inputs, outputs = slots or (frozenset(), frozenset())
        copy.input[:] = [
            self._version(name, half=i in inputs) if name in self._floats else name for i, name in enumerate(node.input)
        ]
        copy.output[:] = [
            self._name(name, half=i in outputs) if name in self._floats else name for i, name in enumerate(node.output)
        ]
        self._present.update((name, i in outputs) for i, name in enumerate(node.output) if name in self._floats)
        self._nodes.append(copy)

    def _half_slots(self, node: onnx.NodeProto) -> tuple[frozenset[int], frozenset[int]] | None:
        """Positions of inputs and outputs that get the other type; None where the node stays as it is."""
        if (
            node.op_type in EXACT_OPS
            or lacks_half_kernel(node)
            or node.domain not in ("", "ai.onnx")
            or self._stays(node)
        ):
            return None
        schema = onnx.defs.get_schema(node.op_type, self._opset, "")
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        wanted = f"tensor({'float16' if self._precision == 'fp16' else 'bfloat16'})"
        inputs = _parameters(schema.inputs, node.input)
        tied = {kind for i, kind in inputs.items() if node.input[i] in self._floats and kind in allowed}
        if not tied or any(wanted not in allowed[kind] for kind in tied):
            return None
        outputs = _parameters(schema.outputs, node.output)
        made = {i: kind for i, kind in outputs.items() if node.output[i] in self._floats and kind in allowed}
        if not tied.issuperset(made.values()):
            return None  # an attribute, not an input, decides about the type of a result
        return frozenset(i for i, kind in inputs.items() if kind in tied), frozenset(made)

    def _stays(self, node: onnx.NodeProto) -> bool:
        touched = {name for name in (*node.input, *node.output) if name}
        return (
            any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute)
            or (bool(node.output) and node.output[0] in self._keep)
            or not self._dequantized.isdisjoint(node.input)
            or not touched.issubset(self._infos.keys() | self._weights.keys())
            or any(self._is_out_of_range(name) for name in touched & self._floats)
        )

    def _is_out_of_range(self, name: str) -> bool:
        if self._precision != "fp16":
            return False
        if name in self._weights:
            return not _fits(_largest(onnx.numpy_helper.to_array(self._weights[name])), LARGEST)
        low, high = self._ranges.get(name, (0.0, 0.0))
        return not _fits(max(abs(low), abs(high)), LARGEST / HEADROOM)

    def _name(self, name: str, *, half: bool) -> str:
        """Return the name of a version. That of float32 keeps the value's name."""
        if not half:
            return name
        if name not in self._names:
            self._names[name] = self._new(f"{name}__{self._precision}")
        return self._names[name]

    def _version(self, name: str, *, half: bool) -> str:
        """Return the name of a version, and add a missing one: as a weight in the other type, or behind a Cast."""
        found = self._name(name, half=half)
        if (name, half) in self._present:
            return found
        self._present.add((name, half))
        if name in self._weights:
            values = onnx.numpy_helper.to_array(self._weights[name]).astype(NUMPY_TYPES[self._precision])
            self._halves.append(onnx.numpy_helper.from_array(values, found))
        else:
            target = HALF_TYPES[self._precision] if half else TensorProto.FLOAT
            cast = onnx.helper.make_node(
                "Cast", [self._name(name, half=not half)], [found], name=self._new(f"{found}_cast"), to=target
            )
            self._nodes.append(cast)
        return found

    def _assembled(self) -> onnx.ModelProto:
        result = onnx.ModelProto()
        result.CopyFrom(self._model)
        graph = result.graph
        for field in ("node", "initializer", "value_info"):
            graph.ClearField(field)
        graph.node.extend(self._nodes)
        read = {*(i for n in self._nodes for i in n.input), *captured_names(self._nodes)}
        read |= {v.name for v in (*graph.input, *graph.output)}
        graph.initializer.extend(t for t in (*self._weights.values(), *self._halves) if t.name in read)
        graph.value_info.extend(v for v in self._model.graph.value_info if v.name not in self._floats)
        graph.value_info.extend(self._float_infos({v.name for v in (*graph.input, *graph.output)}))
        return result

    def _float_infos(self, declared: Collection[str]) -> Iterator[onnx.ValueInfoProto]:
        for name, half in sorted(self._present):
            found = self._name(name, half=half)
            if name in self._infos and found not in declared:
                info = onnx.ValueInfoProto()
                info.CopyFrom(self._infos[name])
                info.name = found
                if half:
                    info.type.tensor_type.elem_type = HALF_TYPES[self._precision]
                yield info


def lacks_half_kernel(node: onnx.NodeProto) -> bool:
    """Return whether ONNX Runtime computes a node of other types in float32 alone, or wrong in float16.

    Its float16 kernel of BatchNormalization in training writes into the statistics that it is given.
    """
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in FLOAT32_KERNELS:
        return True
    if node.op_type in ("ScatterElements", "ScatterND"):
        return bool(attributes.get("reduction", b"none") != b"none")
    return node.op_type == "BatchNormalization" and bool(attributes.get("training_mode", 0))


def _parameters(formal: Collection[onnx.defs.OpSchema.FormalParameter], actual: Iterable[str]) -> dict[int, str]:
    """The type parameter of each input or output that is there, by position; the last formal one may repeat."""
    kinds = [parameter.type_str for parameter in formal]
    return {i: kinds[min(i, len(kinds) - 1)] for i, name in enumerate(actual) if name}


def captured_names(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names that subgraphs read, some of which come from outside."""
    for node in nodes:
        for attribute in node.attribute:
            for subgraph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from (name for inner in subgraph.node for name in inner.input)
                yield from (output.name for output in subgraph.output)
                yield from captured_names(subgraph.node)


def _largest(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


def _fits(largest: float, limit: float) -> bool:
    return largest == 0 or SMALLEST <= largest <= limit
