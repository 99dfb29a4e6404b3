"""The scenario of a soak: reloads, warm-up, steady load, reloads and a stop, all under full load.

The first reloads are part of the warm-up, because the engine library starts threads with them and keeps them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import pathlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.shared_memory import SharedMemory

import grpc
import numpy as np

from benchmarks.soak.checks import Results, Stop
from benchmarks.soak.client_pool import ALL_CLIENTS, ANSWERED_CLIENTS, FUZZ_CLIENTS, ClientGroup, ClientPool
from benchmarks.soak.clients import ANSWER_S, ClientContext, in_memory, register
from benchmarks.soak.expected_answers import SUMS, CheckedRequest, soak_models
from benchmarks.soak.mutators import Mutator
from benchmarks.soak.outcomes import Outcome, Tally, outcome_of
from benchmarks.soak.process_stats import ProcessStats, StatsSampler, growth, growth_per_request, wait_until_settled
from benchmarks.soak.server import ServerProcess
from trtnode.bench.load.target import call
from trtnode.protos import (
    LogSettingsRequest,
    ModelInferRequest,
    RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest,
)

WARM_UP, STEADY = 0.25, 0.75
"""Shares of the time. Fuzzing and reloads may take longer."""

ALONE = 0.5
"""As long as this share of it, besides, the kinds of clients work one after the other, each alone."""
ALONE_SAMPLE_S = 0.1

BEFORE_STOP_S = 3.0
LOG_EVERY_REQUEST = LogSettingsRequest(settings={"log_verbose_level": LogSettingsRequest.SettingValue(uint32_param=1)})
REST_S = 3.0

WATCHED, ASKED_FOR = "layers", "image"
"""Models that are reloaded: one when its file changes, one at a client's request."""

