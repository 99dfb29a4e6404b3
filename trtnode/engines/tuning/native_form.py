"""The file that runs where no engine does: the source, or the source with the rewrites that pay natively."""

from __future__ import annotations

import dataclasses
import logging
import pathlib

from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.build.checker import sampled_model
from trtnode.engines.build.context import TIMEOUT_S, CompileContext
from trtnode.engines.build.file_check import check_compiled
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.source import cleaned
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.passes.rewrites.apply import Rewritten, rewrites_of, would_rewrite

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NativeForm:
    """The file that runs where no engine does.

    Attributes:
        path: The file.
        rewrites: Its difference from the source; none for the source itself.
    """

    path: pathlib.Path
    rewrites: tuple[Rewritten, ...] = ()


def native_form(context: CompileContext, graph: Graph) -> NativeForm:
    """Rewrite the source of a compilation for native execution, and compare its answers with the source's.

    Args:
        context: The compilation.
        graph: The cleaned model, rewritten for the engine.

    Returns:
        The source itself where nothing can be gained, or where the answers differ.
    """
    source, rewriting = context.source, context.rewriting_for(NATIVE)
    as_it_is = NativeForm(path=source.path)
    if not source.runs_natively or not (rewrites_of(graph.model.graph) or would_rewrite(graph.model.graph, rewriting)):
        return as_it_is
    graph = cleaned(source.path, (), freeze=context.options.partition.freeze_initializers, rewriting=rewriting)
    rewrites = rewrites_of(graph.model.graph)
    if not rewrites:
        return as_it_is
    path = context.folder / "native_form.onnx"
    try:
        write_temporary(embed_engines(graph, (), {}, outside=True), path, link=True)
        sampled = sampled_model(context, graph, source.path)
        problem = context.worker.call(check_compiled, TIMEOUT_S, path, sampled, engines=False)
    except (EngineError, PartitionError) as error:
        problem = str(error)
    if problem is not None:
        logger.warning("%s runs natively without rewrites: %s", source.origin, problem)
        return as_it_is
    return NativeForm(path=path, rewrites=rewrites)
