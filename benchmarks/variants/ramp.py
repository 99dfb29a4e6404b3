"""Load that rises and falls, in steps, and the requests of a run with the variant that answered each."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence

import grpc

from trtnode.bench.load.arrivals import poisson_arrivals
from trtnode.bench.load.loops import OK, Done, MonotonicClock, Traffic, open_loop
from trtnode.bench.load.target import INFER_METHOD
from trtnode.protos import ModelInferRequest, ModelInferResponse

VARIANT = "trtnode_variant"


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A part of the load: requests a second, for some seconds."""

    rate: float
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A request: when it was due, in seconds from the start; its latency, and the variant that answered."""

    due_s: float
    latency_ms: float
    variant: str


def rising_and_falling(lowest: float, highest: float, steps: int, seconds: float) -> list[Step]:
    """Return load whose rate rises by equal factors, then falls at once and stays low for as long."""
    factor = (highest / lowest) ** (1 / (steps - 1))
    rising = [Step(lowest * factor**index, seconds) for index in range(steps)]
    return [*rising, Step(lowest, seconds * steps)]


def run_load(channel: grpc.Channel, request: ModelInferRequest, steps: Sequence[Step]) -> tuple[list[Answer], int]:
    """Send a request at each arrival, whatever the server does; return the answers, and how many were refused."""
    infer = channel.unary_unary(
        INFER_METHOD,
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelInferResponse.FromString,
    )

    def send(done: Done) -> None:
        call = infer.future(request)
        call.add_done_callback(lambda one: done(one.code().name, _variant_of(one)))

    clock = MonotonicClock(threading.Event().is_set)
    traffic = Traffic(send, clock)
    began = clock.now()
    open_loop(traffic, clock, (began + due for due in _arrivals(steps)))
    answered = [one for one in traffic.records if one.status == OK]
    answers = [Answer(one.intended - began, 1e3 * (one.answered - one.intended), one.message) for one in answered]
    return answers, len(traffic.records) - len(answers)


def _variant_of(call: grpc.Future) -> str:
    return str(call.result().parameters[VARIANT].string_param) if call.code() is grpc.StatusCode.OK else ""


def _arrivals(steps: Sequence[Step]) -> Iterator[float]:
    began = 0.0
    for seed, step in enumerate(steps):
        for due in poisson_arrivals(step.rate, seed):
            if due >= step.seconds:
                break
            yield began + due
        began += step.seconds
