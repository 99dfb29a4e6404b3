"""The page that shows where the nodes of a served model run."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from typing import TYPE_CHECKING

from engines import EngineCache, EngineError
from partitioner import PartitionError, ReasonCode, Verdict
from partitioner.lazy_names import on_first_call
from serving.errors import UnavailableError, UnsupportedError
from serving.models.loader import compile_options
from serving.models.servable import Servable

if TYPE_CHECKING:
    from engines import partition_model
    from engines.sparse.survey import survey
    from serving.pages.explain_page import render_page
else:
    partition_model = on_first_call("engines.compile.partitioning:partition_model")
    survey = on_first_call("engines.sparse.survey:survey")
    render_page = on_first_call("serving.pages.explain_page:render_page")


class Explanations:
    """Pages about served models, each drawn once."""

    def __init__(self, cache: EngineCache) -> None:
        self._cache = cache
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
        options = compile_options(servable.config)
        try:
            partition, report = partition_model(servable.config.path, options, cache=self._cache)
        except (EngineError, PartitionError) as error:
            raise UnsupportedError(f"model {servable.name!r} can't be explained: {error}") from error
        served = servable.facts.get("report")
        if served is not None:
            refused = {entry["node"]: Verdict(ReasonCode(entry["code"]), entry["detail"]) for entry in served["native"]}
            partition = partition.demote(refused)
            report = dataclasses.replace(
                partition.report(model=report.model, engine=served["engine"]),
                tuning=served.get("tuning"),
                precision=served.get("precision"),
            )
        return render_page(partition, report, survey(partition.graph))
