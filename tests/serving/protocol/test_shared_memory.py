"""Tensors in shared memory: both directions, every type, and everything that a client may get wrong."""

from __future__ import annotations

import os
import pathlib
import uuid
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import serialize_byte_tensor

from tests.serving.conftest import refusal
from tests.serving.protocol.conftest import Memory, X, output, tensor
from trtnode.serving.protocol import shared_memory
from trtnode.serving.protocol.shared_memory import MAX_REGIONS

DTYPES = {
    "BOOL": ("BOOL", np.bool_),
    "UINT8": ("UINT8", np.uint8),
    "UINT16": ("UINT16", np.uint16),
    "UINT32": ("UINT32", np.uint32),
    "UINT64": ("UINT64", np.uint64),
    "INT8": ("INT8", np.int8),
    "INT16": ("INT16", np.int16),
    "INT32": ("INT32", np.int32),
    "INT64": ("INT64", np.int64),
    "FLOAT16": ("FP16", np.float16),
    "BFLOAT16": ("BF16", ml_dtypes.bfloat16),
    "FLOAT": ("FP32", np.float32),
    "DOUBLE": ("FP64", np.float64),
}


@pytest.mark.parametrize("model", DTYPES)
def test_every_type_of_fixed_size_travels_both_ways_in_shared_memory(
    client: triton.InferenceServerClient, memory: Memory, model: str
) -> None:
    datatype, dtype = DTYPES[model]
    x = X.astype(dtype)
    memory.write(x.tobytes(), 64)
    client.register_system_shared_memory("both", memory.key, memory.byte_size)

    result = client.infer(
        model, [tensor("x", x.shape, datatype, "both", x.nbytes, 64)], outputs=[output("both", x.nbytes, 1024)]
    )

    assert memory.read(x.nbytes, 1024) == x.tobytes()
    wire = result.get_output("y")
    assert (wire.name, wire.datatype, list(wire.shape)) == ("y", datatype, [1, 3])
    assert list(result.get_response().raw_output_contents) == [b""]


def test_texts_travel_both_ways_in_shared_memory(client: triton.InferenceServerClient, memory: Memory) -> None:
    x = np.array([[b"one", b"", "drei €".encode()]], np.object_)
    data = serialize_byte_tensor(x).item()
    memory.write(data)
    client.register_system_shared_memory("texts", memory.key, memory.byte_size)

    result = client.infer(
        "STRING", [tensor("x", x.shape, "BYTES", "texts", len(data))], outputs=[output("texts", 1000, 2048)]
    )

    assert memory.texts(3, 2048) == x.ravel().tolist()
    assert result.get_output("y").parameters["shared_memory_byte_size"].int64_param == len(data)


@pytest.mark.parametrize("first_in_memory", [True, False])
def test_inputs_in_memory_take_no_item_of_the_raw_contents(
    client: triton.InferenceServerClient, memory: Memory, first_in_memory: bool
) -> None:
    a, b = np.full((1, 3), 2, np.float32), np.full((1, 3), 5, np.float32)
    names = ("a", "b") if first_in_memory else ("b", "a")
    memory.write((a if first_in_memory else b).tobytes())
    client.register_system_shared_memory("one", memory.key, memory.byte_size)
    raw = triton.InferInput(names[1], [1, 3], "FP32")
    raw.set_data_from_numpy(b if first_in_memory else a)

    result = client.infer("two", [tensor(names[0], (1, 3), "FP32", "one", 12), raw])

    assert result.as_numpy("sum").tolist() == [[7, 7, 7]]


def test_an_output_in_memory_leaves_the_others_where_they_are(
    client: triton.InferenceServerClient, memory: Memory
) -> None:
    client.register_system_shared_memory("one", memory.key, memory.byte_size)
    inputs = [triton.InferInput(name, [1, 3], "FP32") for name in "ab"]
    for one in inputs:
        one.set_data_from_numpy(np.full((1, 3), 3, np.float32))

    result = client.infer(
        "two", inputs, outputs=[output("one", 12, name="sum"), triton.InferRequestedOutput("product")]
    )

    assert np.frombuffer(memory.read(12), np.float32).tolist() == [6, 6, 6]
    assert result.as_numpy("product").tolist() == [[9, 9, 9]]


