"""Variants of one model: files of one interface that differ in quality and speed. One of them answers at a time."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.backends.stage_times import StageTime
from trtnode.partitioner.graph.view import TensorSpec, describe
from trtnode.serving.errors import InterfaceError
from trtnode.serving.executables.interface import Choice, Choose, Composite, Run, ServedExecutable
from trtnode.serving.executables.step_rule import StepRule
from trtnode.serving.executables.variant_timing import Latency

logger = logging.getLogger(__name__)

Measure = Callable[[Mapping[str, ServedExecutable], Mapping[str, np.ndarray], int], Mapping[str, Latency]]
"""Returns the latency of each variant by name, on inputs, at a number of executions at the same time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """One file of a model.

    Attributes:
        name: In responses, metrics and logs.
        quality: As configured; more is better.
        executable: Runs it.
    """

    name: str
    quality: float
    executable: ServedExecutable


class VariantSet(Composite):
    """Runs one of several variants, see ``ServedExecutable``. Thread-safe once it has settled.

    Attributes:
        variants: The best quality first.
    """

    def __init__(
        self,
        model: str,
        variants: Sequence[Variant],
        measure: Measure,
        *,
        target_ms: float,
        steps_down: bool,
    ) -> None:
        """Check that the variants have one interface.

        Args:
            model: Its name.
            variants: In any order; of one quality, the one that is named first is preferred.
            measure: Measures them.
            target_ms: The latency that the chosen variant holds, in milliseconds.
            steps_down: Whether faster ones answer while the target is missed.

        Raises:
            InterfaceError: An input or output differs between two variants.
        """
        self.variants = sorted(variants, key=lambda one: -one.quality)
        self._model = model
        self._target_ms = target_ms
        self._steps_down = steps_down
        self._active = self.variants[0]
        self._measure = measure
        self._measured: Mapping[str, Latency] = {}
        self._rule: StepRule | None = None
        self._ladder: Sequence[Variant] = self.variants
        self._instances = 1
        self._lock = threading.Lock()
        self.parts = [one.executable for one in self.variants]
        for other in self.variants[1:]:
            if problem := _difference(self.variants[0], other):
                raise InterfaceError(model, problem)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Those of every variant."""
        return self.variants[0].executable.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Those of every variant."""
        return self.variants[0].executable.outputs

    @property
    def description(self) -> dict[str, Any]:
        """Facts of the variant that answers now."""
        return self._active.executable.description

    @property
    def answering(self) -> str:
        """The name of the variant that answers now."""
        return self._active.name

    def settle(self, feeds: Mapping[str, np.ndarray], instances: int) -> None:
        """Measure each variant, and let the best that holds the target answer.

        Where none holds it, the fastest one answers; where none can be measured, the best. Variants that will never
        answer are freed.

        Args:
            feeds: Inputs to measure with.
            instances: Executions at the same time.
        """
        self._instances = instances
        if len(self.variants) > 1:
            executables = {one.name: one.executable for one in self.variants}
            self._measured = self._measure(executables, feeds, instances)
        self._active = self._first()
        self._ladder = self._faster_ones() if self._steps_down else [self._active]
        if len(self._ladder) > 1:
            self._rule = StepRule([self._measured[one.name].p95_ms for one in self._ladder], time.monotonic())
        logger.info("Model %r: variant %r answers; measured: %s", self._model, self._active.name, self._told())
        for one in self.variants:
            if one not in self._ladder:
                one.executable.close()
        self.parts = [one.executable for one in self._ladder]

    def chooser(self, open_run: Callable[[ServedExecutable], Run]) -> Choose:
        """Return the choice of each execution, given the call that runs a variant."""
        choices = {one.name: Choice(self._timed(open_run(one.executable)), one.name) for one in self._ladder}
        return lambda: choices[self._active.name]

    def observe(self, latency_ms: float) -> None:
        """Take the latency of a request into account; infinity stands for one that was refused for want of room."""
        if self._rule is None:
            return
        with self._lock:
            self._rule.observe(late=latency_ms > self._target_ms, now_s=time.monotonic())
            chosen = self._ladder[self._rule.level]
            before, self._active = self._active, chosen
        if chosen is not before:
            logger.info("Model %r: variant %r takes over from %r", self._model, chosen.name, before.name)

    def facts(self) -> list[dict[str, Any]]:
        """Return each variant with its figures, as JSON values, the best quality first."""
        return [
            {
                "name": one.name,
                "quality": one.quality,
                "answers": one is self._active,
                "standby": one is not self._active and one in self._ladder,
                "holds_target": self._holds(one),
                **(dataclasses.asdict(self._measured[one.name]) if self._measured else {}),
            }
            for one in self.variants
        ]

    def run(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Run the variant that answers now."""
        return self._active.executable.run(feeds, outputs, times)

    def run_checked(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, times: list[StageTime] | None = None
    ) -> dict[str, Any]:
        """Run the variant that answers now."""
        return self._active.executable.run_checked(feeds, outputs, times)

    def needs_native(self, feeds: Mapping[str, Any]) -> bool:
        """See ``ServedExecutable``."""
        return self._active.executable.needs_native(feeds)

    def _holds(self, variant: Variant) -> bool:
        return bool(self._measured) and self._measured[variant.name].p95_ms <= self._target_ms

    def _first(self) -> Variant:
        if not self._measured:
            return self.variants[0]
        held = [one for one in self.variants if self._holds(one)]
        if not held:
            logger.warning("Model %r: no variant holds %g ms; the fastest answers", self._model, self._target_ms)
        return held[0] if held else min(self.variants, key=lambda one: self._measured[one.name].p95_ms)

    def _faster_ones(self) -> list[Variant]:
        """Return the variant that answers, then each of less quality that is faster than all before it."""
        ladder = [self._active]
        for one in self.variants[self.variants.index(self._active) + 1 :] if self._measured else ():
            if self._measured[one.name].p95_ms < self._measured[ladder[-1].name].p95_ms:
                ladder.append(one)
        return ladder

    def _timed(self, run: Run) -> Run:
        """Return a run whose time counts as busy."""

        def run_timed(
            feeds: Mapping[str, np.ndarray], names: Sequence[str] | None, times: list[StageTime] | None
        ) -> Mapping[str, np.ndarray]:
            if self._rule is None:
                return run(feeds, names, times)
            began_s = time.monotonic()
            try:
                return run(feeds, names, times)
            finally:
                with self._lock:
                    self._rule.add_busy((time.monotonic() - began_s) / self._instances)

        return run_timed

    def _told(self) -> str:
        return ", ".join(f"{name} {one.p95_ms:.3g} ms" for name, one in self._measured.items()) or "none"


def _difference(one: Variant, other: Variant) -> str | None:
    """Return the first tensor that differs between two variants, in a sentence; None if all agree."""
    mine, theirs = _tensors(one), _tensors(other)
    for kind, name in {**mine, **theirs}:
        ours, found = mine.get((kind, name)), theirs.get((kind, name))
        if ours is None or found is None:
            has, lacks = (one, other) if found is None else (other, one)
            return f"{kind} {name!r} of variant {has.name!r} is missing in variant {lacks.name!r}"
        if _form(ours) != _form(found):
            return (
                f"{kind} {name!r} is {describe(ours)} in variant {one.name!r}, but {describe(found)} in variant "
                f"{other.name!r}"
            )
    return None


def _tensors(variant: Variant) -> dict[tuple[str, str], TensorSpec]:
    sides = (("input", variant.executable.inputs), ("output", variant.executable.outputs))
    return {(kind, spec.name): spec for kind, specs in sides for spec in specs}


def _form(spec: TensorSpec) -> object:
    """Return what clients see of a tensor: type, fixed sizes, and whether it may be left out."""
    shape = None if spec.shape is None else tuple(size if isinstance(size, int) else None for size in spec.shape)
    return spec.dtype, shape, spec.optional
