"""New versions take the place of old ones while requests come."""

from __future__ import annotations

import errno
import pathlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from onnx import TensorProto, helper, numpy_helper
from prometheus_client import generate_latest
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Adders, Eventually, FakeExecutable, Starter, given
from trtnode.engines.errors import ModelLoadError
from trtnode.serving.schema.model import ModelConfig
from workshop import prepare_and_open

ADMIN = "admin: {repository: true}"
CLIENTS = 4


@pytest.fixture(autouse=True)
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtnode.serving.models.watcher.POLL_S", 0.05)


class Load:
    """Clients that ask without pause, each in a thread."""

    def __init__(self, address: str, adders: Adders) -> None:
        self.answers: list[float] = []
        self.errors: list[Exception] = []
        self._address = address
        self._adders = adders
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        with triton.InferenceServerClient(self._address) as client:
            while not self._over.is_set():
                try:
                    self.answers.append(self._adders.ask(client))
                except InferenceServerException as error:
                    self.errors.append(error)


@pytest.mark.parametrize(
    ("engine", "batching"), [("native", "{max_batch_size: 4, max_queue_delay_us: 100}"), ("openvino", "null")]
)
def test_reloads_under_load_fail_no_request(
    start: Starter, adders: Adders, eventually: Eventually, engine: str, batching: str
) -> None:
    adders.write("m.onnx", 1)
    model = f"- {{name: m, path: m.onnx, engine: {engine}, batching: {batching}}}"
    running = start(model, server=ADMIN)

    with Load(running.address, adders) as load:
        for constant in (2, 1, 2, 1, 2):
            adders.write("m.onnx", constant)
            running.client.load_model("m")
            assert adders.ask(running.client) == constant
            seen = len(load.answers)
            eventually(lambda seen=seen: len(load.answers) > seen + CLIENTS)

    assert load.errors == []
    assert set(load.answers) == {1, 2}


def test_a_model_that_comes_and_goes_answers_or_is_refused_as_unloaded_or_loading(
    start: Starter, adders: Adders, eventually: Eventually
) -> None:
    adders.write("m.onnx", 1)
    running = start("- {name: m, path: m.onnx, engine: native}", server=ADMIN)

    with Load(running.address, adders) as load:
        for _ in range(10):
            running.client.unload_model("m")
            running.client.load_model("m")
            seen = len(load.answers)
            eventually(lambda seen=seen: len(load.answers) > seen + CLIENTS)

    assert {error.status() for error in load.errors} <= {"StatusCode.NOT_FOUND", "StatusCode.UNAVAILABLE"}
    assert set(load.answers) == {1}


def test_a_new_version_that_appears_is_swapped_in_and_the_old_one_goes(
    start: Starter, adders: Adders, eventually: Eventually
) -> None:
    adders.write("m/1/model.onnx", 1)
    running = start("- {name: m, path: m, engine: native, watch: true}")

    with Load(running.address, adders) as load:
        adders.write("m/2/model.onnx", 2)
        eventually(lambda: adders.ask(running.client) == 2)
        eventually(lambda: adders.index(running.client)["1"] == ("UNAVAILABLE", "unloaded"))

    assert load.errors == []
    assert set(load.answers) == {1, 2}
    assert list(running.client.get_model_metadata("m").versions) == ["2"]
    with pytest.raises(
        InferenceServerException, match="Request for unknown model: 'm' version 1 is not found; it has 2"
    ):
        adders.ask(running.client, "1")


def test_a_watched_file_that_changes_is_loaded_again(start: Starter, adders: Adders, eventually: Eventually) -> None:
    adders.write("m.onnx", 1)
    client = start("- {name: m, path: m.onnx, engine: native, watch: true}").client

    adders.write("m.onnx", 5)

    eventually(lambda: adders.ask(client) == 5)
    assert adders.index(client) == {"1": ("READY", "")}


