"""One request of a sequence: it begins with the state that the one before has left."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from trtnode.serving.errors import CancelledRequestError
from trtnode.serving.executables.stateful import StatefulExecutable
from trtnode.serving.sequences.table import Turn

Outcome = Mapping[str, Any] | BaseException


@dataclasses.dataclass(slots=True, eq=False)
class Step:
    """Runs a request when its turn has come.

    Attributes:
        turn: Its place.
        model: Of the sequence.
        feeds: Its inputs.
        then: Gets its outcome, once its state is kept.
        on_cancel: Returns False if its client has left.
    """

    turn: Turn
    model: StatefulExecutable
    feeds: Mapping[str, Any]
    then: Callable[[Outcome], None]
    on_cancel: Callable[[Callable[[], None]], bool]

    def submit(self, run: Callable[[Mapping[str, Any]], None]) -> None:
        """Have it run: ``run`` gets its inputs with the state among them, and ``end`` is to get the outcome."""
        self.turn.table.submit(self.turn, functools.partial(self._run, run))

    def end(self, outcome: Outcome) -> None:
        """Keep the state, and pass the outcome on; a request that has failed leaves the state of before.

        The next request begins after that, so that answers on a stream keep their order.
        """
        table, turn = self.turn.table, self.turn
        try:
            if not isinstance(outcome, BaseException):
                table.keep(turn, self.model.owned({name: outcome[name] for name in self.model.state_names}))
        except BaseException as error:
            outcome = error
        go_on = table.end(turn)
        try:
            self.then(outcome)
        finally:
            go_on()

    def _run(self, run: Callable[[Mapping[str, Any]], None]) -> None:
        try:
            turn, waits = self.turn, self.on_cancel(_nothing)
            del self.on_cancel  # it leads to the call, which leads here while the request waits for an instance
            if not waits:
                raise CancelledRequestError
            run(self.model.all_feeds(self.feeds, turn.table.state(turn), turn.mark))
        except BaseException as error:
            self.end(error)


def _nothing() -> None:
    """The client's leaving changes nothing once the request runs."""
