"""The files of deploy/, as far as they can be tried without a container engine, a cluster and Grafana."""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from prometheus_client import generate_latest

import trtnode
from trtnode.serving.cli.serve import SERVE
from trtnode.serving.config.command_line import config_from
from trtnode.serving.config.load import load_config
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.workers.merged_metrics import MergedMetrics
from unprivileged import become

ROOT = pathlib.Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DIGITS = ROOT / "examples/digits/digits.onnx"
BUILDER, SERVER = 54321, 54322
"""Users of the two stages."""
PLACES = re.compile(r"(?<![\w.}])/(?=(opt|src|cache|etc|models|tmp)\b)")
"""The beginnings of absolute paths of a container."""
PROPRIETARY = ("tensorrt", "nvidia", "pycuda", "cuda")


def instructions() -> Iterator[tuple[str, str]]:
    """Yield name and arguments of each instruction of the Dockerfile."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def manifests() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
    return {one["kind"]: one for one in documents}


def container() -> dict[str, Any]:
    (found,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found  # type: ignore[no-any-return]


@pytest.fixture
def config(tmp_path: pathlib.Path) -> ServableConfig:
    """The configuration in the image, with the example's place here."""
    return read((DEPLOY / "servable.yaml").read_text(encoding="utf-8"), tmp_path)


def read(text: str, folder: pathlib.Path) -> ServableConfig:
    (folder / "servable.yaml").write_text(text.replace("/models/digits.onnx", str(DIGITS)))
    return load_config(folder / "servable.yaml")


def test_the_image_and_the_cluster_have_one_configuration(config: ServableConfig, tmp_path: pathlib.Path) -> None:
    assert read(manifests()["ConfigMap"]["data"]["servable.yaml"], tmp_path) == config
    assert config.server.http.host == "0.0.0.0"


def test_the_image_runs_without_rights() -> None:
    found = dict(instructions())

    assert int(found["USER"].partition(":")[0]) > 0
    assert found["STOPSIGNAL"] == "SIGTERM"
    assert sum(name == "FROM" for name, _ in instructions()) == 2