def test_an_input_that_is_not_aligned_is_read_all_the_same(
    client: triton.InferenceServerClient, memory: Memory
) -> None:
    x = np.array([[1, 2, 3]], np.float64)
    memory.write(x.tobytes(), 3)
    client.register_system_shared_memory("odd", memory.key, memory.byte_size)

    result = client.infer(
        "DOUBLE", [tensor("x", x.shape, "FP64", "odd", x.nbytes, 3)], outputs=[output("odd", x.nbytes, 101)]
    )

    assert memory.read(x.nbytes, 101) == x.tobytes()
    assert result.get_output("y")


def test_a_region_may_start_anywhere_in_its_object(client: triton.InferenceServerClient, make_memory: Iterator) -> None:
    memory = make_memory(3 * 4096)
    x = X.astype(np.float32)
    memory.write(x.tobytes(), 5000)
    client.register_system_shared_memory("part", memory.key, 100, offset=4990)

    result = client.infer("FLOAT", [tensor("x", x.shape, "FP32", "part", x.nbytes, 10)])

    assert result.as_numpy("y").tolist() == x.tolist()


def test_zero_elements_need_no_bytes(client: triton.InferenceServerClient, memory: Memory) -> None:
    client.register_system_shared_memory("none", memory.key, memory.byte_size)

    result = client.infer("FLOAT", [tensor("x", (0, 3), "FP32", "none", 0)], outputs=[output("none", 0, 4096)])

    assert list(result.get_output("y").shape) == [0, 3]


def test_shared_memory_works_in_streams(client: triton.InferenceServerClient, memory: Memory) -> None:
    x = X.astype(np.float32)
    memory.write(x.tobytes())
    client.register_system_shared_memory("stream", memory.key, memory.byte_size)
    answers: list = []
    client.start_stream(lambda result, error: answers.append((result, error)))
    for place in (512, 1024):
        client.async_stream_infer(
            "FLOAT", [tensor("x", x.shape, "FP32", "stream", 12)], outputs=[output("stream", 12, place)]
        )
    client.async_stream_infer("FLOAT", [tensor("x", x.shape, "FP32", "nowhere", 12)])
    client.stop_stream()

    assert sum(error is None for _, error in answers) == 2
    assert memory.read(12, 512) == memory.read(12, 1024) == x.tobytes()
    assert any("Unable to find shared memory region: 'nowhere'" in str(error) for _, error in answers)


def test_the_status_lists_regions_as_they_were_registered(client: triton.InferenceServerClient, memory: Memory) -> None:
    client.register_system_shared_memory("a", memory.key, 100, offset=8)
    client.register_system_shared_memory("b", memory.key[1:], 4096)

    every, one = client.get_system_shared_memory_status(), client.get_system_shared_memory_status("a")

    assert set(every.regions) == {"a", "b"}
    assert set(one.regions) == {"a"}
    region = one.regions["a"]
    assert (region.name, region.key, region.offset, region.byte_size) == ("a", memory.key, 8, 100)


def test_unregistering_forgets_one_region_or_all(client: triton.InferenceServerClient, memory: Memory) -> None:
    for name in "abc":
        client.register_system_shared_memory(name, memory.key, 100)

    client.unregister_system_shared_memory("a")
    left = set(client.get_system_shared_memory_status().regions)
    client.unregister_system_shared_memory("never registered")
    client.unregister_system_shared_memory()

    assert left == {"b", "c"}
    assert not client.get_system_shared_memory_status().regions