@pytest.mark.parametrize("name", ["is_dir", "rglob"])
def test_files_that_can_not_be_looked_at_for_a_while_are_followed_afterwards(
    start: Starter, adders: Adders, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    adders.write("m/1/model.onnx", 1)
    client = start("- {name: m, path: m, engine: native, watch: true}").client
    eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("load-model")])  # it looks, too
    looks: list[object] = []

    def fail(path: pathlib.Path, *_pattern: str) -> bool:
        looks.append(path)
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as away:
        away.setattr(pathlib.Path, name, fail)
        eventually(lambda: len(looks) > 1)
        assert adders.ask(client) == 1
    adders.write("m/2/model.onnx", 2)

    eventually(lambda: adders.ask(client) == 2)


def test_a_version_that_is_removed_is_retired_and_the_one_before_comes_back(
    start: Starter, adders: Adders, eventually: Eventually
) -> None:
    adders.write("m/1/model.onnx", 1)
    newer = adders.write("m/2/model.onnx", 2)
    client = start("- {name: m, path: m, engine: native, watch: true}").client
    assert adders.ask(client) == 2

    newer.unlink()

    eventually(lambda: adders.ask(client) == 1)
    eventually(lambda: list(adders.index(client)) == ["1"])
    counted = {one.version: one.inference_count for one in client.get_inference_statistics("m").model_stats}
    assert counted["2"] >= 1
    assert client.get_inference_statistics("m", "2").model_stats[0].inference_count == counted["2"]


def test_the_last_version_stays_when_its_folder_is_emptied(
    start: Starter, adders: Adders, eventually: Eventually
) -> None:
    file = adders.write("m/1/model.onnx", 1)
    adders.write("o.onnx", 1)
    models = "- {name: m, path: m, engine: native, watch: true}\n- {name: o, path: o.onnx, engine: native, watch: true}"
    client = start(models).client

    file.unlink()
    for constant in (2, 3):  # by then the watcher has looked at the folder, too
        adders.write("o.onnx", constant)
        eventually(lambda constant=constant: adders.ask(client, model="o") == constant)

    assert adders.ask(client) == 1


