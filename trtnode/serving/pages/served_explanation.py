"""The page that shows where the nodes of a served model run."""

from __future__ import annotations

import dataclasses
import pathlib
import threading
import weakref
from collections.abc import Sequence

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.errors import EngineError
from trtnode.engines.model_facts import UNCOMPILED
from trtnode.engines.sparse.survey import survey
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.errors import PartitionError
from trtnode.serving.errors import UnavailableError, UnsupportedError
from trtnode.serving.models.servable import Servable
from trtnode.serving.pages.explain_page import render_page


class Explanations:
    """Pages about served models, each drawn once."""

    def __init__(self, cache: EngineCache, libraries: Sequence[pathlib.Path] = ()) -> None:
        """Draw nothing yet.

        Args:
            cache: Place where the answers of engine libraries are looked up and kept.
            libraries: Of custom operators that all models may use.
        """
        self._cache = cache
        self._libraries = libraries
        self._pages: weakref.WeakKeyDictionary[Servable, str] = weakref.WeakKeyDictionary()
        self._drawing = threading.Lock()

    def page(self, servable: Servable) -> str:
        """Return the page of a model version.

        Raises:
            UnavailableError: It isn't loaded yet.
            UnsupportedError: It was compiled before it was served, or its file can't be read any more.
        """
        if not servable.is_ready:
            raise UnavailableError(f"model {servable.name!r} is not ready ({servable.state})")
        with self._drawing:
            if servable not in self._pages:
                self._pages[servable] = self._draw(servable)
            return self._pages[servable]

    def _draw(self, servable: Servable) -> str:
        options, facts = servable.config.options, servable.facts or UNCOMPILED
        try:
            with custom_operators(self._libraries):
                file = facts.source or servable.config.path
                partition, report = partition_model(file, options, cache=self._cache)
        except (EngineError, PartitionError) as error:
            raise UnsupportedError(f"model {servable.name!r} can't be explained: {error}") from error
        served = facts.report
        if served is not None:
            refused = {entry["node"]: Verdict(ReasonCode(entry["code"]), entry["detail"]) for entry in served["native"]}
            partition = partition.demote(refused)
            report = dataclasses.replace(
                partition.report(model=report.model, engine=served["engine"]),
                tuning=served.get("tuning"),
                precision=served.get("precision"),
            )
        return render_page(partition, report, survey(partition.graph))
