"""Keeps what a compilation has found out about the nodes of a model, which only a build can tell, for ``explain``."""

from __future__ import annotations

import dataclasses
import json

from trtnode.engines.artifact.cache import engine_key, recall
from trtnode.engines.backends.build_environment import build_environment
from trtnode.engines.build.context import CompileContext
from trtnode.engines.tuning.tuner import demoted_as_json, read_demoted
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.cut.partition import Partition


def remember_outcome(context: CompileContext, before: Partition, after: Partition) -> None:
    """Record the nodes that a compilation has taken out of engines, unless the next one tries them again.

    Args:
        context: The compilation.
        before: Its first partition, before anything was built, measured or recalled.
        after: Its last.
    """
    if context.cache is not None:
        demoted = {n: v for n, v in after.labels.items() if not v.supported and before.labels[n].supported}
        lasting = {n: v for n, v in demoted.items() if v.code is not ReasonCode.CHECK_TIMED_OUT}
        context.cache.put_record(_key(context, before), demoted_as_json(lasting))


def recall_outcome(context: CompileContext, partition: Partition) -> dict[str, Verdict] | None:
    """Return the nodes that the last compilation of a model with the same options has taken out of engines.

    Args:
        context: The compilation. It is not carried out.
        partition: Its first partition.

    Returns:
        The reason for each; None where there was no such compilation here.
    """
    return recall(context.cache, _key(context, partition), read_demoted) if context.builds else None


def _key(context: CompileContext, partition: Partition) -> str:
    """Return the key of a compilation. Inputs to check with change no option: the last compilation knows best."""
    options = dataclasses.replace(
        context.options, engine=context.engine, check_inputs=None, threads=None, shares_cores=False
    )
    return engine_key(
        purpose="outcome",
        source=context.source.sha256,
        segments=json.dumps([[node.name for node in segment.nodes] for segment in partition.segments]),
        options=json.dumps(dataclasses.asdict(options), sort_keys=True, default=str),
        **build_environment(context.backend, options.build),
    )