WATCHED_EVERY = 5
"""Period of the reloads of the watched model, in reloads."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SoakPlan:
    """Options of a soak.

    Attributes:
        seconds: Length of warm-up and steady load together.
        mutated: Number of mutated requests.
        reloads: Number of reloads before the warm-up, and again after the steady load.
        seed: Of all choices.
    """

    seconds: float
    mutated: int
    reloads: int
    seed: int


def soak(plan: SoakPlan, folder: pathlib.Path, report_stage: Callable[[str], None]) -> Results:
    """Start a server, put it under load, and stop it.

    Args:
        plan: The options.
        folder: For models, cache and log.
        report_stage: Called with the name of each stage when it begins.

    Raises:
        RuntimeError: The server does not start.
    """
    models = soak_models(np.random.default_rng(plan.seed))
    checked_requests = [checked for model in models for checked in model.checked_requests()]
    with (
        ServerProcess(models, folder) as server,
        grpc.insecure_channel(server.address) as channel,
        _region(channel, checked_requests) as valid,
    ):
        context = ClientContext(
            address=server.address,
            http=server.http,
            channel=channel,
            folder=folder,
            models=models,
            checked_requests=checked_requests,
            rng=random.Random(plan.seed),
            mutator=Mutator(valid, plan.seed),
            numbers=iter(range(plan.mutated)),
        )
        return _Scenario(plan, server, context, report_stage).run()


class _Scenario:
    """The stages of one run, in order."""

    def __init__(
        self, plan: SoakPlan, server: ServerProcess, context: ClientContext, report_stage: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._server = server
        self._context = context
        self._report_stage = report_stage
        self._models = {model.name: model for model in context.models}
        self._tallies: dict[str, Tally] = {}

    def run(self) -> Results:
        everybody = (*ALL_CLIENTS, *FUZZ_CLIENTS)
        self._reload_all("first reloads", 1)
        with self._clients("warm-up", everybody):
            self._wait(self._plan.seconds * WARM_UP)
        warm = self._rest()
        with self._clients("steady load", everybody), StatsSampler(self._server.pid) as sampler:
            self._wait(self._plan.seconds * STEADY)
            while operator.length_hint(self._context.numbers) and self._server.alive:
                self._wait(1)
        steady = self._rest(warm)
        alone = {group.name: self._growth_of(group) for group in ALL_CLIENTS}
        self._reload_all("reloads", 1 + self._plan.reloads)
        reloaded = self._rest(warm)
        call(self._context.channel, "LogSettings", LOG_EVERY_REQUEST)
        with self._clients("stop", ANSWERED_CLIENTS, may_refuse=True) as pool:
            self._wait(BEFORE_STOP_S)
            code, seconds = self._server.stop()
        answered = sum(count for (_, status), count in pool.tally.counts.items() if status == "OK")
        return Results(
            tallies=self._tallies,
            samples=sampler.samples,
            growth=growth(sampler.samples),
            alone=alone,
            rests=(warm, steady, reloaded),
            reloads=self._plan.reloads,
            stop=Stop(
                code=code,
                seconds=seconds,
                lost=self._server.answered() - answered,
                complaints=self._server.complaints(),
            ),
        )

    def _growth_of(self, group: ClientGroup) -> float:
        """Return the bytes that a request of one kind adds to the server's memory, without clients of other kinds."""
        stage = f"{group.name} alone"
        with self._clients(stage, [group]), StatsSampler(self._server.pid, ALONE_SAMPLE_S) as sampler:
            self._wait(self._plan.seconds * ALONE / len(ALL_CLIENTS))
        return growth_per_request(sampler.samples, self._tallies[stage].counts.total())

    def _clients(self, stage: str, groups: Iterable[ClientGroup], *, may_refuse: bool = False) -> ClientPool:
        self._report_stage(stage)
        self._tallies[stage] = Tally(may_refuse=may_refuse)
        return ClientPool(groups, self._context, self._tallies[stage], f"{self._plan.seed}/{stage}")

    def _wait(self, seconds: float) -> None:
        """Wait while the clients work, or until the server has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._server.alive:
            time.sleep(0.1)

    def _rest(self, before: ProcessStats | None = None) -> ProcessStats:
        """Let the server rest without clients, and without the sequences that they have left; return its stats."""
        for rpc, request in (("Unload", RepositoryModelUnloadRequest), ("Load", RepositoryModelLoadRequest)):
            with contextlib.suppress(grpc.RpcError):  # it has ended, as its log says
                call(self._context.channel, f"RepositoryModel{rpc}", request(model_name=SUMS), ANSWER_S)
        time.sleep(REST_S)
        return wait_until_settled(self._server.pid, lambda now: before is None or now.descriptors <= before.descriptors)

    def _reload_all(self, stage: str, first: int) -> None:
        with self._clients(stage, ALL_CLIENTS) as pool:
            for turn in range(first, first + self._plan.reloads):
                pool.tally.add("reload", self._reload(turn))

    def _reload(self, turn: int) -> Outcome:
        """Install the next variant of a model, and wait until it answers."""
        watched = turn % WATCHED_EVERY == 0
        model, variant = (WATCHED, turn // WATCHED_EVERY) if watched else (ASKED_FOR, turn)
        self._models[model].put(self._context.folder, variant)
        try:
            if not watched:
                call(
                    self._context.channel, "RepositoryModelLoad", RepositoryModelLoadRequest(model_name=model), ANSWER_S
                )
            deadline = time.monotonic() + (ANSWER_S if watched else 0)
            while not self._answers(model, variant):
                if time.monotonic() > deadline:
                    return Outcome("not loaded", f"model {model!r} answers as before")
                time.sleep(0.05)
        except grpc.RpcError as error:
            return outcome_of(error.code(), error.details())
        return Outcome("OK")

    def _answers(self, model: str, variant: int) -> bool:
        checked = next(one for one in self._context.checked_requests if one.request.model_name == model)
        answer = checked.answers[variant % len(checked.answers)]
        response = call(self._context.channel, "ModelInfer", checked.request, ANSWER_S)
        return dataclasses.replace(checked, answers=(answer,)).accepts(response)


@contextlib.contextmanager
def _region(channel: grpc.Channel, checked_requests: Sequence[CheckedRequest]) -> Iterator[list[ModelInferRequest]]:
    """Yield valid requests of every kind, one of them with tensors in a registered region."""
    image = next(one.request for one in checked_requests if one.request.model_name == "image")
    size = len(image.raw_input_contents[0])
    memory = SharedMemory(create=True, size=2 * size)
    try:
        register(channel, "fuzzed", memory)
        yield [
            *(one.request for one in checked_requests if one.request.model_name != "image"),
            in_memory(image, "fuzzed", size),
            *_unusual_requests(checked_requests),
        ]
    finally:
        memory.close()
        memory.unlink()


def _unusual_requests(checked_requests: Sequence[CheckedRequest]) -> Iterator[ModelInferRequest]:
    """Yield a request with typed contents, and one with every parameter that the server understands."""
    batched = next(one.request for one in checked_requests if one.request.model_name == "layers")
    typed = ModelInferRequest(model_name=batched.model_name, model_version="1", inputs=batched.inputs, id="typed")
    typed.inputs[0].contents.fp32_contents.extend(np.frombuffer(batched.raw_input_contents[0], np.float32))
    yield typed
    all_parameters = ModelInferRequest(id="wishing")
    all_parameters.MergeFrom(batched)
    all_parameters.parameters["priority"].uint64_param = 1
    all_parameters.parameters["timeout"].int64_param = 10_000_000
    all_parameters.outputs.add(name="y").parameters["binary_data"].bool_param = True
    yield all_parameters
