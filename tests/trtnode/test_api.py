"""``import trtnode``: the whole product as five names."""

from __future__ import annotations

import importlib.metadata
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

import trtnode
from trtnode.partitioner.errors import ModelFileError
from trtnode.serving.errors import InvalidOptionError, ServingError

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "digits"
DIGITS = EXAMPLE / "digits.onnx"


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_version_is_that_of_the_package() -> None:
    assert trtnode.__version__ == importlib.metadata.version("trtnode")


def test_explain_tells_what_would_run_where() -> None:
    report = trtnode.explain(DIGITS, engine="openvino")

    assert (len(report.segments), len(report.native)) == (1, 0)


def test_a_compiled_file_answers_as_the_model_does(tmp_path: pathlib.Path) -> None:
    compiled = trtnode.compile(DIGITS, tmp_path / "compiled.onnx", engine="openvino")
    samples = np.load(EXAMPLE / "test.npz")
    feeds = {"image": samples["image"][:4]}

    with_engines = trtnode.load(tmp_path / "compiled.onnx").run(feeds)
    natively = trtnode.load(DIGITS, native=True).run(feeds)

    assert compiled.report.segments
    assert with_engines.keys() == natively.keys()
    for name, expected in natively.items():
        np.testing.assert_allclose(with_engines[name], expected, rtol=1e-4, atol=1e-5)


def test_serve_answers_until_the_end_of_its_block() -> None:
    serving = trtnode.serve(DIGITS, engine="native", name="m", port=0, http_port=0)
    with serving as server, triton.InferenceServerClient(server.address) as client:
        assert client.is_model_ready("m")

    with triton.InferenceServerClient(server.address) as client:
        assert not is_live(client)


def test_serve_follows_a_configuration(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "servable.yaml"
    config.write_text(f"cache: {{dir: cache}}\nmodels: [{{name: configured, path: {DIGITS}, engine: native}}]\n")

    with trtnode.serve(config, port=0, http_port=0) as server, triton.InferenceServerClient(server.address) as client:
        assert client.is_model_ready("configured")


def test_what_cannot_be_done_is_an_error_of_the_project(tmp_path: pathlib.Path) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no model")

    with pytest.raises(ModelFileError):
        trtnode.explain(damaged)
    with pytest.raises(InvalidOptionError):
        trtnode.serve(tmp_path / "gone.onnx")
    with pytest.raises(ServingError, match="didn't load"):
        trtnode.serve(damaged, port=0, http_port=0)


def test_the_import_costs_no_library() -> None:
    script = "import sys, trtnode; print([n for n in ('numpy', 'onnx', 'onnxruntime', 'grpc') if n in sys.modules])"

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert found.stdout == "[]\n"


def is_live(client: triton.InferenceServerClient) -> bool:
    try:
        return bool(client.is_server_live(client_timeout=1))
    except InferenceServerException:
        return False
