"""Measures an ensemble beside a client that calls its models: ``python -m benchmarks.serving.ensembles [--network N]``.

The models: a uint8 image to float32 in another size, a network, and the best five classes. Each figure is a median over
requests, taken in turns. The client hands bytes on as it gets them, so it does the least that a client can.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

import grpc
import numpy as np
import onnx
import onnx_ir as ir

from benchmarks.serving.servers import free_address, process
from trtnode.bench.load.client_process import UNLIMITED
from trtnode.bench.networks.builder import NetworkBuilder
from trtnode.bench.networks.catalogue import network_file
from trtnode.engines.artifact.files import write_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.options import RunOptions
from trtnode.protos import ModelInferRequest, ModelInferResponse

SIZE = (256, 256)
NETWORKS = pathlib.Path("~/.cache/trtnode/networks")
RPC = "/inference.GRPCInferenceService/ModelInfer"
LEAST_GAIN, MOST_OVER = 1.5, 1.15
HEAD = '<ir_version: 10, opset_import: ["": 18]>'
RESIZE = """g (uint8[N, 256, 256, 3] raw) => (float[N, 3, 224, 224] pixels)
    <float most = {255}, int64[2] size = {224, 224}> {
    numbers = Cast<to = 1>(raw)
    planes = Transpose<perm = [0, 3, 1, 2]>(numbers)
    resized = Resize<mode = "linear", axes = [2, 3]>(planes, , , size)
    pixels = Div(resized, most)
}"""
BEST = """g (float[N, 1000] logits) => (float[N, 5] scores, int64[N, 5] classes) <int64[1] k = {5}> {
    probabilities = Softmax(logits)
    scores, classes = TopK(probabilities, k)
}"""
STEPS = (("resize", "raw", "pixels"), ("network", "image", "logits"), ("best", "logits", "scores"))
"""Each model, its input, and the output that the next one takes."""

Call = Callable[[str, str, str, list[int], bytes], tuple[list[int], bytes]]
"""Asks a model, given the name, type, shape and bytes of its input; returns the shape and bytes of its first output."""


def main() -> int:
    """Measure, print, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="small", help="small, or a network of trtnode bench, such as resnet50")
    parser.add_argument("--requests", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trtnode-ensembles-") as name:
        folder = pathlib.Path(name)
        repository = _write_repository(folder, arguments.network)
        others_ms = sum(_native_ms(repository / step / "1" / "model.onnx") for step in ("resize", "best"))
        times = _measured(folder, repository, arguments.requests)
    gain, over = times["three calls"] / times["ensemble"], times["ensemble"] / (times["network alone"] + others_ms)
    print(
        ", ".join(f"{name} {ms:.2f} ms" for name, ms in times.items()), f"resize and best natively {others_ms:.2f} ms"
    )
    print(f"gain over three calls {gain:.2f} (at least {LEAST_GAIN}); of the network and the others {over:.2f}"
          f" (at most {MOST_OVER})")  # fmt: skip
    return int(gain < LEAST_GAIN or over > MOST_OVER)


def _write_repository(folder: pathlib.Path, network: str) -> pathlib.Path:
    repository = folder / "repository"
    for step, text in (("resize", RESIZE), ("best", BEST), ("network", "")):
        file = repository / step / "1" / "model.onnx"
        file.parent.mkdir(parents=True)
        if text:
            onnx.save(onnx.parser.parse_model(HEAD + text), file)
        elif network == "small":
            write_model(ir.to_proto(_small_network()), file)
        else:
            shutil.copy(network_file(network, NETWORKS.expanduser()), file)
    taken, steps = "raw", []
    for step, source, result in STEPS:
        maps = (
            f'input_map {{ key: "{source}" value: "{taken}" }} output_map {{ key: "{result}" value: "{result}{step}" }}'
        )
        steps.append(f'{{ model_name: "{step}" {maps} }}')
        taken = f"{result}{step}"
    ensemble = f'platform: "ensemble" ensemble_scheduling {{ step [ {", ".join(steps)} ] }}'
    (repository / "ensemble").mkdir()
    (repository / "ensemble" / "config.pbtxt").write_text(ensemble)
    return repository


def _small_network() -> ir.Model:
    """Build a network of residual blocks, with an eighth of the channels of ResNet-18."""
    net = NetworkBuilder("small")
    x = net.op("Relu", net.conv(net.input("image", 3, 224, 224), 8, 7, stride=4))
    for width in (8, 16, 32, 64):
        x = net.op("Relu", net.conv(x, width, 3, stride=2))
        x = net.op("Relu", net.op("Add", x, net.conv(x, width, 3)))
    return net.finish(logits=net.linear(net.global_pool(x), 1000))


def _measured(folder: pathlib.Path, repository: pathlib.Path, requests: int) -> Mapping[str, float]:
    """Return the median time of a request in milliseconds, by the way in which it is answered."""
    address, web = free_address(), free_address().rpartition(":")[2]
    settings = folder / "server.yaml"
    port = address.rpartition(":")[2]
    settings.write_text(f"server: {{grpc: {{port: {port}}}, http: {{port: {web}}}}}\ncache: {{dir: {folder}/cache}}\n")
    command = ["trtnode", "serve", "--model-repository", str(repository), "--config", str(settings)]
    image = np.random.default_rng(0).integers(0, 256, (1, *SIZE, 3), np.uint8)
    with (
        process("trtnode", [sys.executable, "-m", *command], address, folder),
        grpc.insecure_channel(address, options=UNLIMITED) as channel,
    ):
        call = _caller(channel)
        first = (list(image.shape), image.tobytes())
        pixels = call("resize", "raw", "UINT8", *first)

        def three_calls() -> None:
            logits = call("network", "image", "FP32", *call("resize", "raw", "UINT8", *first))
            call("best", "logits", "FP32", *logits)

        ways: dict[str, Callable[[], object]] = {
            "ensemble": lambda: call("ensemble", "raw", "UINT8", *first),
            "three calls": three_calls,
            "network alone": lambda: call("network", "image", "FP32", *pixels),
        }
        return _medians(ways, requests)


def _caller(channel: grpc.Channel) -> Call:
    serialize = ModelInferRequest.SerializeToString
    infer = channel.unary_unary(RPC, request_serializer=serialize, response_deserializer=ModelInferResponse.FromString)

    def call(model: str, name: str, datatype: str, shape: list[int], content: bytes) -> tuple[list[int], bytes]:
        tensor = {"name": name, "datatype": datatype, "shape": shape}
        answer = infer(ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[content]))
        return list(answer.outputs[0].shape), answer.raw_output_contents[0]

    return call


def _native_ms(file: pathlib.Path) -> float:
    """Return the median time of a run of one row natively, in milliseconds."""
    executable = open_model(file, None, RunOptions(), use_engines=False)
    (tensor,) = executable.inputs
    shape = [size if isinstance(size, int) else 1 for size in tensor.shape or ()]
    assert tensor.dtype is not None
    feeds = {tensor.name: np.zeros(shape, tensor.dtype.numpy())}
    try:
        return _medians({"": lambda: executable.run(feeds)}, 100)[""]
    finally:
        executable.close()


def _medians(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(taken) for name, taken in times.items()}


if __name__ == "__main__":
    sys.exit(main())
