"""A servable.yaml that an earlier release could load must load for ever, and mean the same."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from trtnode.serving.config.load import load_config
from trtnode.serving.schema.model import LatestVersions, ModelConfig
from trtnode.serving.schema.pipeline import PreprocessConfig
from trtnode.serving.schema.server import ServableConfig

FIXTURE = pathlib.Path(__file__).parents[2] / "fixtures" / "0.1.0"

FILES = (
    "server.pem", "server.key", "clients.pem", "tokens.yaml", "digits.onnx", "samples.npz", "before.onnx", "after.onnx",
    "arrays/1/model.onnx", "arrays/3/model.onnx",
)  # fmt: skip
"""The files that the fixture names and whose content doesn't matter here."""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("servable.yaml", "labels.txt"):
        shutil.copy(FIXTURE / name, tmp_path)
    public_key = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "trusted.pem").write_bytes(public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def config(folder: pathlib.Path) -> ServableConfig:
    return load_config(folder / "servable.yaml", {})


def test_the_server_of_0_1_0_is_configured_as_it_was(config: ServableConfig, folder: pathlib.Path) -> None:
    server = config.server

    assert (server.grpc.host, server.grpc.port, server.grpc.workers, server.grpc.cores) == ("127.0.0.1", 8001, 2, 1)
    assert server.grpc.max_message_mb == 32
    assert server.grpc.tls is not None
    assert server.grpc.tls.client_ca == folder / "clients.pem"
    assert server.auth is not None
    assert server.auth.tokens_file == folder / "tokens.yaml"
    assert server.admin.model_dump() == {"repository": True, "shared_memory": True, "settings": True}
    assert (server.limits.max_requests, server.limits.streams) == (512, 32)
    assert (server.startup, server.shutdown_grace_s, server.log.format) == ("native", 12.5, "json")
    assert (config.cache.dir, config.trust.keys) == (folder / "engines", (folder / "trusted.pem",))


def test_the_models_of_0_1_0_are_served_as_they_were(config: ServableConfig) -> None:
    digits, arrays, everything = config.models

    assert [model.name for model in config.models] == ["digits", "arrays", "everything"]
    assert (digits.versions, arrays.versions, everything.versions) == (LatestVersions(), (1, 3), "all")
    assert (digits.options.engine, arrays.options.engine, everything.options.engine) == (
        "tensorrt",
        "openvino",
        "native",
    )
    assert [(rule.node, rule.op, rule.precision) for rule in digits.options.precision_rules] == [
        (None, "Softmax", "fp32"),
        ("/head/*", "Gemm", "fp16"),
    ]
    assert digits.batching is not None
    assert (digits.batching.preferred_batch_sizes, digits.batching.timeout_ms) == ((8, 16), 400)
    assert digits.options.shapes[0]["image"].max == (16, 1, 8, 8)
    assert (digits.options.tensorrt.cuda_graphs, digits.options.build_timeout_s) == (False, 600)


def test_the_pipeline_of_0_1_0_has_the_same_stages(config: ServableConfig, folder: pathlib.Path) -> None:
    assert kinds(config.models[0], folder) == [
        "decode", "color_order", "resize", "center_crop", "normalize", "layout", "cast", "before.onnx",
    ]  # fmt: skip
    assert [stage.kind for stage in config.models[0].postprocess[:2]] == ["softmax", "top_k"]


def kinds(model: ModelConfig, folder: pathlib.Path) -> list[str]:
    return [
        stage.kind if isinstance(stage, PreprocessConfig) else str(stage.relative_to(folder))
        for stage in model.preprocess
    ]
