"""A pool of concurrent clients, and the groups of clients that a soak uses."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Iterable

import grpc

from benchmarks.soak import clients, fuzz_clients
from benchmarks.soak.clients import OWN_CONNECTION, ClientAction, ClientContext
from benchmarks.soak.outcomes import Outcome, Tally


@dataclasses.dataclass(frozen=True, slots=True)
class ClientGroup:
    """Clients of one kind.

    Attributes:
        name: In the table of results.
        client: The action that each client repeats.
        count: Number of clients.
        pause_s: Pause of each client between two actions.
    """

    name: str
    client: ClientAction
    count: int
    pause_s: float = 0.0


ANSWERED_CLIENTS = (
    ClientGroup("infer", clients.infer, 4),
    ClientGroup("stream", clients.stream, 2, 0.05),
    ClientGroup("shared memory", clients.share_memory, 1, 0.02),
)
"""Clients whose requests must all be answered until the server stops."""

ALL_CLIENTS = (
    *ANSWERED_CLIENTS,
    ClientGroup("deadline", clients.infer_with_deadline, 2, 0.01),
    ClientGroup("cancel", clients.cancel, 2, 0.01),
    ClientGroup("vanish", clients.disconnect, 1, 0.1),
    ClientGroup("mistake", clients.send_mistake, 1, 0.02),
    ClientGroup("inspect", clients.inspect, 1, 0.2),
    ClientGroup("scrape", clients.scrape, 1, 0.5),
    ClientGroup("embed", clients.embed, 2, 0.02),
    ClientGroup("sequence", clients.take_turns, 3, 0.02),
)

FUZZ_CLIENTS = (
    ClientGroup("mutated", fuzz_clients.fuzz, 2, 0.001),
    ClientGroup("mutated stream", fuzz_clients.fuzz_stream, 1, 0.001),
)


class ClientPool:
    """Clients that work while the context lasts, each in a thread with its own connection."""

    def __init__(self, groups: Iterable[ClientGroup], context: ClientContext, tally: Tally, seed: str) -> None:
        """Prepare the clients.

        Args:
            groups: The clients, by kind.
            context: Of each client, except that channels and random numbers are its own.
            tally: Counts the outcomes of their requests.
            seed: Of their choices.
        """
        self.tally = tally
        self._context = context
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(group, random.Random(f"{seed}/{group.name}/{number}")))
            for group in groups
            for number in range(group.count)
        ]

    def __enter__(self) -> ClientPool:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _work(self, group: ClientGroup, rng: random.Random) -> None:
        with grpc.insecure_channel(self._context.address, options=OWN_CONNECTION) as channel:
            context = dataclasses.replace(self._context, channel=channel, rng=rng)
            while not self._over.is_set():
                try:
                    for outcome in group.client(context):
                        self.tally.add(group.name, outcome)
                except Exception as error:  # a client that failed would silently reduce the load
                    self.tally.add(group.name, Outcome("client failed", repr(error)))
                self._over.wait(group.pause_s)
