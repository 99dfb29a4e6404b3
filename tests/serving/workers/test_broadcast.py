"""Requests about all workers, with workers that are played."""

from __future__ import annotations

import pathlib
import threading
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.serving.conftest import FakeExecutable
from trtnode.protos import (
    LogSettingsRequest,
    LogSettingsResponse,
    ModelStatistics,
    ModelStatisticsRequest,
    ModelStatisticsResponse,
    RepositoryIndexResponse,
    RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest,
    SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryUnregisterRequest,
)
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import InvalidRequestError, PartlyDoneError, ServingError, UnavailableError, WorkerGoneError
from trtnode.serving.rest.app import HttpApp
from trtnode.serving.rest.server import HttpServer
from trtnode.serving.security.authorization import ANYONE
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.host import ModelHost
from trtnode.serving.workers.broadcast import Broadcaster, Changes
from trtnode.serving.workers.merged_answers import combine_index, combine_statistics

LOAD = RepositoryModelLoadRequest(model_name="m").SerializeToString()


class Played:
    """A worker that answers what a test says, and its own channel."""

    def __init__(self, number: int, answer: bytes | ServingError = b"", joined: bool = True) -> None:
        self.number = self.pid = number
        self.joined = joined
        self.channel = self
        self.answer = answer
        self.asked: list[tuple] = []

    def ask(self, *question) -> Future:
        self.asked.append(question)
        future: Future = Future()
        if isinstance(self.answer, ServingError):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future


def test_a_change_is_made_by_all_workers_that_have_joined() -> None:
    workers = [Played(0), Played(1), Played(2, joined=False)]

    assert Broadcaster(lambda: workers).broadcast("RepositoryModelLoad", LOAD, ANYONE) == b""

    assert [worker.asked for worker in workers] == [[("apply", "RepositoryModelLoad", LOAD, ANYONE)]] * 2 + [[]]


def test_a_worker_that_joins_is_told_what_was_changed_before_it_opens_its_port() -> None:
    workers, newcomer = [Played(0), Played(1)], Played(1, joined=False)
    broadcaster = Broadcaster(lambda: workers)
    broadcaster.broadcast("RepositoryModelLoad", LOAD, ANYONE)

    broadcaster.join(newcomer)

    assert newcomer.asked == [("apply", "RepositoryModelLoad", LOAD, ANYONE), ("open",)]
    assert newcomer.joined


def test_a_worker_joins_though_it_can_not_repeat_a_change(caplog: pytest.LogCaptureFixture) -> None:
    workers, newcomer = [Played(0)], Played(1, UnavailableError("no room"), joined=False)
    broadcaster = Broadcaster(lambda: workers)
    broadcaster.broadcast("RepositoryModelLoad", LOAD, ANYONE)
    ask = newcomer.ask
    newcomer.ask = lambda name, *rest: ask(name, *rest) if name == "apply" else Played(1).ask(name)

    broadcaster.join(newcomer)

    assert newcomer.joined
    assert caplog.messages == ["Worker 1 goes on without an earlier RepositoryModelLoad: no room"]


def test_a_worker_that_joins_during_a_change_makes_it_too() -> None:
    workers = [Played(0), Played(1, joined=False)]
    ask = workers[0].ask

    def ask_while_the_other_joins(*question) -> Future:
        workers[1].joined = True
        return ask(*question)

    workers[0].ask = ask_while_the_other_joins

    Broadcaster(lambda: workers).broadcast("RepositoryModelLoad", LOAD, ANYONE)

    assert workers[1].asked == [("apply", "RepositoryModelLoad", LOAD, ANYONE)]


def test_a_change_that_some_workers_can_not_make_names_them() -> None:
    workers = [Played(0), Played(1, InvalidRequestError("no such file")), Played(2)]

    with pytest.raises(PartlyDoneError) as caught:
        Broadcaster(lambda: workers).broadcast("RepositoryModelLoad", LOAD, ANYONE)

    assert str(caught.value) == (
        "RepositoryModelLoad is done in workers 0 and 2, but not in worker 1: no such file. "
        "Send it again when that is mended"
    )


def test_what_all_workers_refuse_is_told_as_by_one() -> None:
    workers = [Played(number, InvalidRequestError("no such file")) for number in range(2)]

    with pytest.raises(InvalidRequestError, match=r"^no such file$"):
        Broadcaster(lambda: workers).broadcast("RepositoryModelLoad", LOAD, ANYONE)


def test_a_worker_that_ends_during_a_change_does_not_make_it_fail() -> None:
    workers = [Played(0, WorkerGoneError("gone")), Played(1, b"done")]

    assert Broadcaster(lambda: workers).broadcast("RepositoryModelLoad", LOAD, ANYONE) == b"done"


@pytest.mark.parametrize("workers", [[], [Played(0, WorkerGoneError("gone"))]], ids=["none", "gone"])
@pytest.mark.parametrize("rpc", ["RepositoryModelLoad", "ModelStatistics"])
def test_without_a_worker_the_server_is_unavailable(rpc: str, workers: list[Played]) -> None:
    with pytest.raises(UnavailableError, match="no worker process of the server answers; try later"):
        Broadcaster(lambda: workers).broadcast(rpc, b"", ANYONE)


def test_an_answer_about_all_leaves_out_a_worker_that_ends() -> None:
    counted = ModelStatisticsResponse(model_stats=[ModelStatistics(name="m", version="1", inference_count=3)])
    workers = [Played(0, WorkerGoneError("gone")), Played(1, counted.SerializeToString())]

    request = ModelStatisticsRequest().SerializeToString()
    answer = Broadcaster(lambda: workers).broadcast("ModelStatistics", request, ANYONE)

    assert ModelStatisticsResponse.FromString(answer) == counted


