"""Requests of unlike lengths: what they are padded to, which run together, and models whose answers show padding."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

import encoders
from tests.serving.conftest import Running, Starter, refusal
from tests.serving.conftest import given as wire
from trtnode.engines.compile.opening import open_model
from trtnode.serving.batching.batcher import DynamicBatcher
from trtnode.serving.batching.length_batches import LengthBatches
from trtnode.serving.batching.lengths import Lengths, default_buckets
from trtnode.serving.batching.padding_check import PaddingCheck
from trtnode.serving.batching.queued_request import Result, WaitingRequest
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import CancelledRequestError
from trtnode.serving.executables.interface import Run, ServedExecutable
from trtnode.serving.protocol.wire_signature import WireSignature
from trtnode.serving.schema.model import BatchingConfig
from trtnode.serving.telemetry.request_stats import Durations, ModelCounts
from trtnode.serving.threads.request_pool import RequestPool

AXES = {"ids": 1, "mask": 1}
LENGTHS = Lengths(axes=AXES, mask="mask", buckets=(4, 6, 8, 12, 16))


@pytest.mark.parametrize("longest", [1, 7, 8, 16, 100, 128, 384, 512])
def test_buckets_end_at_the_longest_and_make_little_padding(longest: int) -> None:
    buckets = default_buckets(longest)
    padded = [min(bucket for bucket in buckets if bucket >= length) for length in range(1, longest + 1)]

    assert buckets[-1] == longest
    assert list(buckets) == sorted(set(buckets))
    assert 1 - sum(range(1, longest + 1)) / sum(padded) <= (0.15 if longest > 64 else 0.5)


def opened(model: onnx.ModelProto, folder: pathlib.Path) -> ServedExecutable:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return open_model(path, use_engines=False)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> ServedExecutable:
    return opened(encoders.encoder(), tmp_path_factory.mktemp("encoder"))


def proven(executable: ServedExecutable, lengths: Lengths = LENGTHS) -> Lengths | str:
    signature = WireSignature.of("m", executable.inputs, executable.outputs)
    return PaddingCheck(executable, signature, lengths, joins=True).run()


def test_answers_that_do_not_show_padding_are_proven_so(encoder: ServedExecutable) -> None:
    found = proven(encoder)

    assert isinstance(found, Lengths)
    assert found.outputs == {"hidden": (1,), "pooled": ()}


@pytest.mark.parametrize(
    ("model", "axes", "output"),
    [
        pytest.param(encoders.encoder(pool=encoders.MEAN_OF_ALL), AXES, "pooled", id="mean-over-padding"),
        pytest.param(encoders.encoder(leak=encoders.OPEN_FOR_ONE_WORD), AXES, "hidden", id="one-word-of-padding"),
        pytest.param(encoders.convolution_over_time(), {"x": 2}, "y", id="neighbours-without-a-mask"),
    ],
)
def test_a_model_whose_answers_show_padding_is_found(
    model: onnx.ModelProto, axes: dict[str, int], output: str, tmp_path: pathlib.Path
) -> None:
    mask = "mask" if "mask" in axes else None

    found = proven(opened(model, tmp_path), Lengths(axes=axes, mask=mask, buckets=LENGTHS.buckets))

    assert isinstance(found, str)
    assert f"output {output!r}" in found
    assert "differ" in found


def test_an_input_whose_length_was_forgotten_is_found(encoder: ServedExecutable) -> None:
    assert isinstance(proven(encoder, Lengths(axes={"ids": 1}, mask=None, buckets=LENGTHS.buckets)), str)


requests = st.lists(
    st.tuples(st.integers(1, 20), st.integers(1, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=12
)


@settings(max_examples=60)
@given(requests=requests, seed=st.integers(0, 2**31))
def test_each_request_gets_its_own_answer_whatever_runs_beside_it(
    encoder: ServedExecutable, requests: list[tuple[int, int, int, bool]], seed: int
) -> None:
    found = proven(encoder)
    assert isinstance(found, Lengths)
    unlike, pool = LengthBatches(found, ModelCounts()), RequestPool(2)
    gate, begun = threading.Event(), threading.Event()

    def held(*arguments: object) -> object:
        begun.set()
        assert gate.wait(60)
        return encoder.run(*arguments)  # type: ignore[arg-type]

    config = BatchingConfig(max_batch_size=8, priority_levels=3)
    run: Run = held  # type: ignore[assignment]
    batcher = DynamicBatcher(unlike.padding(run), sorted(AXES), config, 1, ModelCounts(), lambda _: False, unlike)
    outcomes: dict[int, Result] = {}
    ended = threading.Semaphore(0)

    def submit(number: int) -> None:
        length, rows, priority, leaves = requests[number]

        def leave(cancel: Callable[[], None]) -> bool:
            if leaves:
                cancel()
            return True

        def take(outcome: Result) -> None:
            outcomes[number] = outcome
            ended.release()

        feeds = encoders.request(length, rows, seed + number)
        batcher.submit(feeds, None, RequestOptions(pool, priority, 0, leave), Durations(), take)

    first = threading.Thread(target=submit, args=(0,))
    first.start()
    assert begun.wait(60)
    for number in range(1, len(requests)):
        submit(number)
    gate.set()
    for _ in requests:
        assert ended.acquire(timeout=60)
    first.join()
    pool.close()

    for number, (length, rows, _, leaves) in enumerate(requests):
        outcome = outcomes[number]
        if leaves and number:
            assert isinstance(outcome, CancelledRequestError)
            continue
        assert not isinstance(outcome, BaseException)
        for name, expected in encoder.run(encoders.request(length, rows, seed + number)).items():
            assert outcome[name].shape == expected.shape
            np.testing.assert_allclose(outcome[name], expected, rtol=1e-4, atol=1e-4)


def waiting(length: int, *, rows: int = 1, priority: int = 1) -> WaitingRequest:
    one = WaitingRequest({}, None, rows=rows, key="a", durations=Durations(), then=lambda _: None)
    one.length, one.bucket, one.priority = length, LENGTHS.bucket(length), priority
    return one


def lengths_beside(queue: list[WaitingRequest], *, batches: LengthBatches, max_rows: int = 8) -> list[int | None]:
    return [one.length for one in batches.candidates(queue, max_rows)]


@pytest.fixture
def batches() -> LengthBatches:
    return LengthBatches(LENGTHS, ModelCounts())


def test_requests_of_the_first_ones_bucket_run_with_it_then_those_of_its_neighbours(batches: LengthBatches) -> None:
    queue = [waiting(3), waiting(7), waiting(9), waiting(5), waiting(15), waiting(4), waiting(6)]

    assert lengths_beside(queue, batches=batches) == [3, 4, 5, 6, 7]
    assert lengths_beside(queue, batches=batches, max_rows=2) == [3, 4]


def test_a_request_beyond_all_buckets_runs_by_itself(batches: LengthBatches) -> None:
    assert lengths_beside([waiting(17), waiting(17)], batches=batches) == [17]
    assert lengths_beside([waiting(16), waiting(17), waiting(16)], batches=batches) == [16, 16]


def test_nobody_overtakes_a_request_of_a_higher_priority(batches: LengthBatches) -> None:
    queue = [waiting(3), waiting(15), waiting(3, priority=2)]

    assert lengths_beside(queue, batches=batches) == [3]
    assert lengths_beside([waiting(7), waiting(7, priority=2)], batches=batches) == [7, 7]


def test_requests_whose_batch_measured_slower_run_one_by_one(encoder: ServedExecutable) -> None:
    slow: set[int] = set()

    def run(feeds: dict[str, np.ndarray], *_: object) -> dict[str, np.ndarray]:
        slow.add(len(feeds["ids"]))
        threading.Event().wait(0.3 if len(feeds["ids"]) > 1 else 0.001)
        return {}

    batches = LengthBatches(LENGTHS, ModelCounts())
    padded = batches.padding(run)  # type: ignore[arg-type]
    for rows in (1, 2):
        padded(encoders.request(7, rows, 0), None, None)

    assert lengths_beside([waiting(7), waiting(8)], batches=batches) == [7]
    assert slow == {1, 2}


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path
) -> Iterator[tuple[Running, pathlib.Path]]:
    folder = tmp_path_factory.mktemp("served")
    starter = Starter(folder, warm_cache)
    onnx.save(encoders.encoder(positions=16), folder / "encoder.onnx")
    running = starter(f"""
