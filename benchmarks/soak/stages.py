"""The course of a soak: reloads, warm-up, steady load with attacks, reloads again and a stop, all under full load.

The first reloads are part of the warm-up: the engine library starts threads with them that stay, up to some number.
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

from benchmarks.load.target import call
from benchmarks.soak.checks import Results, Stop
from benchmarks.soak.clients import ANSWER_S, Site, in_memory, register
from benchmarks.soak.crowd import ATTACKS, EVERYBODY, WORK, Crowd, Part
from benchmarks.soak.mutations import Mutator
from benchmarks.soak.outcomes import Outcome, Tally, outcome_of
from benchmarks.soak.questions import Question, served_models
from benchmarks.soak.server import ServerProcess
from benchmarks.soak.vitals import Sampler, Vitals, growth, settled
from protos import LogSettingsRequest, ModelInferRequest, RepositoryModelLoadRequest

WARM_UP, STEADY = 0.25, 0.75
"""Shares of the time. Attacks and reloads take what they take beyond that."""

BEFORE_STOP_S = 3.0
LOG_EVERY_REQUEST = LogSettingsRequest(settings={"log_verbose_level": LogSettingsRequest.SettingValue(uint32_param=1)})
REST_S = 3.0

WATCHED, ASKED_FOR = "layers", "image"
"""Models that are loaded anew: one when its file changes, one when a client says so."""

WATCHED_EVERY = 5
"""One reload in so many is that of the watched one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to do.

    Attributes:
        seconds: Of warm-up and steady load together.
        mutated: Requests that no client should send.
        reloads: How often to load a model anew, before the warm-up and after the steady load.
        seed: Of all choices.
    """

    seconds: float
    mutated: int
    reloads: int
    seed: int


def soak(plan: Plan, folder: pathlib.Path, say: Callable[[str], None]) -> Results:
    """Start a server, put it under load, and stop it.

    Args:
        plan: How much to do.
        folder: Where models, cache and log go.
        say: Gets a line at the beginning of each stage.

    Raises:
        RuntimeError: The server does not start.
    """
    models = served_models(np.random.default_rng(plan.seed))
    questions = [question for model in models for question in model.questions()]
    with (
        ServerProcess(models, folder) as server,
        grpc.insecure_channel(server.address) as channel,
        _region(channel, questions) as valid,
    ):
        site = Site(
            address=server.address,
            http=server.http,
            channel=channel,
            folder=folder,
            models=models,
            questions=questions,
            rng=random.Random(plan.seed),
            mutator=Mutator(valid, plan.seed),
            numbers=iter(range(plan.mutated)),
        )
        return _Stages(plan, server, site, say).run()


class _Stages:
    """The stages of one run, in order."""

    def __init__(self, plan: Plan, server: ServerProcess, site: Site, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._server = server
        self._site = site
        self._say = say
        self._models = {model.name: model for model in site.models}
        self._tallies: dict[str, Tally] = {}

    def run(self) -> Results:
        everybody = (*EVERYBODY, *ATTACKS)
        self._reload_all("first reloads", 1)
        with self._crowd("warm-up", everybody):
            self._let_work(self._plan.seconds * WARM_UP)
        warm = self._rest()
        with self._crowd("steady load", everybody), Sampler(self._server.pid) as sampler:
            self._let_work(self._plan.seconds * STEADY)
            while operator.length_hint(self._site.numbers) and self._server.alive:
                self._let_work(1)
        steady = self._rest(warm)
        self._reload_all("reloads", 1 + self._plan.reloads)
        reloaded = self._rest(warm)
        call(self._site.channel, "LogSettings", LOG_EVERY_REQUEST)
        with self._crowd("stop", WORK, may_refuse=True) as crowd:
            self._let_work(BEFORE_STOP_S)
            code, seconds = self._server.stop()
        answered = sum(count for (_, status), count in crowd.tally.counts.items() if status == "OK")
        return Results(
            tallies=self._tallies,
            samples=sampler.samples,
            growth=growth(sampler.samples),
            rests=(warm, steady, reloaded),
            reloads=self._plan.reloads,
            stop=Stop(
                code=code,
                seconds=seconds,
                lost=self._server.answered() - answered,
                complaints=self._server.complaints(),
            ),
        )

    def _crowd(self, stage: str, parts: Iterable[Part], *, may_refuse: bool = False) -> Crowd:
        self._say(stage)
        self._tallies[stage] = Tally(may_refuse=may_refuse)
        return Crowd(parts, self._site, self._tallies[stage], f"{self._plan.seed}/{stage}")

    def _let_work(self, seconds: float) -> None:
        """Wait while the clients work, but for no server that is gone."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._server.alive:
            time.sleep(0.1)

    def _rest(self, before: Vitals | None = None) -> Vitals:
        """Let the server come to rest without clients, and look at it."""
        time.sleep(REST_S)
        return settled(self._server.pid, lambda now: before is None or now.descriptors <= before.descriptors)

    def _reload_all(self, stage: str, first: int) -> None:
        with self._crowd(stage, EVERYBODY) as crowd:
            for turn in range(first, first + self._plan.reloads):
                crowd.tally.add("reload", self._reload(turn))

    def _reload(self, turn: int) -> Outcome:
        """Put the next variant of a model in place, and see that it answers."""
        watched = turn % WATCHED_EVERY == 0
        model, variant = (WATCHED, turn // WATCHED_EVERY) if watched else (ASKED_FOR, turn)
        self._models[model].put(self._site.folder, variant)
        try:
            if not watched:
                call(self._site.channel, "RepositoryModelLoad", RepositoryModelLoadRequest(model_name=model), ANSWER_S)
            deadline = time.monotonic() + (ANSWER_S if watched else 0)
            while not self._answers(model, variant):
                if time.monotonic() > deadline:
                    return Outcome("not loaded", f"model {model!r} answers as before")
                time.sleep(0.05)
        except grpc.RpcError as error:
            return outcome_of(error.code(), error.details())
        return Outcome("OK")

    def _answers(self, model: str, variant: int) -> bool:
        question = next(one for one in self._site.questions if one.request.model_name == model)
        answer = question.answers[variant % len(question.answers)]
        response = call(self._site.channel, "ModelInfer", question.request, ANSWER_S)
        return dataclasses.replace(question, answers=(answer,)).accepts(response)


@contextlib.contextmanager
def _region(channel: grpc.Channel, questions: Sequence[Question]) -> Iterator[list[ModelInferRequest]]:
    """Valid requests of every kind, some of them with tensors in a region that is registered for them."""
    image = next(one.request for one in questions if one.request.model_name == "image")
    size = len(image.raw_input_contents[0])
    memory = SharedMemory(create=True, size=2 * size)
    try:
        register(channel, "attacked", memory)
        yield [
            *(one.request for one in questions if one.request.model_name != "image"),
            in_memory(image, "attacked", size),
            *_wishes(questions),
        ]
    finally:
        memory.close()
        memory.unlink()


def _wishes(questions: Sequence[Question]) -> Iterator[ModelInferRequest]:
    """Requests with typed contents, and with every parameter that the server understands."""
    batched = next(one.request for one in questions if one.request.model_name == "layers")
    typed = ModelInferRequest(model_name=batched.model_name, model_version="1", inputs=batched.inputs, id="typed")
    typed.inputs[0].contents.fp32_contents.extend(np.frombuffer(batched.raw_input_contents[0], np.float32))
    yield typed
    wishing = ModelInferRequest(id="wishing")
    wishing.MergeFrom(batched)
    wishing.parameters["priority"].uint64_param = 1
    wishing.parameters["timeout"].int64_param = 10_000_000
    wishing.outputs.add(name="y").parameters["binary_data"].bool_param = True
    yield wishing