@pytest.mark.parametrize(
    ("name", "key", "offset", "size", "code", "text"),
    [
        pytest.param("", None, 0, 10, "INVALID_ARGUMENT", "needs a name", id="no-name"),
        pytest.param("n" * 256, None, 0, 10, "INVALID_ARGUMENT", "1 to 255 characters", id="long-name"),
        pytest.param("r", None, 0, 0, "INVALID_ARGUMENT", "byte_size of 1 or more", id="no-size"),
        pytest.param("r", None, 0, 4097, "INVALID_ARGUMENT", "has 4096 bytes", id="beyond-the-object"),
        pytest.param("r", None, 4096, 1, "INVALID_ARGUMENT", "has 4096 bytes", id="offset-beyond-the-object"),
        pytest.param("r", None, 2**64 - 1, 10, "INVALID_ARGUMENT", "has 4096 bytes", id="huge-offset"),
        pytest.param("r", None, 0, 2**64 - 1, "INVALID_ARGUMENT", "server.limits.shared_memory_mb", id="huge-size"),
        pytest.param("r", "", 0, 10, "INVALID_ARGUMENT", "no key", id="no-key"),
        pytest.param("r", "/", 0, 10, "INVALID_ARGUMENT", "no key", id="slash"),
        pytest.param("r", "..", 0, 10, "INVALID_ARGUMENT", "no key", id="parent"),
        pytest.param("r", "/../../etc/passwd", 0, 10, "INVALID_ARGUMENT", "no key", id="traversal"),
        pytest.param("r", "//etc/passwd", 0, 10, "INVALID_ARGUMENT", "no key", id="absolute"),
        pytest.param("r", "a/b", 0, 10, "INVALID_ARGUMENT", "no key", id="folder"),
        pytest.param("r", "a\0b", 0, 10, "INVALID_ARGUMENT", "no key", id="nul"),
        pytest.param("r", "k" * 256, 0, 10, "INVALID_ARGUMENT", "no key", id="long-key"),
        pytest.param("r", "/never-created", 0, 10, "INTERNAL", "No such file", id="no-such-object"),
    ],
)
def test_a_region_that_can_not_be_is_refused(
    client: triton.InferenceServerClient,
    memory: Memory,
    name: str,
    key: str | None,
    offset: int,
    size: int,
    code: str,
    text: str,
) -> None:
    key = memory.key if key is None else key

    status, message = refusal(lambda: client.register_system_shared_memory(name, key, size, offset=offset))

    assert (status, text in message) == (code, True), message
    assert not client.get_system_shared_memory_status().regions


def test_a_link_out_of_the_folder_is_not_followed(client: triton.InferenceServerClient, tmp_path: pathlib.Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(4096))
    link = pathlib.Path("/dev/shm", f"trtnode-test-{uuid.uuid4().hex}")
    link.symlink_to(tmp_path / "secret")
    try:
        code, _ = refusal(lambda: client.register_system_shared_memory("r", link.name, 10))
    finally:
        link.unlink()

    assert code == "INTERNAL"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_memory_is_refused_at_once(
    client: triton.InferenceServerClient, make: Callable[[str], None]
) -> None:
    path = pathlib.Path("/dev/shm", f"trtnode-test-{uuid.uuid4().hex}")
    make(path)
    try:
        code, _ = refusal(lambda: client.register_system_shared_memory("r", path.name, 10))
    finally:
        path.rmdir() if path.is_dir() else path.unlink()

    assert code == "INTERNAL"


def test_a_name_can_be_registered_once(client: triton.InferenceServerClient, memory: Memory) -> None:
    client.register_system_shared_memory("r", memory.key, 10)

    code, message = refusal(lambda: client.register_system_shared_memory("r", memory.key, 10))

    assert (code, "unregister it first" in message) == ("ALREADY_EXISTS", True)


def test_clients_may_register_as_much_as_configured(
    client: triton.InferenceServerClient, make_memory: Iterator
) -> None:
    half = make_memory(600 << 10)
    client.register_system_shared_memory("first", half.key, half.byte_size)

    code, message = refusal(lambda: client.register_system_shared_memory("second", half.key, half.byte_size))
    client.unregister_system_shared_memory("first")
    client.register_system_shared_memory("second", half.key, half.byte_size)

    assert (code, "server.limits.shared_memory_mb" in message) == ("UNAVAILABLE", True)


def test_the_number_of_regions_is_bounded(
    client: triton.InferenceServerClient, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_REGIONS >= 64
    monkeypatch.setattr(shared_memory, "MAX_REGIONS", 2)
    for name in "ab":
        client.register_system_shared_memory(name, memory.key, 1)

    assert refusal(lambda: client.register_system_shared_memory("c", memory.key, 1))[0] == "UNAVAILABLE"
