"""Fuzz clients, which send mutated requests."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import grpc

from benchmarks.soak.clients import ANSWER_S, STREAM_METHOD, ClientContext
from benchmarks.soak.outcomes import Outcome, is_message, outcome_of_mutated, outcome_of_mutated_stream
from trtnode.bench.load.target import INFER_METHOD

AT_ONCE = 16
"""Number of concurrent requests."""


def fuzz(context: ClientContext) -> Iterator[Outcome]:
    """Send mutated requests."""
    send = context.channel.unary_unary(INFER_METHOD)
    numbers = list(itertools.islice(context.numbers, AT_ONCE))
    bodies = [context.mutator.mutated(number) for number in numbers]
    futures = [send.future(body, timeout=ANSWER_S) for body in bodies]
    for number, body, future in zip(numbers, bodies, futures, strict=True):
        yield _with_number(outcome_of_mutated(body, future.code(), future.details() or ""), number)


def fuzz_stream(context: ClientContext) -> Iterator[Outcome]:
    """Send mutated requests on one stream; only the last one may be unreadable."""
    numbers = list(itertools.islice(context.numbers, AT_ONCE))
    bodies = [context.mutator.mutated(number) for number in numbers]
    readable = [body for body in bodies if is_message(body)]
    bodies = readable + [body for body in bodies if body not in readable][: context.rng.randrange(2)]
    answered, code = 0, grpc.StatusCode.OK
    try:
        for _ in context.channel.stream_stream(STREAM_METHOD)(iter(bodies), timeout=ANSWER_S):
            answered += 1
    except grpc.RpcError as error:
        code = error.code()
    if bodies:
        yield _with_number(outcome_of_mutated_stream(bodies, answered, code), numbers[0])


def _with_number(outcome: Outcome, number: int) -> Outcome:
    """Add the number of the request to a fault."""
    fault = outcome.fault and f"mutated request {number}: {outcome.fault}"
    return dataclasses.replace(outcome, fault=fault)
