"""A short soak finds no fault, and each check fails on its own fault."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from benchmarks.soak import __main__ as command
from benchmarks.soak import clients, process_stats, scenario
from benchmarks.soak.checks import Results, Stop
from benchmarks.soak.clients import ClientContext
from benchmarks.soak.expected_answers import soak_models
from benchmarks.soak.mutators import Mutator
from benchmarks.soak.outcomes import Outcome, Tally, outcome_of, outcome_of_mutated, outcome_of_mutated_stream
from benchmarks.soak.process_stats import Growth, ProcessStats, growth
from trtnode import protos
from trtnode.protos import ModelInferRequest, ModelInferResponse
from trtnode.serving.service.rpc_table import SERVICE_NAME

pytestmark = pytest.mark.slow

OK, INTERNAL, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE


def samples(slope_mb_per_minute: float, noise_mb: float = 0.0, seconds: int = 120) -> list[ProcessStats]:
    rng = np.random.default_rng(0)
    noise = noise_mb * rng.standard_normal(seconds)
    return [ProcessStats(t, 200 + slope_mb_per_minute * t / 60 + noise[t], 40, 16) for t in range(seconds)]


@pytest.fixture
def results() -> Results:
    """Of a soak in which nothing went wrong."""
    still = ProcessStats(0.0, 200.0, 40, 16)
    return Results(
        tallies={"steady load": Tally()},
        samples=[],
        growth=Growth(0.1, -0.2, 0.4),
        rests=(still, still, still),
        reloads=100,
        stop=Stop(code=0, seconds=0.5, lost=0, complaints=[]),
    )


def failed(results: Results) -> list[str]:
    return [check.name for check in results.checks() if not check.passed]


def grown(results: Results, **more: float) -> Results:
    last = results.rests[2]
    later = dataclasses.replace(last, **{name: getattr(last, name) + value for name, value in more.items()})
    return dataclasses.replace(results, rests=(*results.rests[:2], later))


def answer_of_an_image(request: ModelInferRequest, _context: grpc.ServicerContext) -> ModelInferResponse:
    response = ModelInferResponse(model_name=request.model_name)
    response.outputs.add(name="y", datatype="FP32", shape=request.inputs[0].shape)
    return response


def refuse(_request: object, context: grpc.ServicerContext) -> None:
    context.abort(UNAVAILABLE, "the server is stopping; send the request to another one")


@contextlib.contextmanager
def served(handlers: dict[str, Any]) -> Iterator[str]:
    """Serve some RPCs of the inference service with functions; the address."""
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            handler, getattr(protos, f"{name}Request").FromString, lambda response: response.SerializeToString()
        )
        for name, handler in handlers.items()
    }
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_registered_method_handlers(SERVICE_NAME, methods)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def with_fault(results: Results) -> Results:
    results.tallies["steady load"].add("infer", Outcome("OK", "a wrong answer"))
    return results


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        pytest.param(with_fault, "steady load: lost, wrong or with an unexpected status", id="wrong answer"),
        pytest.param(
            lambda r: dataclasses.replace(r, growth=Growth(1.2, 0.9, 1.5)), "memory under steady load", id="slope"
        ),
        pytest.param(lambda r: grown(r, rss_mb=9.0), "memory after 100 reloads", id="reloads"),
        pytest.param(lambda r: grown(r, threads=30), "threads at rest", id="threads"),
        pytest.param(lambda r: grown(r, descriptors=1), "file descriptors at rest", id="descriptors"),
        pytest.param(
            lambda r: dataclasses.replace(r, stop=dataclasses.replace(r.stop, lost=1)),
            "answers lost by the stop",
            id="lost",
        ),
        pytest.param(
            lambda r: dataclasses.replace(r, stop=dataclasses.replace(r.stop, code=1)),
            "exit code after SIGTERM",
            id="exit code",
        ),
    ],
)
def test_each_check_fails_on_what_it_is_there_for(
    results: Results, spoil: Callable[[Results], Results], name: str
) -> None:
    assert failed(results) == []

    assert failed(spoil(results)) == [name]


@pytest.mark.parametrize("slope", [0.0, 0.5, 3.0])
def test_the_slope_of_memory_is_found_in_noise(slope: float) -> None:
    found = growth(samples(slope, noise_mb=0.3))

    assert found.low <= found.mb_per_minute <= found.high
    assert found.mb_per_minute == pytest.approx(slope, abs=0.3)


def test_a_slope_needs_some_time() -> None:
    with pytest.raises(ValueError, match="a slope needs samples of 15 s at least"):
        growth(samples(0, seconds=9))


def test_answers_are_those_of_plain_onnx_runtime() -> None:
    models = {model.name: model for model in soak_models(np.random.default_rng(1))}
    checked = models["numbers"].checked_requests()[0]
    response = ModelInferResponse(model_name="numbers")
    for name, array in checked.answers[0].items():
        response.outputs.add(name=name, datatype="INT64", shape=array.shape)
        response.raw_output_contents.append(array.tobytes())

    assert checked.accepts(response)
    response.raw_output_contents[0] = bytes(len(response.raw_output_contents[0]) - 8) + b"\1" + bytes(7)
    assert not checked.accepts(response)


def test_statuses_are_held_against_what_a_request_may_have() -> None:
    right, no_message = ModelInferRequest(model_name="m").SerializeToString(), b"\xff\xff"

    assert not outcome_of_mutated(right, OK, "").fault
    assert outcome_of_mutated(right, INTERNAL, "the server failed unexpectedly").fault
    assert outcome_of_mutated(right, grpc.StatusCode.DEADLINE_EXCEEDED, "").fault
    assert not outcome_of_mutated(no_message, grpc.StatusCode.INVALID_ARGUMENT, "").fault
    assert outcome_of_mutated(no_message, OK, "").fault
    assert not outcome_of_mutated_stream([right, right], 2, OK).fault
    assert outcome_of_mutated_stream([right, right], 1, OK).fault


def test_a_refusal_is_a_fault_unless_the_server_stops() -> None:
    refusal = outcome_of(UNAVAILABLE, "the server is stopping; send the request to another one", OK)
    steady, stop = Tally(), Tally(may_refuse=True)

    steady.add("infer", refusal)
    stop.add("infer", refusal)
    stop.add("infer", outcome_of(UNAVAILABLE, "Socket closed", OK))

    assert (steady.faults, stop.faults) == (1, 1)


def test_an_answer_counts_though_its_memory_cannot_be_unregistered_any_more(tmp_path: pathlib.Path) -> None:
    models = soak_models(np.random.default_rng(1))
    checked_requests = [checked for model in models for checked in model.checked_requests()]
    handlers = {
        "SystemSharedMemoryRegister": lambda *_: protos.SystemSharedMemoryRegisterResponse(),
        "ModelInfer": answer_of_an_image,
        "SystemSharedMemoryUnregister": refuse,
    }
    with served(handlers) as address, grpc.insecure_channel(address) as channel:
        rng = random.Random(1)
        context = ClientContext(address, "", channel, tmp_path, models, checked_requests, rng, Mutator([], 1), iter(()))

        outcomes = list(clients.share_memory(context))

    assert [(outcome.status, outcome.refused) for outcome in outcomes] == [("OK", False), ("UNAVAILABLE", True)]


def test_a_short_soak_finds_no_fault(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"REST_S": 0.3, "BEFORE_STOP_S": 0.5}.items():
        monkeypatch.setattr(scenario, name, value)
    monkeypatch.setattr(process_stats, "WINDOW_S", 0.6)
    file = tmp_path / "soak.json"

    command.main(["--minutes", "0.07", "--mutated", "300", "--reloads", "5", "--seed", "1", "--json", str(file)])

    result = json.loads(file.read_text())
    unsettled = ("memory under", "memory after", "threads at rest")  # these take minutes to tell
    assert [c for c in result["checks"] if not c["passed"] and not c["name"].startswith(unsettled)] == []
    assert {one["kind"] for one in result["requests"]} >= {"infer", "stream", "mutated", "reload", "scrape"}
    assert result["plan"]["seed"] == 1


@pytest.mark.parametrize("wrong", [["--minutes", "-1"], ["--minutes", "nan"], ["--mutated", "0"], ["--reloads", "x"]])
def test_a_plan_without_anything_to_do_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(wrong)

    assert ended.value.code == 2
    assert f"argument {wrong[0]}: " in capsys.readouterr().err
