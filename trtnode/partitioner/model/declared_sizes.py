"""Compares what a file declares with what it holds, before anything of the declared size is allocated."""

from __future__ import annotations

import dataclasses
import graphlib
import math
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import onnx
import onnx_ir as ir

from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.model.protobuf_walk import Parts, nodes_within

MAX_DENSE_BYTES = 2**28
"""Limit of all sparse tensors of a file, made dense. Their declared size costs the file nothing."""

MAX_REQUEST_BYTES = 2**31
"""Limit of one input or output: a message of protobuf, and of gRPC, holds no more."""

MAX_EXPANDED_NODES = 250_000
"""Limit of the nodes of a model once its functions stand where they are called."""

MAX_EXPANDED_BYTES = 2**30
"""The same for the bytes of these nodes, which may hold tensors."""

MAX_RANK = 64
"""Limit of the dimensions of a tensor: NumPy's arrays have no more."""

MAX_INTERFACE = 10_000
"""Limit of the inputs, and of the outputs, of a model. No message names so many tensors."""

STRING_BYTES = 128
"""Memory of a string beside its text, as an object of Python and of an engine library."""

MAX_EMPTY_ELEMENTS = 2**40
"""Limit of the other dimensions of a tensor that has a dimension of zero; numpy counts them."""

EXPORT = "Export it again."

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def check_declared_sizes(path: pathlib.Path, proto: onnx.ModelProto, parts: Parts) -> None:
    """Refuse a model whose declarations its file doesn't back, or that grows without measure when it is read.

    Raises:
        ModelFileError: A tensor has other data than its dimensions say, or functions call each other without end, or
            something is too large. The message names the place.
    """
    for place, tensor in _tensors(parts):
        _check_length(path, place, tensor)
    _check_dense(path, parts)
    _check_interface(path, proto.graph)
    _check_functions(path, proto)


