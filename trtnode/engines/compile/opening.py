"""Opens a model to run it: its file as it is, or what a compilation for this machine has made of it."""

from __future__ import annotations

import dataclasses
import logging
import pathlib

import onnx_ir as ir

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.checksum import check_checksum
from trtnode.engines.artifact.compiled_model import REPORT, embedded_report
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.first_comparison import known_engines
from trtnode.engines.model_facts import ModelFacts
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.engines.runtime.options import ALONE, RunOptions
from trtnode.engines.tuning.memory_plan import keeps_memory_pattern
from trtnode.partitioner.compiled.trtnode import is_compiled
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import freeze_initializers
from trtnode.partitioner.passes.computed_sizes import check_computed_sizes

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """Result of ``prepare_model``, for any process that opens the model.

    Attributes:
        compiled: The compiled file; None where the model's own file is opened.
        facts: Those that the compilation has found; None where the file says them all.
        lasting: False where the machine lacked something, so that the next compilation may find more.
    """

    compiled: pathlib.Path | None = None
    facts: ModelFacts | None = None
    lasting: bool = True


AS_IT_IS = PreparedModel()
"""A model's own file."""


def open_model(
    path: pathlib.Path,
    cache: EngineCache | None = None,
    run: RunOptions = ALONE,
    *,
    use_engines: bool = True,
    prepared: PreparedModel = AS_IT_IS,
) -> Executable:
    """Open a model: engines for its TrtNodes, native execution for everything else. Nothing is compiled.

    Args:
        path: The model's own file. It is compiled, or any ONNX model.
        cache: Place of what is known here about engines; None keeps nothing.
        run: Options of the model. Where they name no trust, that of the cache holds. Nodes of engines that it refuses
            run natively, with a warning.
        use_engines: False runs every node natively.
        prepared: Result of a compilation of the file for this machine, whose engines may all run.

    Raises:
        PartitionError: The file is no model.
        ModelLoadError: ONNX Runtime refuses the model.
    """
    file = prepared.compiled or path
    model = load_checked(file) if prepared.facts is None else load_model(file, check=check_checksum)
    if run.frozen:
        freeze_initializers(model)
    facts = prepared.facts or _facts_in(model)
    trust = run.trust or (cache.trust if cache else Trust())
    return open_executable(
        model,
        path if is_compiled(model) else file,
        folder=file.parent,
        use_engines=use_engines,
        run=dataclasses.replace(
            run,
            memory_pattern=keeps_memory_pattern(facts.memory),
            trust=None if prepared.compiled else trust,
            known=known_engines(file, cache),
        ),
        compiled=facts,
    )


def load_checked(path: pathlib.Path) -> ir.Model:
    """Load a model that is whole, and whose constants ONNX Runtime may compute.

    Raises:
        PartitionError: It isn't.
    """
    model = load_model(path, check=check_checksum)
    check_computed_sizes(model, path)
    return model


def _facts_in(model: ir.Model) -> ModelFacts:
    """Return the facts that a compiled file holds; those of a damaged report are left out."""
    try:
        report = embedded_report(model)
    except ValueError as error:
        logger.warning("The report in the file (%s) is left out, as %s", REPORT, error)
        report = None
    return ModelFacts(report=report, memory=(report or {}).get("memory"))
