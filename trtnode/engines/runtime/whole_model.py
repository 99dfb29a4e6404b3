"""Opens whole models without engines: in ONNX Runtime, and in onnx.reference where that has no kernel."""

from __future__ import annotations

import functools
import logging
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import onnx

from trtnode.engines.artifact.compiled_model import has_native_fallback, listed_reference_nodes
from trtnode.engines.errors import BuildError, ModelLoadError, NoFallbackError, ReferenceNeededError
from trtnode.engines.inputs.samples import Runner
from trtnode.engines.onnxruntime.compatibility import open_native
from trtnode.engines.onnxruntime.subgraph_weights import move_weights_inside
from trtnode.engines.runtime.contexts import DynamicContext
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.runtime.plan import LoadedPlan
from trtnode.engines.runtime.plan_loading import load_plan, signature_of
from trtnode.engines.runtime.reference_nodes import LastResort, OpenReference, count_operators, find_reference_nodes
from trtnode.partitioner.compiled.stripping import strip_engines
from trtnode.partitioner.compiled.trtnode import is_trtnode
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.external_data import take_data_inside
from trtnode.partitioner.model.loading import read_proto, view_model
from trtnode.partitioner.model.regular_files import file_version
from trtnode.partitioner.model.values import subgraphs
from trtnode.partitioner.passes.clean_up import clean_up

logger = logging.getLogger(__name__)


class MixedSession:
    """A whole model whose nodes run in ONNX Runtime, and some in onnx.reference. Safe for concurrent runs.

    Attributes:
        outputs: Names of the outputs.
        reference_nodes: Operators of the nodes in onnx.reference.
    """

    def __init__(self, graph: Graph, resort: LastResort, *, threads: int | None = None) -> None:
        """Load a model.

        Args:
            graph: The model, without TrtNodes.
            resort: Nodes that run in onnx.reference.
            threads: Threads of each session; None leaves it to the library.

        Raises:
            ModelLoadError: ONNX Runtime refuses other nodes.
            BuildError: onnx.reference refuses a node.
        """
        signature = signature_of(graph)
        self.outputs = tuple(spec.name for spec in signature.outputs)
        self.reference_nodes: Collection[str] = tuple(resort.nodes.values())
        self._context = DynamicContext(load_plan(graph, signature, {}, threads=threads, resort=resort))

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run on checked inputs.

        Raises:
            ExecutionError: A stage failed.
        """
        results = self._context.run(feeds)
        return [results[name] for name in (self.outputs if outputs is None else outputs)]


def operators_in_reference(plan: LoadedPlan | None, native: Runner | None) -> list[str]:
    """Return the operators of the nodes that run in onnx.reference, in a plan or else natively."""
    if plan is not None:
        return [node.op_type for stage in plan.stages if stage.in_reference for node in stage.nodes]
    return list(native.reference_nodes) if isinstance(native, MixedSession) else []


def whole_opener(graph: Graph, native: pathlib.Path, run: RunOptions) -> Callable[[], Runner]:
    """Return a function that opens the whole model natively, as long as its file is the one that was loaded.

    Args:
        graph: The model that was loaded.
        native: A file that gives the same answers.
        run: Options of the model.
    """
    threads, reference = run.threads, run.reference
    loaded = _identity(native)
    has_subgraphs = any(True for node in graph.nodes for _ in subgraphs(node.op))
    has_fallback = has_native_fallback(graph.model)
    if not has_fallback:
        logger.warning("%s has no native fallback: a request that its engines can't answer fails", native)
    listed = listed_reference_nodes(graph.model)
    open_file = functools.partial(
        open_native,
        threads=threads,
        shares_cores=run.shares_cores,
        memory_pattern=run.memory_pattern,
        name=str(native),
    )
    mixed = graph if listed and not any(is_trtnode(node.op) for node in graph.nodes) else None

    def open_whole() -> Runner:
        if _identity(native) != loaded:
            raise ModelLoadError(str(native), "the file changed since it was loaded; load the model again")
        if not has_fallback:
            raise NoFallbackError(str(native))
        if listed and reference is None:
            raise ReferenceNeededError(str(native), count_operators(listed.values()))
        if mixed is not None:
            return _open_mixed(mixed, native, listed, reference, threads)
        source = _with_weights_inside(native) if has_subgraphs else native
        try:
            return open_file(source)
        except ModelLoadError as refusal:
            return open_refused(native, refusal, reference, threads=threads)

    return open_whole


def open_refused(
    file: pathlib.Path, refusal: ModelLoadError, reference: OpenReference | None, *, threads: int | None = None
) -> MixedSession:
    """Open a model that ONNX Runtime refuses in every form, with the nodes that it lacks in onnx.reference.

    Args:
        file: The model. Engines of a compiled one are left alone.
        refusal: ONNX Runtime's.
        reference: Opens nodes in onnx.reference; None lets none run there.
        threads: Threads of each session; None leaves it to the library.

    Raises:
        ReferenceNeededError: onnx.reference could run these nodes, and must not.
        WrongReferenceError: onnx.reference is known to compute one of them wrongly.
        ModelLoadError: ``refusal``, where onnx.reference is of no help.
    """
    try:
        graph = _without_engines(file)
        nodes = find_reference_nodes(graph, graph.nodes)
        if nodes:
            return _open_mixed(graph, file, nodes, reference, threads)
    except (BuildError, PartitionError) as error:
        logger.info("onnx.reference doesn't run what ONNX Runtime lacks: %s", error)
    raise refusal


def _without_engines(file: pathlib.Path) -> Graph:
    proto = read_proto(file)
    take_data_inside(file, protobuf_walk.tensors(proto))
    strip_engines(proto)
    return clean_up(view_model(proto, file))


def _open_mixed(
    graph: Graph, file: pathlib.Path, nodes: Mapping[str, str], reference: OpenReference | None, threads: int | None
) -> MixedSession:
    if reference is None:
        raise ReferenceNeededError(str(file), count_operators(nodes.values()))
    return MixedSession(graph, LastResort(nodes=nodes, open=reference), threads=threads)


def _identity(file: pathlib.Path) -> tuple[int, int, int] | None:
    """Return facts that change with a file's content; None if the file is gone."""
    try:
        return file_version(file)
    except OSError:
        return None


def _with_weights_inside(file: pathlib.Path) -> pathlib.Path | onnx.ModelProto:
    """Move the weights of a model's subgraphs into them; return the file itself where there are none to move."""
    model = read_proto(file)
    take_data_inside(file, protobuf_walk.tensors(model))
    return model if model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF and move_weights_inside(model) else file
