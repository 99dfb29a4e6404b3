"""Clean-ups before labelling: inlining, constants, shape arithmetic, normalization, dead nodes, order, shapes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from trtnode.partitioner.graph.view import TRTNODE_DOMAIN, Graph
from trtnode.partitioner.model.garbage import without_collections
from trtnode.partitioner.model.new_values import NAMES, NewNames
from trtnode.partitioner.model.values import all_nodes, has_subgraphs, is_sorted, subgraphs
from trtnode.partitioner.passes.batch_norms import fold_as_onnxruntime_does
from trtnode.partitioner.passes.constant_folding import fold_constants
from trtnode.partitioner.passes.contrib_operators import replace_contrib_gelu, replace_fused_convolutions
from trtnode.partitioner.passes.inlining import inline_calls
from trtnode.partitioner.passes.shape_inference import infer_shapes

logger = logging.getLogger(__name__)

FIRST_IR_WITH_DEFAULTS = 4
"""Below IR version 4, every initializer was a graph input too, but not a default."""

MEAN_VARIANCE_AXES = (0, 2, 3)
"""Default axes of MeanVarianceNormalization (operator specification, opset 9 on)."""


def inline_functions(model: ir.Model) -> None:
    """Replace calls of model-local functions by the functions' nodes, if those mean the same in the model."""
    apart = functions_apart(model, {TRTNODE_DOMAIN})
    if len(apart) < len(model.functions):
        inline_calls(model, apart)
        _end_shadowing(model.graph, set())


def functions_apart(model: ir.Model, domains: Collection[str] = ()) -> set[ir.OperatorIdentifier]:
    """Return the functions of some domains, those that import other versions than the rest, and all that these call."""
    imports = dict(model.opset_imports)
    waiting = []
    for function in model.functions.values():
        if function.domain not in domains and all(imports.get(d, v) == v for d, v in function.opset_imports.items()):
            imports.update(function.opset_imports)
        else:
            waiting.append(function.identifier())
    apart: set[ir.OperatorIdentifier] = set()
    while waiting:
        key = waiting.pop()
        apart.add(key)
        called = {op.op_identifier() for op in model.functions[key].all_nodes()}
        waiting.extend((called & model.functions.keys()) - apart)
    return apart


def _end_shadowing(graph: ir.Graph, taken: set[str]) -> None:
    """Rename values of subgraphs that shadow outer values. ONNX forbids that, and inlining may cause it."""
    values = [*graph.inputs, *graph.initializers.values(), *(v for op in graph for v in op.outputs)]
    outer = [value for value in values if value.name in taken]
    own = {value.name for value in values if value.name} - taken
    taken |= own
    unused = NewNames(taken) if outer else None  # it copies all names, so not for each subgraph
    for value in outer:
        assert unused is not None
        assert value.name is not None
        value.name = unused(value.name)
        own.add(value.name)
        taken.add(value.name)
    for op in graph:
        for subgraph in subgraphs(op):
            _end_shadowing(subgraph, taken)
    taken -= own


def lift_constants(model: ir.Model) -> None:
    """Turn Constant nodes into initializers, and initializers of old IR versions into constants."""
    if model.ir_version < FIRST_IR_WITH_DEFAULTS:
        freeze_initializers(model)
        model.ir_version = FIRST_IR_WITH_DEFAULTS
    ops = itertools.chain(all_nodes(model.graph), *map(all_nodes, model.functions.values()))
    if any(op.op_type == "Constant" for op in ops):
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def freeze_initializers(model: ir.Model) -> None:
    """Turn initializers that a request may replace into constants: they are no graph inputs any more."""
    common.RemoveInitializersFromInputsPass()(model)


def remove_identities(model: ir.Model) -> None:
    """Remove Identity nodes, except those whose result is an output of the graph."""
    outputs = set(model.graph.outputs)
    for op in list(model.graph):
        if op.op_type != "Identity" or op.domain or len(op.inputs) != 1 or op.inputs[0] is None:
            continue
        source, result = op.inputs[0], op.outputs[0]
        if result in outputs:
            continue
        ir.convenience.replace_all_uses_with(result, source)
        model.graph.remove(op, safe=True)


def remove_dead_nodes(model: ir.Model) -> None:
    """Remove nodes and initializers that no output needs."""
    may_shrink = _remove_unread(model.graph)
    if model.functions or may_shrink:
        common.RemoveUnusedNodesPass()(model)


