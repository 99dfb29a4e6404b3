"""The channel between two processes of a server, here two ends in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing.connection import Pipe

import pytest

from trtnode.serving.errors import ModelLoadFailedError, ServingError, WorkerGoneError
from trtnode.serving.workers.channel import Channel

Connect = Callable[..., tuple[Channel, Channel]]


@pytest.fixture
def connect() -> Connect:
    """Return two ends that follow each other; the second has ``calls``."""

    def connect_ends(calls: dict) -> tuple[Channel, Channel]:
        near, far = Pipe()
        ends = Channel(near, {}), Channel(far, calls)
        for end in ends:
            threading.Thread(target=end.follow, daemon=True).start()
        return ends

    return connect_ends


def fail(error: Exception) -> None:
    raise error


def test_a_question_is_answered(connect: Connect) -> None:
    near, _ = connect({"double": lambda x: 2 * x})

    assert near.ask("double", 21).result(120) == 42


def test_slow_questions_do_not_keep_others_waiting(connect: Connect) -> None:
    gate = threading.Event()
    near, _ = connect({"wait": lambda: gate.wait(120), "quick": lambda: "done"})

    slow, quick = near.ask("wait"), near.ask("quick")

    assert quick.result(120) == "done"
    gate.set()
    assert slow.result(120)


def test_an_error_keeps_its_class_and_text(connect: Connect) -> None:
    near, _ = connect({"load": lambda: fail(ModelLoadFailedError({"m": "no file"}))})

    with pytest.raises(ModelLoadFailedError, match=r"^Model 'm' is required but didn't load: no file$") as caught:
        near.ask("load").result(120)

    assert caught.value.reasons == {"m": "no file"}


def test_an_unexpected_error_is_logged_and_told_as_such(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    near, _ = connect({"load": lambda: fail(ZeroDivisionError("x"))})

    with pytest.raises(ServingError, match=r"^unexpected ZeroDivisionError: x$"):
        near.ask("load").result(120)

    assert "load failed unexpectedly" in caplog.text


def test_notices_come_in_order(connect: Connect) -> None:
    told: list[int] = []
    near, _ = connect({"look": lambda: list(told), "note": told.append})

    for number in range(100):
        near.notify("note", number)

    assert near.ask("look").result(120) == list(range(100))


def test_questions_fail_when_the_other_end_is_gone() -> None:
    near, far = Pipe()
    channel = Channel(near, {})
    before = channel.ask("anything")
    far.close()

    assert channel.follow()

    channel.notify("nobody listens")
    for question in (before, channel.ask("anything")):
        with pytest.raises(WorkerGoneError):
            question.result(120)


def test_silence_is_noticed() -> None:
    near, _far = Pipe()

    assert not Channel(near, {}).follow(first_s=0.01)


def test_what_was_said_first_does_not_excuse_later_silence() -> None:
    near, far = Pipe()
    heard: list[str] = []
    Channel(far, {}).notify("beat", "once")

    assert not Channel(near, {"beat": heard.append}).follow(first_s=30, silence_s=0.01)

    assert heard == ["once"]