- {{name: found, path: {folder}/encoder.onnx, engine: openvino, batching: {{}}, lengths: auto}}
- name: told
  path: {folder}/encoder.onnx
  engine: native
  lengths: {{axes: {{ids: 1, mask: 1}}, mask: mask, buckets: [4, 8], pad: {{ids: 3}}}}
""")
    yield running, folder / "encoder.onnx"
    starter.close()


@pytest.mark.parametrize("model", ["found", "told"])
def test_every_client_gets_the_answers_of_onnx_runtime(model: str, served: tuple[Running, pathlib.Path]) -> None:
    running, path = served
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    sent = [encoders.request(int(rng.integers(1, 17)), int(rng.integers(1, 4)), seed) for seed in range(64)]

    with ThreadPoolExecutor(16) as clients:
        answers = clients.map(
            lambda feeds: running.client.infer(model, [wire(name, array) for name, array in feeds.items()]), sent
        )

    for feeds, answer in zip(sent, answers, strict=True):
        for name, expected in zip(("hidden", "pooled"), session.run(None, feeds), strict=True):
            assert answer.as_numpy(name).shape == expected.shape
            np.testing.assert_allclose(answer.as_numpy(name), expected, rtol=1e-4, atol=1e-4)


def test_buckets_end_where_the_model_does(served: tuple[Running, pathlib.Path]) -> None:
    running, _ = served
    inputs = [wire(name, array) for name, array in encoders.request(17, 1, 0).items()]

    assert refusal(lambda: running.client.infer("found", inputs))[0] == "INVALID_ARGUMENT"
    code, message = refusal(lambda: running.client.infer("told", inputs))

    assert code == "INVALID_ARGUMENT"
    assert "the request has length 17, beyond the last of the model's buckets (8), and the model fails on it" in message


def test_padding_is_counted(served: tuple[Running, pathlib.Path]) -> None:
    running, _ = served

    def counted(name: str) -> float:
        text = generate_latest(running.server.metrics.registry).decode()
        lines = [line for line in text.splitlines() if line.startswith(f"trtnode_{name}{{") and '"told"' in line]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    names = ("padding_elements_total", "length_executions_total", "length_shapes")
    before = [counted(name) for name in names]
    for length in (3, 8):
        running.client.infer("told", [wire(name, array) for name, array in encoders.request(length, 5, 0).items()])
    after = [counted(name) for name in names]

    assert [now - was for now, was in zip(after, before, strict=True)][:2] == [5 * 2 * 1, 2]
    assert after[2] >= 4  # both buckets were warmed up, and are run with five rows now


def test_metadata_and_refusals_are_those_of_the_model(served: tuple[Running, pathlib.Path]) -> None:
    running, _ = served
    metadata = running.client.get_model_metadata("found")
    unequal = [wire("ids", np.zeros((1, 3), np.int64)), wire("mask", np.ones((1, 5), np.int64))]

    code, _ = refusal(lambda: running.client.infer("found", unequal))

    assert [(tensor.name, list(tensor.shape)) for tensor in metadata.inputs] == [("ids", [-1, -1]), ("mask", [-1, -1])]
    assert code == "INTERNAL"


def test_a_model_whose_answers_show_padding_is_served_without_and_the_log_names_the_output(
    start: Starter, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    onnx.save(encoders.encoder(pool=encoders.MEAN_OF_ALL), tmp_path / "leaky.onnx")

    running = start(f"- {{name: leaky, path: {tmp_path}/leaky.onnx, engine: native, lengths: auto}}\n")
    feeds = encoders.request(5, 1, 0)
    answer = running.client.infer("leaky", [wire(name, array) for name, array in feeds.items()])

    expected = open_model(tmp_path / "leaky.onnx", use_engines=False).run(feeds)["pooled"]
    np.testing.assert_allclose(answer.as_numpy("pooled"), expected, rtol=1e-4, atol=1e-4)
    assert "Model 'leaky': requests are not padded, whatever their length: output 'pooled' of a request" in caplog.text


@pytest.mark.parametrize(("pool", "padded"), [(encoders.POOLED, True), (encoders.MEAN_OF_ALL, False)])
def test_the_variant_that_answers_has_to_do_so_as_if_there_were_no_padding(
    pool: str, padded: bool, start: Starter, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    onnx.save(encoders.encoder(pool=pool), tmp_path / "large.onnx")  # it answers, whichever is faster
    onnx.save(encoders.encoder(), tmp_path / "small.onnx")

    running = start(f"""
- name: m
  variants: [{{path: {tmp_path}/large.onnx, quality: 2}}, {{path: {tmp_path}/small.onnx, quality: 1}}]
  latency_target_ms: 10000
  engine: native
  batching: {{}}
  lengths: auto
""")
    answer = running.client.infer("m", [wire(name, array) for name, array in encoders.request(5, 2, 0).items()])

    assert answer.as_numpy("hidden").shape == (2, 5, encoders.WIDTH)
    assert ("Model 'm': requests are padded to" in caplog.text) is padded
    assert ("Model 'm': requests are not padded" in caplog.text) is not padded
