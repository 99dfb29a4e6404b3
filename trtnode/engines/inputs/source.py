"""The model to compile: its file, and its simplified graph."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pathlib
import types
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from trtnode.engines.artifact.files import sha256_of_file
from trtnode.engines.backends.shape_range import Profile
from trtnode.engines.errors import AlreadyCompiledError
from trtnode.engines.inputs.shape_profiles import check_profiles, mark_sizes
from trtnode.partitioner.compiled.trtnode import is_compiled
from trtnode.partitioner.graph.view import Graph, specs
from trtnode.partitioner.model.loading import load_model, load_with_protobuf
from trtnode.partitioner.passes.clean_up import freeze_initializers, run_passes
from trtnode.partitioner.passes.computed_sizes import check_computed_sizes
from trtnode.partitioner.passes.rewrites.apply import RewriteOptions, rewrite_model

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceModel:
    """The model to compile.

    Attributes:
        path: Its file.
        origin: The user's file, from which ``path`` may have been rewritten.
        runs_natively: True if ONNX Runtime runs it.
    """

    path: pathlib.Path
    origin: pathlib.Path
    runs_natively: bool = True

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of the user's file, without files of external data."""
        return sha256_of_file(self.origin)

    @property
    def key(self) -> str:
        """Part of the keys of what is known about it."""
        return self.sha256 if self.path == self.origin else f"{self.sha256} in its native form"


def cleaned(
    source: pathlib.Path,
    shapes: Sequence[Profile],
    *,
    freeze: bool = False,
    rewriting: RewriteOptions | None = None,
    sizes: Mapping[str, tuple[int, ...]] = types.MappingProxyType({}),
) -> Graph:
    """Load a model and simplify its graph.

    Args:
        source: The model.
        shapes: To build engines for.
        freeze: Make constants of initializers that are graph inputs.
        rewriting: The equal rewrites that it gets; None for none.
        sizes: Shapes of inputs that requests will have, by name; -1 for a size that the file decides.

    Raises:
        AlreadyCompiledError: It is a compiled model.
        InputShapesError: The shapes don't fit the model.
        PartitionError: It can't be loaded.
    """
    model, written = load_with_protobuf(source)
    check_computed_sizes(model, source, inline=True)
    if freeze:
        freeze_initializers(model)
    _narrow(model, sizes)
    check_profiles(specs(tuple(model.graph.inputs)), shapes)
    mark_sizes(model, shapes)
    try:
        run_passes(model, written)
        if rewriting is not None:
            rewrite_model(model, rewriting)
        graph = Graph.of(model)
    except Exception as error:  # onnx_ir and its passes let exceptions of any type out
        logger.warning("%s: it can't be simplified (%s), so its nodes stay as they are", source, error)
        graph = Graph.of(load_model(source))
    if is_compiled(graph.model):
        raise AlreadyCompiledError(source)
    return graph


def _narrow(model: ir.Model, sizes: Mapping[str, tuple[int, ...]]) -> None:
    """Fix in place the dimensions of inputs that the file leaves open and ``sizes`` doesn't."""
    for value in model.graph.inputs:
        wanted, found = sizes.get(value.name or ""), value.shape
        if wanted is not None and (found is None or len(found) == len(wanted)):
            known = [None] * len(wanted) if found is None else list(found)
            pairs = zip(wanted, known, strict=True)
            value.shape = ir.Shape([one if want < 0 or isinstance(one, int) else want for want, one in pairs])
