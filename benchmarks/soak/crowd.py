"""Many clients at work at the same time."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Iterable

import grpc

from benchmarks.soak import attacks, clients
from benchmarks.soak.clients import OWN_CONNECTION, Client, Site
from benchmarks.soak.outcomes import Outcome, Tally


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Clients of one kind.

    Attributes:
        name: In the table of results.
        client: What each does, again and again.
        count: How many there are.
        pause_s: How long each waits between two times.
    """

    name: str
    client: Client
    count: int
    pause_s: float = 0.0


WORK = (
    Part("infer", clients.ask, 4),
    Part("stream", clients.stream, 2, 0.05),
    Part("shared memory", clients.share_memory, 1, 0.02),
)
"""Clients whose requests must all be answered, right to the end."""

EVERYBODY = (
    *WORK,
    Part("deadline", clients.give_up, 2, 0.01),
    Part("cancel", clients.cancel, 2, 0.01),
    Part("vanish", clients.vanish, 1, 0.1),
    Part("mistake", clients.err, 1, 0.02),
    Part("inspect", clients.inspect, 1, 0.2),
    Part("scrape", clients.scrape, 1, 0.5),
)

ATTACKS = (Part("mutated", attacks.attack, 2, 0.001), Part("mutated stream", attacks.attack_stream, 1, 0.001))


class Crowd:
    """Clients, each in a thread with a connection of its own, at work while the context lasts."""

    def __init__(self, parts: Iterable[Part], site: Site, tally: Tally, seed: str) -> None:
        """Prepare them.

        Args:
            parts: Who takes part.
            site: What they work with; they get channels and random numbers of their own.
            tally: Counts what comes of their requests.
            seed: Of their choices.
        """
        self.tally = tally
        self._site = site
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(part, random.Random(f"{seed}/{part.name}/{number}")))
            for part in parts
            for number in range(part.count)
        ]

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _work(self, part: Part, rng: random.Random) -> None:
        with grpc.insecure_channel(self._site.address, options=OWN_CONNECTION) as channel:
            site = dataclasses.replace(self._site, channel=channel, rng=rng)
            while not self._over.is_set():
                try:
                    for outcome in part.client(site):
                        self.tally.add(part.name, outcome)
                except Exception as error:  # a client that fails must not leave the load too small unnoticed
                    self.tally.add(part.name, Outcome("client failed", repr(error)))
                self._over.wait(part.pause_s)
