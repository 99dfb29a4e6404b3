"""Clients that send what no client should send."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import grpc

from benchmarks.load.target import INFER_METHOD
from benchmarks.soak.clients import ANSWER_S, STREAM_METHOD, Site
from benchmarks.soak.outcomes import Outcome, is_message, outcome_of_mutated, outcome_of_mutated_stream

AT_ONCE = 16
"""Requests that are on their way at the same time."""


def attack(site: Site) -> Iterator[Outcome]:
    """Send mutated requests."""
    send = site.channel.unary_unary(INFER_METHOD)
    numbers = list(itertools.islice(site.numbers, AT_ONCE))
    bodies = [site.mutator.mutated(number) for number in numbers]
    futures = [send.future(body, timeout=ANSWER_S) for body in bodies]
    for number, body, future in zip(numbers, bodies, futures, strict=True):
        yield _numbered(outcome_of_mutated(body, future.code(), future.details() or ""), number)


def attack_stream(site: Site) -> Iterator[Outcome]:
    """Send mutated requests on one stream; at most one of them is no message, the last."""
    numbers = list(itertools.islice(site.numbers, AT_ONCE))
    bodies = [site.mutator.mutated(number) for number in numbers]
    readable = [body for body in bodies if is_message(body)]
    bodies = readable + [body for body in bodies if body not in readable][: site.rng.randrange(2)]
    answered, code = 0, grpc.StatusCode.OK
    try:
        for _ in site.channel.stream_stream(STREAM_METHOD)(iter(bodies), timeout=ANSWER_S):
            answered += 1
    except grpc.RpcError as error:
        code = error.code()
    if bodies:
        yield _numbered(outcome_of_mutated_stream(bodies, answered, code), numbers[0])


def _numbered(outcome: Outcome, number: int) -> Outcome:
    """Say in a fault which request of the sequence it was."""
    fault = outcome.fault and f"mutated request {number}: {outcome.fault}"
    return dataclasses.replace(outcome, fault=fault)