def _remove_unread(graph: ir.Graph) -> bool:
    """Remove what nobody reads at all, as folding leaves it; the pass of onnx_ir visits everything for that.

    Returns:
        Whether something of a node that is left may be unused.
    """
    may_shrink = False
    for op in reversed(graph):
        outputs = op.outputs
        unused = [value for value in outputs if not value.uses() and _is_unused(value)]
        if unused and len(unused) == len(outputs):
            graph.remove(op, safe=True)
        elif not may_shrink:
            may_shrink = bool(unused) or _may_have_unused_parts(op)
    for name in [name for name, value in graph.initializers.items() if _is_unused(value)]:
        del graph.initializers[name]
    return may_shrink


def _is_unused(value: ir.Value) -> bool:
    return not (value.uses() or value.is_graph_output() or value.is_graph_input())


def _may_have_unused_parts(op: ir.Node) -> bool:
    inputs = op.inputs
    return op.op_type == "BatchNormalization" or has_subgraphs(op) or (bool(inputs) and inputs[-1] is None)


def sort_nodes(model: ir.Model) -> None:
    """Sort nodes topologically."""
    if model.functions or not is_sorted(model.graph):
        common.TopologicalSortPass()(model)


def state_axes(model: ir.Model) -> None:
    """Write the default axes of MeanVarianceNormalization; types can't be inferred in a function without them."""
    for op in all_nodes(model.graph):
        if op.op_type == "MeanVarianceNormalization" and not op.domain and "axes" not in op.attributes:
            op.attributes["axes"] = ir.AttrInt64s("axes", MEAN_VARIANCE_AXES)


def fold_and_infer(model: ir.Model) -> None:
    """Fold shape arithmetic, and infer the shapes that follow from it, if any are unknown."""
    before = len(model.graph)
    fold_constants(model)
    if len(model.graph) < before and any(map(_varies, _results(model.graph))):
        infer_shapes(model)


def _varies(value: ir.Value) -> bool:
    return not isinstance(value.type, ir.TensorType) or value.shape is None or not value.shape.is_static()


def _results(graph: ir.Graph) -> Iterator[ir.Value]:
    return (value for op in all_nodes(graph) for value in op.outputs if value.name)


PASSES: tuple[Callable[[ir.Model], None], ...] = (
    inline_functions,
    sort_nodes,
    lift_constants,
    remove_identities,
    state_axes,
    infer_shapes,
    replace_fused_convolutions,
    replace_contrib_gelu,
    fold_and_infer,
    fold_as_onnxruntime_does,
    remove_dead_nodes,
)
"""The passes in order. Replacements and folding make more shapes known, so shapes are inferred again after them."""

OPERATORS: Mapping[Callable[[ir.Model], None], str] = {
    fold_as_onnxruntime_does: "BatchNormalization",
    remove_identities: "Identity",
    replace_contrib_gelu: "Gelu",
    replace_fused_convolutions: "FusedConv",
    state_axes: "MeanVarianceNormalization",
}
"""The one operator that a pass looks for. A graph without it is spared the walk."""

CHANGED_AT_FIRST = {"Constant", *map(OPERATORS.get, PASSES[: PASSES.index(infer_shapes)])}
"""Operators that are changed before shapes are inferred. A plain model in order has nothing else to change there."""


def clean_up(model: ir.Model) -> Graph:
    """Run every pass over a model, in place, and view the result.

    Returns:
        The cleaned graph. It has the same inputs and outputs, and computes the same values.
    """
    run_passes(model)
    return Graph.of(model)


@without_collections()
def run_passes(model: ir.Model, written: onnx.ModelProto | None = None) -> None:
    """Run every pass over a model, in place. It keeps its inputs and outputs, and computes the same values.

    Args:
        model: The model to change.
        written: The protobuf that ``load_with_protobuf`` has just read it from, if it gives one. It is used up.
    """
    model.graph.meta.pop(NAMES, None)
    ops = itertools.chain(all_nodes(model.graph), *map(all_nodes, model.functions.values()))
    held = {op.op_type for op in ops}
    passes: Sequence[Callable[[ir.Model], None]] = PASSES
    if written is not None and model.ir_version >= FIRST_IR_WITH_DEFAULTS and held.isdisjoint(CHANGED_AT_FIRST):
        infer_shapes(model, written=written)
        passes = PASSES[PASSES.index(infer_shapes) + 1 :]
    for run in passes:
        if OPERATORS.get(run) not in (None, *held):
            continue
        before = len(model.graph)
        run(model)
        logger.debug("%s: %d nodes before, %d after", run.__name__, before, len(model.graph))
