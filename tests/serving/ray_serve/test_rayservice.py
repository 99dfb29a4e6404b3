"""The files of deploy/ray/, as far as they go without Kubernetes: Ray's ``serve run`` takes what KubeRay takes."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import yaml

from benchmarks.ray_cluster.served import ServedOnRay

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: make test-ray"),
]

ROOT = pathlib.Path(__file__).parents[3]
START_S = 240


def manifests() -> dict[str, Any]:
    documents = yaml.safe_load_all((ROOT / "deploy/ray/rayservice.yaml").read_text(encoding="utf-8"))
    return {one["kind"]: one for one in documents}


def test_serve_run_serves_what_the_manifest_says(tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path("/tmp") / f"run{os.getpid()}"
    folder.mkdir()
    ports = ServedOnRay(folder)
    servable = manifests()["ConfigMap"]["data"]["servable.yaml"]
    servable = servable.replace("/models", str(ROOT / "examples/digits")).replace("8001", str(ports.grpc))
    servable = servable.replace("replicas: 2, min: 2, max: 4, cpus: 1", "replicas: 1, cpus: 0.5")
    (folder / "servable.yaml").write_text(servable.replace("8002", str(ports.http)))
    asked = manifests()["RayService"]["spec"]["serveConfigV2"].replace("/etc/trtnode", str(folder))
    (folder / "serve.yaml").write_text(asked.replace("8001", str(ports.grpc)).replace("8002", str(ports.http)))
    own = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
    image = triton.InferInput("image", [1, 1, 8, 8], "FP32")
    image.set_data_from_numpy(np.zeros((1, 1, 8, 8), np.float32))

    with ports.log.open("wb") as log:
        environment = {**os.environ, **own, "XDG_CACHE_HOME": str(folder)}
        command = [sys.executable, "-m", "ray.serve.scripts", "run", folder / "serve.yaml"]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=tmp_path)
    try:
        deadline = time.monotonic() + START_S
        while ports.get("/readyz")[0] != 200:
            assert process.poll() is None, ports.log.read_text()
            assert time.monotonic() < deadline, ports.log.read_text()
            time.sleep(0.5)
        answer = triton.InferenceServerClient(f"127.0.0.1:{ports.grpc}").infer("digits", [image])
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)

    assert answer.as_numpy("probabilities").shape == (1, 10)
