"""Opens models that were compiled before, by another process or at an earlier start, and imports no compiler."""

from __future__ import annotations

import dataclasses
import pathlib

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.checksum import check_checksum
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.first_comparison import known_engines
from trtnode.engines.model_facts import ModelFacts
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.engines.runtime.options import SHARED, RunOptions
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import freeze_initializers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A model file prepared by one process for another one that opens it.

    Attributes:
        compiled: The compiled file; None where the model's own file is opened.
        use_engines: False if all nodes run natively.
        freeze: True if initializers that are inputs are constants.
        rewritten: True if all nodes run natively, and the compiled file holds some in other forms.
        memory_pattern: As of ``NativeSession``.
        facts: Those that the files don't say.
    """

    compiled: pathlib.Path | None
    use_engines: bool
    freeze: bool
    rewritten: bool
    memory_pattern: bool
    facts: ModelFacts


def open_prepared(
    path: pathlib.Path,
    prepared: PreparedModel,
    cache: EngineCache | None,
    run: RunOptions = SHARED,
) -> Executable:
    """Open a model that ``prepare_file`` has prepared, without compiling anything.

    Raises:
        PartitionError: The file has changed since, and is no model any more.
        ModelLoadError: ONNX Runtime refuses the model.
    """
    file = prepared.compiled or path
    model = load_model(file, check=check_checksum)
    if prepared.freeze:
        freeze_initializers(model)
    return open_executable(
        model,
        file if prepared.rewritten else path,
        folder=file.parent,
        use_engines=prepared.use_engines,
        run=dataclasses.replace(
            run,
            memory_pattern=prepared.memory_pattern,
            trust=None if prepared.compiled else (cache.trust if cache else Trust()),
            known=known_engines(path, cache),
        ),
        compiled=prepared.facts,
    )
