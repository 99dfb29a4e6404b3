"""Random interleavings of sequences, with reloads, cancelled requests and evictions: each has its own state."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tritonclient.utils import InferenceServerException

from model_texts import parse
from stateful_models import COUNTER, DOUBLING
from tests.serving.conftest import Running, Starter, given
from tests.serving.sequences.conftest import add

MOST = 12
SEQUENCES = st.integers(1, 50)
VALUES = st.integers(0, 9)


class Interleaving(RuleBasedStateMachine):
    """Clients of one server, and what its sequences should hold.

    ``sums`` has what each may hold, more than one number behind a request that was cancelled; the one that was used
    longest ago stands first. ``factors`` has what the version of each multiplies its sum with.
    """

    running: Running
    path: pathlib.Path
    factor = 1

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[int, set[float]] = {}
        self.factors: dict[int, int] = {}

    @initialize()
    def forget(self) -> None:
        self.running.client.unload_model("counter")
        self.reload()

    @rule(identity=SEQUENCES, value=VALUES, ends=st.booleans())
    def begin(self, identity: int, value: int, ends: bool) -> None:
        if identity not in self.sums and len(self.sums) == MOST:
            self._forget(next(iter(self.sums)))
        self.factors[identity] = self.factor
        self.sums.pop(identity, None)
        self.sums[identity] = {value}

        assert add(self.running.client, value, identity, sequence_start=True, sequence_end=ends) == value
        if ends:
            self._forget(identity)

    @rule(identity=SEQUENCES, value=VALUES, ends=st.booleans())
    def go_on(self, identity: int, value: int, ends: bool) -> None:
        if identity not in self.sums:
            with pytest.raises(InferenceServerException, match=r"sequence \d+ of model 'counter'"):
                add(self.running.client, value, identity, sequence_end=ends)
            return
        expected = self._next(identity, value)
        self._use(identity)

        found = add(self.running.client, value, identity, sequence_end=ends)

        assert found in expected
        self.sums[identity] = {found}
        if ends:
            self._forget(identity)

    @rule(identity=SEQUENCES, value=VALUES)
    def cancel(self, identity: int, value: int) -> None:
        inputs = [given("x", np.array([[value]], np.float32))]
        self.running.client.async_infer("counter", inputs, lambda result, error: None, sequence_id=identity).cancel()
        if identity in self.sums:
            self.sums[identity] |= self._next(identity, value)
            found = add(self.running.client, 0, identity)  # also waits until the cancelled one is done with
            assert found in {self.factors[identity] * one for one in self.sums[identity]}
            self.sums[identity] = {found}
            self._use(identity)

    @rule()
    def reload(self) -> None:
        type(self).factor = 3 - self.factor
        onnx.save(parse(DOUBLING if self.factor == 2 else COUNTER), self.path.with_suffix(".next"))
        self.path.with_suffix(".next").replace(self.path)
        self.running.client.load_model("counter")

    def _next(self, identity: int, value: int) -> set[float]:
        return {self.factors[identity] * one + value for one in self.sums[identity]}

    def _use(self, identity: int) -> None:
        self.sums[identity] = self.sums.pop(identity)

    def _forget(self, identity: int) -> None:
        del self.sums[identity], self.factors[identity]


def test_sequences_keep_their_own_state_whatever_happens_around_them(start: Starter, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "counter.onnx"
    onnx.save(parse(COUNTER), path)
    models = f"- {{name: counter, path: {path}, engine: native, warmup: 0, state: auto, sequences: {{max: {MOST}}}}}\n"
    running = start(models, server="admin: {repository: true}")
    machine = type("Machine", (Interleaving,), {"running": running, "path": path})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=2, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