@pytest.mark.parametrize("bad", [b"", b"no model", "half"], ids=["empty", "other bytes", "truncated"])
def test_a_bad_new_version_leaves_the_old_one_serving_until_it_is_whole(
    start: Starter, adders: Adders, eventually: Eventually, bad: bytes | str
) -> None:
    adders.write("m/1/model.onnx", 1)
    client = start("- {name: m, path: m, engine: native, watch: true}").client
    whole = adders.content(2)
    file = adders.folder / "m/2/model.onnx"
    file.parent.mkdir()

    file.write_bytes(whole[: len(whole) // 2] if bad == "half" else bad)
    eventually(lambda: adders.index(client).get("2", ("", ""))[0] == "UNAVAILABLE")

    assert str(file) in adders.index(client)["2"][1]
    assert adders.index(client)["1"] == ("READY", "")
    assert adders.ask(client) == 1
    assert client.is_server_ready()

    file.write_bytes(whole)
    eventually(lambda: adders.ask(client) == 2)
    assert adders.index(client)["2"] == ("READY", "")


def test_a_file_that_is_being_written_is_not_taken(
    start: Starter, adders: Adders, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtnode.serving.models.watcher.POLL_S", 0.3)
    adders.write("m/1/model.onnx", 1)
    loaded: list[str] = []

    def load(model: ModelConfig):
        loaded.append(model.path.parent.name)
        return prepare_and_open(model.path, model.options)

    client = start("- {name: m, path: m, engine: native, watch: true}", loader=load).client
    whole = adders.content(2)
    (adders.folder / "m/2").mkdir()
    with (adders.folder / "m/2/model.onnx").open("wb", buffering=0) as file:
        for byte in whole[:-1]:
            file.write(bytes([byte]))
            time.sleep(0.005)
        assert adders.ask(client) == 1
        file.write(whole[-1:])

    eventually(lambda: adders.ask(client) == 2)
    assert loaded == ["1", "2"]


def test_a_file_that_changes_while_it_loads_is_not_swapped_in(
    start: Starter, adders: Adders, eventually: Eventually
) -> None:
    adders.write("m.onnx", 1)

    def load(model: ModelConfig):
        executable = prepare_and_open(model.path, model.options)
        if adders.folder.joinpath("change").exists():
            adders.folder.joinpath("change").unlink()
            adders.write("m.onnx", 3)
        return executable

    running = start("- {name: m, path: m.onnx, engine: native}", server=ADMIN, loader=load)
    adders.folder.joinpath("change").touch()

    with pytest.raises(InferenceServerException, match="changed while it was loaded"):
        running.client.load_model("m")

    assert adders.ask(running.client) == 1
    running.client.load_model("m")
    assert adders.ask(running.client) == 3


def test_requests_in_flight_finish_on_the_old_version(start: Starter, fake: FakeExecutable, adders: Adders) -> None:
    executables = [fake]
    running = start("- {name: fake, path: fake.onnx, warmup: 0}", server=ADMIN, loader=lambda model: executables[-1])
    fake.gate.clear()

    with ThreadPoolExecutor(1) as pool:
        old = pool.submit(ask_fake, running.address)
        assert fake.started.acquire(timeout=120)
        executables.append(type(fake)())
        running.client.load_model("fake")
        assert ask_fake(running.address) == 1
        assert executables[-1].runs == 1
        assert not fake.closed
        fake.gate.set()
        assert old.result(120) == 1


def test_kernels_that_a_warm_up_has_compiled_are_kept(start: Starter, fake: FakeExecutable) -> None:
    start("- {name: fake, path: fake.onnx, warmup: 2}", loader=lambda model: fake)

    assert (fake.runs, fake.warmed_up) == (2, 2)


def test_a_version_that_fails_on_the_inputs_for_warm_up_is_not_swapped_in(
    start: Starter, adders: Adders, eventually: Eventually, tmp_path: pathlib.Path
) -> None:
    adders.write("m/1/model.onnx", 1)
    np.savez(tmp_path / "inputs.npz", x=np.ones((2, 1), np.float32))
    running = start("- {name: m, path: m, engine: native, warmup_inputs: inputs.npz}", server=ADMIN)
    np.savez(tmp_path / "inputs.npz", x=np.ones((2, 5), np.float32))
    adders.write("m/2/model.onnx", 2)

    with pytest.raises(InferenceServerException, match="model 'm' is not loaded: "):
        running.client.load_model("m")

    assert adders.ask(running.client) == 1
    assert adders.index(running.client)["2"][0] == "UNAVAILABLE"


@pytest.mark.parametrize("result", ["engine", "failure"])
def test_startup_native_answers_before_engines_are_built(
    start: Starter, adders: Adders, eventually: Eventually, result: str
) -> None:
    may_build = threading.Event()
    adders.write("m.onnx", 1)

    def load(model: ModelConfig):
        if model.options.engine != "native":
            assert may_build.wait(120)
            if result == "failure":
                raise ModelLoadError("m.onnx", "no engine today")
        return prepare_and_open(model.path, model.options)

    running = start("- {name: m, path: m.onnx, engine: openvino}", server="startup: native", loader=load)

    assert running.client.is_server_ready()
    assert running.client.get_model_metadata("m").platform == "onnxruntime_onnx"
    assert adders.ask(running.client) == 1
    fallback = 'trtnode_native_fallback_total{model="m",reason="building",version="1"} 1.0'
    assert fallback in generate_latest(running.server.metrics.registry).decode()

    may_build.set()

    if result == "engine":
        eventually(lambda: running.client.get_model_metadata("m").platform == "openvino_onnx")
    else:
        eventually(lambda: "no engine today" in adders.index(running.client)["1"][1])
        assert running.server.failure is None
    assert adders.ask(running.client) == 1
    assert adders.index(running.client)["1"][0] == "READY"


def ask_fake(address: str) -> float:
    x = given("x", np.zeros(1, np.float32))
    with triton.InferenceServerClient(address) as client:
        return float(client.infer("fake", [x]).as_numpy("y")[0])


def write_split(folder: pathlib.Path, constant: float, *, size: int = 1, model: bool = True, data: bool = True) -> None:
    """Put an adder in place whose constant is the first of so many values in a file beside it, or one of the two."""
    values = helper.make_tensor("w", TensorProto.FLOAT, [size], [constant] * size)
    head = numpy_helper.from_array(np.array([0]), "head")
    data_bytes = numpy_helper.to_array(values).tobytes()
    weights = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="weights.bin")
    nodes = [helper.make_node("Gather", ["w", "head"], ["k"]), helper.make_node("Add", ["x", "k"], ["y"])]
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1])] for name in "xy"]
    graph = helper.make_graph(nodes, "split", *sides, [weights, head])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    parts = [("weights.bin", data_bytes)] * data + [("m.onnx", made.SerializeToString())] * model
    for name, content in parts:
        (folder / f".{name}").write_bytes(content)
        (folder / f".{name}").replace(folder / name)