def test_the_deployment_is_what_a_cluster_asks_of_it(config: ServableConfig) -> None:
    deployment, service = manifests()["Deployment"], manifests()["Service"]
    pod, limits = deployment["spec"]["template"]["spec"], config.server.limits
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    memory_mb = int(container()["resources"]["limits"]["memory"].removesuffix("Gi")) << 10

    assert deployment["spec"]["selector"]["matchLabels"].items() <= service["spec"]["selector"].items()
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert ports == {"grpc": config.server.grpc.port, "http": config.server.http.port}
    assert {one["targetPort"] for one in service["spec"]["ports"]} == ports.keys()
    assert {mount["name"] for mount in container()["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    wait_s = int(container()["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] > wait_s + config.server.shutdown_grace_s
    assert manifests()["PodDisruptionBudget"]["spec"]["selector"] == deployment["spec"]["selector"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container()["securityContext"]["readOnlyRootFilesystem"]
    assert (limits.load_memory_mb or memory_mb) + (limits.model_memory_mb or memory_mb) <= memory_mb


def test_the_server_reads_the_model_that_the_init_container_puts_into_a_volume(config: ServableConfig) -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    (fetching,) = pod["initContainers"]
    (written,) = fetching["volumeMounts"]
    (read,) = (mount for mount in container()["volumeMounts"] if mount["name"] == written["name"])
    _, source, target = fetching["command"]
    copied = {rest.split()[1] for name, rest in instructions() if name == "COPY" and rest.startswith("examples/")}

    assert source in copied
    assert target.rstrip("/") == written["mountPath"]
    assert f"{read['mountPath']}/{pathlib.PurePath(source).name}" == source
    assert read["readOnly"]
    assert fetching["securityContext"] == container()["securityContext"]
    assert config.models[0].path.name == pathlib.PurePath(source).name


@pytest.mark.parametrize(("probe", "path"), [("startup", "readyz"), ("readiness", "readyz"), ("liveness", "livez")])
def test_probes_ask_what_the_server_answers(probe: str, path: str) -> None:
    assert container()[f"{probe}Probe"]["httpGet"] == {"path": f"/{path}", "port": "http"}


@pytest.fixture
def ray_service() -> dict[str, Any]:
    """The manifests for KubeRay, by kind."""
    documents = yaml.safe_load_all((DEPLOY / "ray/rayservice.yaml").read_text(encoding="utf-8"))
    return {one["kind"]: one for one in documents}


def test_the_ray_service_is_what_kuberay_asks_of_it(ray_service: dict[str, Any], tmp_path: pathlib.Path) -> None:
    text = ray_service["ConfigMap"]["data"]["servable.yaml"].replace("/models/digits.onnx", str(DIGITS))
    (tmp_path / "servable.yaml").write_text(text)
    config = load_config(tmp_path / "servable.yaml", on_ray=True)
    spec = ray_service["RayService"]["spec"]
    serve = yaml.safe_load(spec["serveConfigV2"])
    ports = {"grpc": config.server.grpc.port, "serve": config.server.http.port}  # KubeRay asks the port "serve"
    cluster = spec["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    (application,) = serve["applications"]

    assert (serve["grpc_options"]["port"], serve["http_options"]["port"]) == tuple(ports.values())
    assert {one["name"]: one["targetPort"] for one in spec["serveService"]["spec"]["ports"]} == ports
    assert application["args"] == {"config": "/etc/trtnode/servable.yaml"}
    for group in (cluster["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert ports.items() <= {one["name"]: one["containerPort"] for one in container["ports"]}.items()
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
        assert {"mountPath": "/etc/trtnode", "name": "config", "readOnly": True} in container["volumeMounts"]
        assert pod["securityContext"]["runAsNonRoot"]
    assert workers["template"]["spec"]["terminationGracePeriodSeconds"] > config.server.shutdown_grace_s
    scaling = config.models[0].scaling
    assert scaling is not None
    assert scaling.least * scaling.cpus <= workers["minReplicas"] * int(workers["rayStartParams"]["num-cpus"])
    assert scaling.most * scaling.cpus <= workers["maxReplicas"] * int(workers["rayStartParams"]["num-cpus"])
    assert f"ray[serve-grpc]=={cluster['rayVersion']}" in (DEPLOY / "ray/Dockerfile").read_text(encoding="utf-8")


def test_compose_starts_the_same_server() -> None:
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"].values()
    folder = DEPLOY / service["build"]["context"]
    mounts = [volume.split(":") for volume in service["volumes"]]

    assert (folder / service["build"]["dockerfile"]).is_file()
    assert [source for source, *_ in mounts if source.startswith(".") and not (DEPLOY / source).exists()] == []
    assert service["user"] == dict(instructions())["USER"]
    assert service["read_only"]


def test_dashboard_and_alerts_ask_for_what_a_server_exports(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    panels = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))["panels"]
    alerts = yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    queries = " ".join(
        [*(target["expr"] for panel in panels for target in panel["targets"]), *(one["expr"] for one in alerts)]
    )
    with (
        trtnode.serve(DIGITS, engine="native", port=0, http_port=0) as server,
        urllib.request.urlopen(f"http://{server.http_address}/metrics") as answer,
    ):
        exported = answer.read().decode()
    exported += generate_latest(MergedMetrics(dict, int).registry).decode()  # what only several workers have

    asked = set(re.findall(r"\b(?:nv|trtnode|process)_\w+", queries))
    labels = {label for group in re.findall(r"by \(([^)]*)\)", queries) for label in group.split(", ")}

    assert asked <= set(re.findall(r"^(?:# TYPE )?(\w+)", exported, re.MULTILINE))
    assert labels - {"job"} <= set(re.findall(r'[{,](\w+)="', exported))
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


@pytest.fixture(scope="module")
def root() -> Iterator[pathlib.Path]:
    """A folder in place of the image's root, in which the Dockerfile's instructions were run without rights.

    Only trtnode is installed there. What it needs comes from this environment: downloads would take minutes.
    """
    with tempfile.TemporaryDirectory(prefix="image") as folder:  # all may pass through its parents
        yield furnished(pathlib.Path(folder))


def furnished(folder: pathlib.Path) -> pathlib.Path:
    """Run the instructions in a folder and return it."""
    folder.chmod(0o777)
    for name in ("src", "tmp"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
    kept = (line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!"))
    for name in kept:
        copy(ROOT / name, folder / "src" / name)
    for name, rest in instructions():
        if name == "RUN":
            run(folder, rest)
            for packages in folder.glob("opt/trtnode/lib/python*/site-packages"):
                (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        elif name == "COPY" and not rest.startswith("--from=") and rest != ". .":
            source, target = rest.split()
            copy(folder / "src" / source, inside(folder, target))
    settings = folder / "etc/trtnode/servable.yaml"
    settings.write_text(inside(folder, settings.read_text()))
    for path in folder.rglob("*"):
        if not path.is_symlink() and path.name not in ("cache", "tmp"):
            path.chmod(path.stat().st_mode & 0o555)
    return folder


def inside(folder: pathlib.Path, text: str) -> str:
    """Return a text whose absolute paths are below a folder."""
    return PLACES.sub(f"{folder}/", text)


def copy(source: pathlib.Path, target: pathlib.Path | str) -> None:
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def environment(folder: pathlib.Path) -> dict[str, str]:
    """Return the variables that the Dockerfile sets, and pip's settings of this machine, but no HOME."""
    found = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "LANG"))}
    found["PIP_NO_BUILD_ISOLATION"] = "0"  # which turns it off
    found["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name, rest in instructions():
        if name == "ENV":
            found |= {key: os.path.expandvars(inside(folder, value)) for key, value in re.findall(r"(\w+)=(\S+)", rest)}
    return found


def run(folder: pathlib.Path, command: str) -> None:
    done = subprocess.run(
        [*unprivileged(BUILDER), "sh", "-c", inside(folder, command)], cwd=folder / "src", env=environment(folder),
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_the_image_has_no_proprietary_library() -> None:
    (extras,) = (re.findall(r"\.\[(.*)\]", rest)[0] for name, rest in instructions() if name == "RUN" and ".[" in rest)

    needed = requirements("trtnode", extras.split(","))

    assert needed >= {"openvino", "onnxruntime", "pillow", "opentelemetry-sdk"}
    assert [name for name in needed if name.startswith(PROPRIETARY)] == []


def requirements(package: str, extras: Sequence[str] = ("",)) -> set[str]:
    """Return the names of all that pip would install for a package."""
    found: set[str] = set()
    wanted = [(package, "")] + [(package, extra) for extra in extras]
    seen: set[tuple[str, str]] = set()
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found.add(name)
        for one in map(Requirement, importlib.metadata.requires(name) or ()):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                wanted += [(one.name.lower(), more) for more in ("", *one.extras)]
    return found


@pytest.mark.release
def test_any_user_runs_it_and_it_writes_to_the_cache_and_temporary_files_alone(root: pathlib.Path) -> None:
    found, http = dict(instructions()), free_port()
    command = [inside(root, part) for part in (*json.loads(found["ENTRYPOINT"]), *json.loads(found["CMD"]))]
    ports = ["--host", "127.0.0.1", "--port", str(free_port()), "--http-port", str(http)]
    check = json.loads(found["HEALTHCHECK"].partition("CMD ")[2].replace("8002", str(http)))
    before = written(root)
    body = json.dumps(
        {"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.5] * 64}]}
    ).encode()

    server = subprocess.Popen(
        [*unprivileged(SERVER), *command, *ports], cwd=root / "models", env=environment(root),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        while subprocess.run(check, env=environment(root), capture_output=True).returncode:
            assert server.poll() is None, server.communicate()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/v2/models/digits/infer", body) as answer:
            shape = json.load(answer)["outputs"][0]["shape"]
    finally:
        server.send_signal(signal.SIGTERM)
        printed, _ = server.communicate(timeout=120)

    assert shape == [1, 10]
    assert server.returncode == 0, printed
    assert {file.stat().st_uid for file in (root / "cache/trtnode").rglob("*")} == {server_user()}
    assert {path.relative_to(root).parts[0] for path in written(root) - before} <= {"cache", "tmp"}


def unprivileged(user: int) -> list[str]:
    return become(user) if os.geteuid() == 0 else []


def server_user() -> int:
    return SERVER if os.geteuid() == 0 else os.geteuid()


def written(folder: pathlib.Path) -> set[pathlib.Path]:
    return set(folder.rglob("*"))


@pytest.fixture
def kserve() -> dict[str, Any]:
    """The manifests for KServe, by kind."""
    documents = yaml.safe_load_all((DEPLOY / "kserve.yaml").read_text(encoding="utf-8"))
    return {one["kind"]: one for one in documents}


@pytest.mark.parametrize("form", ["model.onnx", "1/model.onnx", "digits/1/model.onnx"])
def test_the_runtime_of_kserve_serves_what_is_mounted(
    form: str, kserve: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    (container,) = kserve["ServingRuntime"]["spec"]["containers"]
    file = tmp_path / "mnt/models" / form
    file.parent.mkdir(parents=True)
    shutil.copy(DIGITS, file)
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)
    (tmp_path / "server.yaml").write_text(kserve["ConfigMap"]["data"]["server.yaml"])
    places = {"/mnt/models": f"{tmp_path}/mnt/models", "/etc/trtnode": str(tmp_path), "{{.Name}}": "letters"}
    command, *arguments = [
        functools.reduce(lambda text, one: text.replace(*one), places.items(), one) for one in container["args"]
    ]

    config = config_from(parser.parse_args(arguments))

    assert command == "serve"
    assert [model.name for model in config.models] == ["letters"]
    assert config.server.http.port == container["ports"][0]["containerPort"] == 8080
    limits, memory_mb = config.server.limits, int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 10
    assert (limits.load_memory_mb or memory_mb) + (limits.model_memory_mb or memory_mb) <= memory_mb
    assert config.server.shutdown_delay_s + config.server.shutdown_grace_s < 30  # a pod's default
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in kserve["ServingRuntime"]["spec"]["volumes"]
    }


def test_the_service_of_kserve_names_the_runtime_and_a_protocol_of_it(kserve: dict[str, Any]) -> None:
    runtime, model = kserve["ServingRuntime"], kserve["InferenceService"]["spec"]["predictor"]["model"]

    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert model["modelFormat"]["name"] in {one["name"] for one in runtime["spec"]["supportedModelFormats"]}


def built(kind: str, value: Any, modules: Sequence[Any]) -> Any:
    """Return what JSON stands for in classes of Kubernetes' generated clients, which refuse what they don't know."""
    if kind.startswith("list["):
        return [built(kind[5:-1], one, modules) for one in value]
    model = next((getattr(module, kind) for module in modules if hasattr(module, kind)), None)
    if model is None or not isinstance(value, dict):
        return value
    names = {json_name: name for name, json_name in model.attribute_map.items()}
    assert value.keys() <= names.keys(), f"{kind} has no {value.keys() - names.keys()}"
    fields = {names[key]: built(model.openapi_types[names[key]], one, modules) for key, one in value.items()}
    return model(**fields)


@pytest.mark.parametrize(
    ("kind", "model"),
    [("ServingRuntime", "V1alpha1ServingRuntime"), ("InferenceService", "V1beta1InferenceService")],
)
def test_the_manifests_for_kserve_are_what_its_classes_take(kind: str, model: str, kserve: dict[str, Any]) -> None:
    library = pytest.importorskip("kserve", reason="package kserve isn't installed; it needs 60 others")
    kubernetes = pytest.importorskip("kubernetes.client")

    one = built(model, kserve[kind], (library, kubernetes))

    assert (one.kind, one.metadata.name) == (kind, kserve[kind]["metadata"]["name"])