def statistics(last: int, rows: int, durations: int, batches: dict[int, int]) -> ModelStatisticsResponse:
    one = ModelStatistics(name="m", version="1", last_inference=last, inference_count=rows, execution_count=rows)
    one.inference_stats.success.count, one.inference_stats.success.ns = rows, durations
    for size, count in batches.items():
        one.batch_stats.add(batch_size=size).compute_infer.count = count
    return ModelStatisticsResponse(model_stats=[one])


def test_statistics_are_sums() -> None:
    parts = [statistics(9, 3, 300, {4: 2, 1: 1}), statistics(7, 5, 200, {2: 1, 4: 4})]

    assert combine_statistics(parts) == statistics(9, 8, 500, {1: 1, 2: 1, 4: 6})


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["READY", "READY"], ["READY"]),
        (["READY", "LOADING"], ["LOADING"]),
        (["UNAVAILABLE", "READY"], ["UNAVAILABLE"]),
        (["READY", None], []),
        (["UNAVAILABLE", None], ["UNAVAILABLE"]),
    ],
)
def test_a_version_is_as_ready_as_in_the_worker_that_is_least_so(states: list[str | None], expected: list[str]) -> None:
    entry = RepositoryIndexResponse.ModelIndex
    parts = [
        RepositoryIndexResponse(models=[entry(name="m", version="1", state=state)] if state else []) for state in states
    ]

    assert [one.state for one in combine_index(parts).models] == expected


def test_only_the_last_change_of_a_thing_is_kept() -> None:
    changes = Changes()
    region = SystemSharedMemoryRegisterRequest(name="r", key="/r", byte_size=1)

    changes.record("RepositoryModelLoad", RepositoryModelLoadRequest(model_name="m"), b"", ANYONE)
    changes.record("SystemSharedMemoryRegister", region, b"", ANYONE)
    changes.record("RepositoryModelUnload", RepositoryModelUnloadRequest(model_name="m"), b"", ANYONE)

    assert [rpc for rpc, *_ in changes] == ["SystemSharedMemoryRegister", "RepositoryModelUnload"]


@pytest.mark.parametrize(("name", "left"), [("r", 1), ("", 0), ("other", 2)])
def test_a_region_that_is_gone_is_not_kept(name: str, left: int) -> None:
    changes = Changes()
    for region in "rs":
        request = SystemSharedMemoryRegisterRequest(name=region, key="/r", byte_size=1)
        changes.record("SystemSharedMemoryRegister", request, b"", ANYONE)

    changes.record("SystemSharedMemoryUnregister", SystemSharedMemoryUnregisterRequest(name=name), b"", ANYONE)

    assert len(list(changes)) == left


def test_a_region_is_kept_beside_those_of_other_tokens_with_its_name() -> None:
    changes, other = Changes(), Grant("other", b"digest", (), frozenset({"shared_memory"}))
    for key, caller in (("/r", ANYONE), ("/s", other)):
        request = SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=1)
        changes.record("SystemSharedMemoryRegister", request, b"", caller)

    changes.record("SystemSharedMemoryUnregister", SystemSharedMemoryUnregisterRequest(name=""), b"", ANYONE)

    assert [caller for *_, caller in changes] == [other]


def test_of_log_settings_all_that_are_in_effect_are_kept() -> None:
    changes = Changes()
    in_effect = LogSettingsResponse()
    in_effect.settings["log_info"].bool_param = False
    in_effect.settings["log_verbose_level"].uint32_param = 0

    request = LogSettingsRequest()
    request.settings["log_info"].bool_param = False
    changes.record("LogSettings", request, in_effect.SerializeToString(), ANYONE)
    changes.record("LogSettings", LogSettingsRequest(), in_effect.SerializeToString(), ANYONE)  # which only reads

    ((_, content, _),) = changes
    kept = LogSettingsRequest.FromString(content).settings
    assert kept["log_info"].WhichOneof("parameter_choice") == "bool_param"
    assert kept["log_verbose_level"].uint32_param == 0


def test_calls_that_wait_for_all_workers_keep_no_other_rest_call_waiting(
    tmp_path: pathlib.Path, fake: FakeExecutable
) -> None:
    (tmp_path / "m.onnx").touch()
    (tmp_path / "servable.yaml").write_text("server: {http: {port: 0}}\nmodels: [{name: m, path: m.onnx}]")
    config = load_config(tmp_path / "servable.yaml")
    held, asked = threading.Event(), threading.Semaphore(0)

    def broadcast(_rpc: str, _request: object, _caller: Grant) -> ModelStatisticsResponse:
        asked.release()
        assert held.wait(120)
        return ModelStatisticsResponse()

    host = ModelHost(config, lambda _model: fake, broadcast)
    http = HttpServer(config.server, HttpApp(config, host, list))
    http.start()

    def get(path: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{http.port}{path}", timeout=120) as answer:
            return int(answer.status)

    with ThreadPoolExecutor(4) as callers:
        waiting = [callers.submit(get, "/v2/models/stats") for _ in range(4)]
        assert all(asked.acquire(timeout=120) for _ in range(2))
        assert get("/v2/health/live") == 200
        assert get("/metrics") == 200
        assert not any(call.done() for call in waiting)
        held.set()
        assert [call.result(120) for call in waiting] == [200] * 4
    http.stop()
    host.close(drained=True)