def size_bytes(data_type: int, dims: Iterable[int]) -> int:
    """Return the size of a tensor of numbers in a file; 0 for types without a fixed size."""
    return max(0, -(-math.prod(dims) * _bits(data_type) // 8))


def memory_bytes(data_type: int, dims: Iterable[int]) -> int:
    """Return the memory that a tensor takes, of strings without their text."""
    return max(0, math.prod(dims)) * STRING_BYTES if data_type == _T.STRING else size_bytes(data_type, dims)


def _bits(data_type: int) -> int:
    try:
        return ir.DataType(data_type).bitwidth
    except (TypeError, ValueError):
        return 0


def _tensors(parts: Parts) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield every tensor whose data should be inside the file, with its place."""
    for graph in parts.graphs:
        for tensor in graph.initializer:
            yield f"initializer {tensor.name!r}", tensor
        for sparse in graph.sparse_initializer:
            yield from _parts(f"sparse initializer {sparse.values.name!r}", sparse)
    for place, attribute in parts.attributes():
        for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
            yield place, tensor
        for sparse in _sparse_of(attribute):
            yield from _parts(place, sparse)


def _sparse_of(attribute: onnx.AttributeProto) -> Sequence[onnx.SparseTensorProto]:
    return (*([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []), *attribute.sparse_tensors)


def _parts(place: str, sparse: onnx.SparseTensorProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    yield f"values of {place}", sparse.values
    yield f"indices of {place}", sparse.indices


def _check_length(path: pathlib.Path, place: str, tensor: onnx.TensorProto) -> None:
    dims = tuple(tensor.dims)
    _check_rank(path, place, dims)
    if any(size < 0 for size in dims):
        raise ModelFileError(path, f"{place} has a negative dimension: {_shape(dims)}.", EXPORT)
    elements = math.prod(dims)
    if not elements and math.prod(size for size in dims if size) > MAX_EMPTY_ELEMENTS:
        raise ModelFileError(path, f"{place} has no elements, but the shape {_shape(dims)}.", EXPORT)
    if onnx.external_data_helper.uses_external_data(tensor):
        return  # compared with its file instead
    wanted, held, unit = _lengths(tensor, elements)
    if wanted != held:
        problem = f"{place} declares the shape {_shape(dims)}, which takes {wanted} {unit}, but holds {held}."
        raise ModelFileError(path, problem, EXPORT)


def _check_rank(path: pathlib.Path, place: str, dims: Sequence[object]) -> None:
    if len(dims) > MAX_RANK:
        raise ModelFileError(path, f"{place} has {len(dims)} dimensions; the most are {MAX_RANK}.", EXPORT)


def data_field(data_type: int) -> str:
    """Return the field of a tensor's elements where they are not raw."""
    return _STORAGE.get(data_type, _Storage("int32_data")).field


def _lengths(tensor: onnx.TensorProto, elements: int) -> tuple[int, int, str]:
    """Return the length of a tensor's data by its dimensions, the actual length, and the unit of both."""
    if tensor.HasField("raw_data"):
        bits = _bits(tensor.data_type)
        held = len(tensor.raw_data)
        return (-(-elements * bits // 8), held, "bytes") if bits else (held, held, "bytes")
    kind = _STORAGE.get(tensor.data_type, _Storage("int32_data"))
    return -(-elements * kind.entries // kind.elements), len(getattr(tensor, kind.field)), "values"


@dataclasses.dataclass(frozen=True, slots=True)
class _Storage:
    """The field of a type's data: so many of its entries hold so many elements."""

    field: str
    entries: int = 1
    elements: int = 1


_T = onnx.TensorProto
_STORAGE: dict[int, _Storage] = {
    _T.FLOAT: _Storage("float_data"),
    _T.COMPLEX64: _Storage("float_data", entries=2),
    _T.DOUBLE: _Storage("double_data"),
    _T.COMPLEX128: _Storage("double_data", entries=2),
    _T.INT64: _Storage("int64_data"),
    _T.UINT32: _Storage("uint64_data"),
    _T.UINT64: _Storage("uint64_data"),
    _T.STRING: _Storage("string_data"),
    **{
        int(dtype): _Storage("int32_data", elements=8 // dtype.bitwidth)
        for dtype in ir.DataType
        if dtype not in (ir.DataType.UNDEFINED, ir.DataType.STRING) and dtype.bitwidth < 8
    },
}
"""Types that are missing here are stored one element an entry of ``int32_data``."""


def _check_dense(path: pathlib.Path, parts: Parts) -> None:
    sparse = [tensor for graph in parts.graphs for tensor in graph.sparse_initializer]
    sparse += [tensor for _, attribute in parts.attributes() for tensor in _sparse_of(attribute)]
    total = 0
    for tensor in sparse:
        _check_rank(path, f"sparse tensor {tensor.values.name!r}", tensor.dims)
        total += memory_bytes(tensor.values.data_type, tensor.dims)
        if total > MAX_DENSE_BYTES or min(tensor.dims, default=0) < 0:
            problem = f"sparse tensor {tensor.values.name!r} of shape {_shape(tensor.dims)} is too large to make dense"
            limit = f"at most {MAX_DENSE_BYTES} bytes, for all of a model"
            raise ModelFileError(path, f"{problem} ({limit}).", "Store it as a dense tensor.")


def _check_interface(path: pathlib.Path, graph: onnx.GraphProto) -> None:
    held = {tensor.name for tensor in graph.initializer}
    free = [info for info in graph.input if info.name not in held]
    for side, infos in (("inputs", free), ("outputs", graph.output)):
        if len(infos) > MAX_INTERFACE:
            problem = f"the model has {len(infos)} {side}; the most are {MAX_INTERFACE}."
            raise ModelFileError(path, problem, "Join them to larger tensors.")
    for info in (*graph.input, *graph.output):
        kind = info.type.tensor_type
        _check_rank(path, repr(info.name), kind.shape.dim)
        sizes = [dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value") and dim.dim_value >= 0]
        dims = [size or 1 for size in sizes]  # nodes may compute with the other dimensions
        if memory_bytes(kind.elem_type, dims) > MAX_REQUEST_BYTES and info.name not in held:
            problem = f"{info.name!r} has the shape {_shape(sizes)}: no request or response can carry it"
            raise ModelFileError(path, f"{problem} (at most {MAX_REQUEST_BYTES} bytes).", "Correct its dimensions.")


def _check_functions(path: pathlib.Path, proto: onnx.ModelProto) -> None:
    """Count the nodes and bytes that functions expand to, without expanding them."""
    functions = {_key(f.domain, f.name, f.overload): f for f in proto.functions}
    if not functions:
        return
    calls = {key: _calls(f.node, functions) for key, f in functions.items()}
    nodes: dict[Key, int] = {}
    sizes: dict[Key, int] = {}
    for key in _in_order(path, calls):
        nodes[key] = _expanded(len(functions[key].node), calls[key], nodes, MAX_EXPANDED_NODES)
        sizes[key] = _expanded(functions[key].ByteSize(), calls[key], sizes, MAX_EXPANDED_BYTES)
    called = _calls(proto.graph.node, functions)
    for counts, limit, unit in ((nodes, MAX_EXPANDED_NODES, "nodes"), (sizes, MAX_EXPANDED_BYTES, "bytes")):
        if _expanded(0, called, counts, limit) > limit:
            largest = max(called, key=lambda key: called[key] * counts[key])
            problem = f"its functions expand to more than {limit} {unit}, most of them by calls of {largest[1]!r}."
            raise ModelFileError(path, problem, "Export it with fewer calls.")


def _expanded(own: int, calls: Counter[Key], counts: dict[Key, int], limit: int) -> int:
    """Return the count of a body with its calls, or just over the limit: towers of functions give endless digits."""
    return min(own + sum(number * counts[key] for key, number in calls.items()), limit + 1)


def _calls(nodes: Iterable[onnx.NodeProto], functions: dict[Key, onnx.FunctionProto]) -> Counter[Key]:
    keys = (_key(op.domain, op.op_type, op.overload) for op in nodes_within(nodes))
    return Counter(key for key in keys if key in functions)


def _in_order(path: pathlib.Path, calls: dict[Key, Counter[Key]]) -> list[Key]:
    """Return functions after those that they call."""
    try:
        return list(graphlib.TopologicalSorter(calls).static_order())
    except graphlib.CycleError as error:
        names = " > ".join(repr(key[1]) for key in reversed(error.args[1][:6]))
        problem = f"a function calls itself: {names}."
        raise ModelFileError(path, problem, "Functions of ONNX can't be recursive; use Loop.") from None


def _key(domain: str, name: str, overload: str) -> Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _shape(dims: Sequence[int]) -> str:
    sizes = [str(size) for size in dims]
    return f"[{', '.join(sizes if len(sizes) <= 8 else [*sizes[:8], '...'])}]"
