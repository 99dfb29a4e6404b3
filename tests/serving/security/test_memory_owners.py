"""Shared memory belongs to the token that registered it, over both ports."""

from __future__ import annotations

import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.serving.conftest import Running, StartFake, given, refusal
from tests.serving.protocol.conftest import Memory, make_memory, memory, output, tensor
from tests.serving.security.conftest import bearer

__all__ = ["make_memory", "memory"]  # fixtures
OWNER, OTHER, NOBODY = "owner-token-0123456789", "other-token-0123456789", "nobody-token-0123456789"
FILE = f"""
tokens:
- {{name: owner, token: {OWNER}, admin: [shared_memory]}}
- {{name: other, token: {OTHER}, admin: [shared_memory]}}
- {{name: nobody, token: {NOBODY}}}
"""
Infer = Callable[[str, list, list], triton.InferResult]


@pytest.fixture
def running(tmp_path: pathlib.Path, start_fake: StartFake) -> Running:
    file = tmp_path / "tokens.yaml"
    file.touch(0o600)
    file.write_text(FILE)
    return start_fake(server=f"auth: {{tokens_file: {file}}}, admin: {{shared_memory: true}}")


@pytest.fixture
def client(running: Running, memory: Memory) -> Iterator[triton.InferenceServerClient]:
    """A client, and a region of the owner that holds a 4."""
    memory.write(np.float32(4).tobytes())
    running.client.register_system_shared_memory("r", memory.key, memory.byte_size, headers=bearer(OWNER))
    yield running.client
    running.client.unregister_system_shared_memory(headers=bearer(OWNER))
    running.client.unregister_system_shared_memory(headers=bearer(OTHER))


def rest(running: Running, token: str, path: str, body: dict | None = None) -> tuple[int, dict]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{running.http}/v2/{path}", data, headers=bearer(token))
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


REST_INPUT = {
    "name": "x", "shape": [1], "datatype": "FP32",
    "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4},
}  # fmt: skip


def test_the_owner_uses_its_region_over_both_ports(client: triton.InferenceServerClient, running: Running) -> None:
    x = tensor("x", (1,), "FP32", "r", 4)

    assert client.infer("fake", [x], headers=bearer(OWNER)).as_numpy("y").tolist() == [5]
    status, answer = rest(running, OWNER, "models/fake/infer", {"inputs": [REST_INPUT]})
    assert (status, answer["outputs"][0]["data"]) == (200, [5])


@pytest.mark.parametrize(("token", "code", "status"), [(OTHER, "NOT_FOUND", 404), (NOBODY, "PERMISSION_DENIED", 403)])
def test_nobody_else_reads_a_region(
    client: triton.InferenceServerClient, running: Running, token: str, code: str, status: int
) -> None:
    x = tensor("x", (1,), "FP32", "r", 4)

    assert refusal(lambda: client.infer("fake", [x], headers=bearer(token)))[0] == code
    assert rest(running, token, "models/fake/infer", {"inputs": [REST_INPUT]})[0] == status


@pytest.mark.parametrize(("token", "code"), [(OTHER, "NOT_FOUND"), (NOBODY, "PERMISSION_DENIED")])
def test_nobody_else_writes_a_region(
    client: triton.InferenceServerClient, memory: Memory, token: str, code: str
) -> None:
    x = given("x", np.zeros(1, np.float32))

    status, _ = refusal(lambda: client.infer("fake", [x], outputs=[output("r", 4)], headers=bearer(token)))

    assert status == code
    assert memory.read(4) == np.float32(4).tobytes()


def test_nobody_else_lists_or_unregisters_a_region(client: triton.InferenceServerClient, running: Running) -> None:
    client.unregister_system_shared_memory(headers=bearer(OTHER))
    client.unregister_system_shared_memory("r", headers=bearer(OTHER))

    assert not client.get_system_shared_memory_status(headers=bearer(OTHER)).regions
    assert refusal(lambda: client.get_system_shared_memory_status("r", headers=bearer(OTHER)))[0] == "NOT_FOUND"
    assert list(client.get_system_shared_memory_status(headers=bearer(OWNER)).regions) == ["r"]
    for call in (client.get_system_shared_memory_status, client.unregister_system_shared_memory):
        code, text = refusal(lambda call=call: call(headers=bearer(NOBODY)))
        assert (code, "the token 'nobody' has no right" in text) == ("PERMISSION_DENIED", True)
    assert rest(running, NOBODY, "systemsharedmemory/status")[0] == 403
    assert rest(running, OTHER, "systemsharedmemory/status") == (200, [])


def test_two_tokens_may_call_their_regions_alike(
    client: triton.InferenceServerClient, make_memory: Callable[..., Memory]
) -> None:
    mine = make_memory()
    mine.write(np.float32(8).tobytes())
    client.register_system_shared_memory("r", mine.key, mine.byte_size, headers=bearer(OTHER))
    x = tensor("x", (1,), "FP32", "r", 4)

    answers = [client.infer("fake", [x], headers=bearer(token)).as_numpy("y").tolist() for token in (OWNER, OTHER)]

    assert answers == [[5], [9]]
