"""Servers with tokens, and calls with one."""

from __future__ import annotations

import hashlib
import pathlib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator

import grpc
import numpy as np
import pytest

from tests.serving.conftest import Running, StartFake, given
from trtnode import protos
from trtnode.serving.security import tokens

ALL, ONE, ADMIN = "all-models-0123456789", "one-model-0123456789", "administrator-0123456789"
FILE = f"""
tokens:
- name: all
  token: {ALL}
- name: one
  sha256: {hashlib.sha256(ONE.encode()).hexdigest()}
  models: ["fake", "team-*"]
- name: admin
  token: {ADMIN}
  admin: [repository]
"""
SERVICE = "/inference.GRPCInferenceService/"


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A tokens file whose changes are seen at the next call."""
    monkeypatch.setattr(tokens, "RECHECK_S", 0)
    path = tmp_path / "tokens.yaml"
    path.touch(0o600)
    path.write_text(FILE)
    return path


@pytest.fixture
def running(file: pathlib.Path, start_fake: StartFake) -> Running:
    return start_fake(server=f"auth: {{tokens_file: {file}}}")


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def infer(
    running: Running, token: str | None = None, model: str = "fake", headers: dict[str, str] | None = None
) -> object:
    x = given("x", np.zeros(1, np.float32))
    return running.client.infer(model, [x], headers=headers or bearer(token)).as_numpy("y").tolist()


def refusals(running: Running, token: str = ALL) -> dict[str, int]:
    with urllib.request.urlopen(urllib.request.Request(f"{running.http}/metrics", headers=bearer(token))) as response:
        lines = [line for line in response.read().decode().splitlines() if line.startswith("trtnode_refused")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}


@pytest.fixture
def stream(running: Running) -> Iterator[Callable[..., grpc.Call]]:
    """Send a request for each model on one stream; bytes are sent as they are."""
    with grpc.insecure_channel(running.address) as channel:

        def send(token: str, names: Iterable[str | bytes], **metadata: str) -> grpc.Call:
            requests = (name if isinstance(name, bytes) else streamed(name).SerializeToString() for name in names)
            call = channel.stream_stream(
                SERVICE + "ModelStreamInfer", response_deserializer=protos.ModelStreamInferResponse.FromString
            )
            return call(requests, metadata=[*bearer(token).items(), *metadata.items()], timeout=120)

        yield send


def streamed(name: str) -> protos.ModelInferRequest:
    request = protos.ModelInferRequest(model_name=name, id=f"for {name}", raw_input_contents=[bytes(4)])
    request.inputs.add(name="x", datatype="FP32", shape=[1])
    return request
