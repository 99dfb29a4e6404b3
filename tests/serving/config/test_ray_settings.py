"""Settings about a Ray cluster in servable.yaml."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError

MODEL = "models:\n- name: a\n  path: m.onnx\n"
Write = Callable[[str | bytes], pathlib.Path]


def test_scaling_is_refused_where_no_cluster_serves(write: Write) -> None:
    path = write(MODEL + "  scaling: {replicas: 2}\n")

    with pytest.raises(ConfigError, match=r"servable.yaml:4: models\[0\].scaling: .*--on ray"):
        load_config(path, {})


def test_a_model_on_a_cluster_may_have_several_replicas(write: Write) -> None:
    path = write(MODEL + "  scaling: {replicas: 2, min: 1, max: 4}\n")

    (model,) = load_config(path, {}, on_ray=True).models

    assert model.scaling is not None
    assert (model.scaling.least, model.scaling.replicas, model.scaling.most) == (1, 2, 4)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(MODEL + "server: {grpc: {workers: 2}}", r":4: server.grpc.workers: is about one", id="workers"),
        pytest.param(MODEL + "server: {grpc: {port: 0}}", r":4: server.grpc.port: should be a fixed", id="port"),
        pytest.param(MODEL + "server: {http: {port: 0}}", r":4: server.http.port: should be a fixed", id="http-port"),
        pytest.param(MODEL + "server: {admin: {repository: true}}", r"server.admin.repository: changes", id="admin"),
        pytest.param(MODEL + "server: {grpc: {tls: {cert: c, key: k}}}", r"server.grpc.tls: .*encrypt in", id="tls"),
        pytest.param(
            MODEL + "server: {limits: {http_connections: 9}}", r"limits.http_connections: holds for a plain", id="limit"
        ),
        pytest.param(MODEL + "  scaling: {min: 2}", r":4: models\[0\].scaling.min: has no effect", id="min-alone"),
        pytest.param(MODEL + "  scaling: {min: 2, max: 3}", r"scaling.min: is more than replicas", id="min"),
        pytest.param(MODEL + "  scaling: {replicas: 3, max: 2}", r"scaling.max: is less than", id="max"),
        pytest.param(MODEL + "  scaling: {replicas: 0}", r":4: models\[0\].scaling.replicas: should be", id="none"),
    ],
)
def test_what_a_cluster_cant_follow_is_told_with_file_line_and_field(write: Write, text: str, fault: str) -> None:
    path = write(text)

    with pytest.raises(ConfigError, match=fault):
        load_config(path, {}, on_ray=True)


def test_a_cluster_serves_a_configuration_and_no_single_file() -> None:
    command = [sys.executable, "-m", "trtnode", "serve", "model.onnx", "--on", "ray"]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "--on: serves a servable.yaml" in ended.stderr