@pytest.fixture
def split(start: Starter, adders: Adders) -> triton.InferenceServerClient:
    """A client of a server that watches an adder of 1 whose weights are in a file beside it."""
    write_split(adders.folder, 1)
    return start("- {name: m, path: m.onnx, engine: native, watch: true}").client


def test_data_beside_a_single_file_is_watched(
    split: triton.InferenceServerClient, adders: Adders, eventually: Eventually
) -> None:
    for constant in (2, 3):
        write_split(adders.folder, constant, model=False)
        eventually(lambda constant=constant: adders.ask(split) == constant)
    (adders.folder / "weights.bin").write_bytes(np.array([4], np.float32).tobytes())  # in place

    eventually(lambda: adders.ask(split) == 4)


@pytest.mark.parametrize("first", ["model", "data"])
@pytest.mark.parametrize(("size", "after"), [(1, 4), (4, 1)], ids=["more", "less"])
def test_files_that_do_not_fit_each_other_wait_for_the_rest(
    start: Starter, adders: Adders, eventually: Eventually, first: str, size: int, after: int
) -> None:
    write_split(adders.folder, 1, size=size)
    running = start("- {name: m, path: m.onnx, engine: native, watch: true}")
    client = running.client

    write_split(adders.folder, 2, size=after, model=first == "model", data=first == "data")
    eventually(lambda: "which has" in adders.index(client)["1"][1])
    assert adders.ask(client) == 1
    write_split(adders.folder, 2, size=after, model=first != "model", data=first != "data")

    eventually(lambda: adders.ask(client) == 2)
    assert adders.index(client)["1"] == ("READY", "")
    assert b'trtnode_failed_loads_total{model="m",version="1"} 0.0' in generate_latest(running.server.metrics.registry)


def test_a_stage_of_a_pipeline_is_watched(start: Starter, adders: Adders, eventually: Eventually) -> None:
    adders.write("m.onnx", 1)
    adders.write("stage.onnx", 10)
    client = start("- {name: m, path: m.onnx, postprocess: [stage.onnx], engine: native, watch: true}").client
    assert adders.ask(client) == 11

    adders.write("stage.onnx", 20)

    eventually(lambda: adders.ask(client) == 21)


def test_data_that_is_gone_is_told_and_loaded_once_it_is_back(
    split: triton.InferenceServerClient, adders: Adders, eventually: Eventually
) -> None:
    (adders.folder / "weights.bin").unlink()
    eventually(lambda: "is missing" in adders.index(split)["1"][1])
    assert adders.ask(split) == 1

    write_split(adders.folder, 2, model=False)

    eventually(lambda: adders.ask(split) == 2)
