"""The seam through which a loaded model asks what earlier processes of this machine have learnt about its engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from trtnode.engines.artifact.envelope import Device, Envelope
from trtnode.engines.backends.protocols import Backend, Engine
from trtnode.partitioner.graph.view import Graph


class KnownEngines(Protocol):
    """Knowledge about engines of compiled files that were built elsewhere."""

    def device(self, backend: Backend) -> Device:
        """Return the device of this machine that a library's engines run on."""
        ...

    def compare(self, graph: Graph, engines: Mapping[str, Envelope]) -> Mapping[str, str]:
        """Compare engines that nobody has compared with native execution yet, unless that was done here before.

        Args:
            graph: Of the compiled model.
            engines: The envelopes, by segment name.

        Returns:
            A sentence for each engine that must not be used, by segment name.
        """
        ...

    def give_kernels(self, envelope: Envelope, engine: Engine) -> None:
        """Give an engine the kernels that were compiled for it here, before it runs."""
        ...

    def keep_kernels(self, envelope: Envelope, engine: Engine) -> None:
        """Keep the kernels that an engine has compiled."""
        ...
