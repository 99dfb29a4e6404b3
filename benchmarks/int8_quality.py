"""Measures what INT8 costs in answers: ``python -m benchmarks.int8_quality [MODEL...] [--draws 5]``.

Each draw takes other samples to calibrate on. The answers of the quantized model in OpenVINO are compared with those of
the float model: share of equal best classes, signal-to-noise ratio, and accuracy where there are labels. The rows are
the ranges that calibration can give: the extremes of all samples, their means, and these with scaled channels (the
default). Models and pictures come from the collection that TRTNODE_MODEL_COLLECTION names, and from scikit-learn.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import onnx
import PIL.Image
import sklearn.datasets
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.partition import collection
from benchmarks.tune import WIDTH
from trtnode.bench.environment import describe_environment
from trtnode.bench.latency.openers import open_openvino
from trtnode.engines.inputs.source import cleaned
from trtnode.engines.quantization.calibrator import calibrate
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.quantization.qdq_writer import quantize, scheme_for
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.partitioner.graph.extraction import extract_model

CALIBRATED = 60
"""Samples of a draw."""

PICTURES_EVALUATED, DIGITS_EVALUATED = 100, 1000
"""Samples that no draw takes."""

SIZE = 224
"""Pixels along a side of the pictures for networks of ImageNet."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A float model with inputs.

    Attributes:
        model: The file.
        inputs: Samples, shuffled; the first ones are to evaluate on.
        evaluated: Number of these.
        labels: Of all samples, if they are known.
    """

    model: pathlib.Path
    inputs: np.ndarray
    evaluated: int
    labels: np.ndarray | None = None


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.int8_quality", description="what INT8 costs")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(SUBJECTS)}; default: all of them")
    parser.add_argument("--draws", type=int, default=5, help="sets of calibration samples; default: 5")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first draw; default: 0")
    options = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    environment = describe_environment()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    table = Table("model", "ranges", "agreement, %", "SQNR, dB", "points lost", title=f"means of {options.draws} draws")
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as folder:
        for name in options.models or SUBJECTS:
            rows = _measure(
                SUBJECTS[name](pathlib.Path(folder)),
                range(options.seed, options.seed + options.draws),
                pathlib.Path(folder),
            )
            for ranges, figures in rows.items():
                table.add_row(name, ranges, *("-" if np.isnan(f).any() else _mean(f) for f in np.transpose(figures)))
    console.print(table)
    return 0


def _measure(
    subject: Subject, draws: Iterable[int], folder: pathlib.Path
) -> dict[str, list[tuple[float, float, float]]]:
    """Return agreement, SQNR and lost points of each draw, by form of the ranges."""
    graph, evaluated = cleaned(subject.model, ()), subject.inputs[: subject.evaluated]
    model = extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=graph.outputs)
    name, path = graph.inputs[0].name or "", folder / "quantized.onnx"
    labels = None if subject.labels is None else subject.labels[: subject.evaluated]
    expected = _answers(subject.model, name, evaluated)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for draw in draws:
        rest = subject.inputs[subject.evaluated :]
        chosen = np.random.default_rng(draw).permutation(len(rest))[:CALIBRATED]
        np.savez(folder / "draw.npz", allow_pickle=False, **{name: rest[chosen]})
        for ranges, table in _tables(subject.model, CalibrationDataset(folder / "draw.npz")):
            onnx.save(quantize(model, table, scheme_for("openvino")), path)
            rows.setdefault(ranges, []).append(_figures(expected, _answers(path, name, evaluated), labels))
    return rows


def _tables(model: pathlib.Path, dataset: CalibrationDataset) -> Iterator[tuple[str, CalibrationTable]]:
    mean = calibrate(model, dataset)
    yield "extremes", dataclasses.replace(calibrate(model, dataset, method="minmax"), factors={}, scaled_ranges={})
    yield "means of extremes", dataclasses.replace(mean, factors={}, scaled_ranges={})
    yield "and scaled channels", mean


def _answers(model: pathlib.Path, name: str, inputs: np.ndarray) -> np.ndarray:
    run = open_openvino(model, 1)
    return np.stack([np.array(next(iter(run({name: row[None]})))).reshape(-1) for row in inputs])


def _figures(expected: np.ndarray, actual: np.ndarray, labels: np.ndarray | None) -> tuple[float, float, float]:
    agreement = float((expected.argmax(1) == actual.argmax(1)).mean())
    sqnr = 10 * float(np.log10(np.square(expected).sum() / np.square(expected - actual).sum()))
    right = [np.nan] * 2 if labels is None else [float((a.argmax(1) == labels).mean()) for a in (expected, actual)]
    return 100 * agreement, sqnr, 100 * (right[0] - right[1])


def _mean(figures: np.ndarray) -> str:
    return f"{figures.mean():.2f} ({figures.min():.2f} to {figures.max():.2f})"


def _digits(name: str) -> Callable[[pathlib.Path], Subject]:
    def subject(_folder: pathlib.Path) -> Subject:
        data = np.load(collection.folder() / "images" / "mnist" / "digits.npz")
        images, model = data["images"][:, None].astype(np.float32), collection.folder() / "models" / name / "model.onnx"
        return Subject(model=model, inputs=images, evaluated=DIGITS_EVALUATED, labels=data["labels"])

    return subject


def _squeezenet(folder: pathlib.Path) -> Subject:
    path = folder / "squeezenet.onnx"
    path.write_bytes(
        gzip.decompress((collection.folder() / "models" / "squeezenet_fp32" / "model.onnx.gz").read_bytes())
    )
    blue_first = _pictures()[..., ::-1].astype(np.float32) - np.array([104, 117, 123], np.float32)
    return _surest_first(path, np.ascontiguousarray(blue_first.transpose(0, 3, 1, 2)))


def _mobilenet(folder: pathlib.Path) -> Subject:
    path = folder / "mobilenet.onnx"
    onnx.save(_dequantized(onnx.load(collection.folder() / "models" / "mobilenetv2_12_qdq" / "model.onnx")), path)
    pixels = (_pictures() / np.float32(255) - np.array([0.485, 0.456, 0.406], np.float32)) / np.array(
        [0.229, 0.224, 0.225], np.float32
    )
    return _surest_first(path, np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def _surest_first(model: pathlib.Path, inputs: np.ndarray) -> Subject:
    """Put samples in front whose largest logit stands out: crops of anything have no class to agree about."""
    logits = _answers(model, cleaned(model, ()).inputs[0].name or "", inputs)
    top = np.sort(logits, axis=1)
    half = np.argsort(top[:, -2] - top[:, -1])[: 2 * PICTURES_EVALUATED]
    chosen = np.random.default_rng(0).permutation(half)[:PICTURES_EVALUATED]
    rest = np.delete(inputs, chosen, axis=0)
    return Subject(model=model, inputs=np.concatenate([inputs[chosen], rest]), evaluated=len(chosen))


def _pictures() -> np.ndarray:
    """Return crops of photos, and small pictures enlarged: uint8[280, 224, 224, 3]."""
    rng, images = np.random.default_rng(0), collection.folder() / "images"
    photos = [PIL.Image.fromarray(image) for image in sklearn.datasets.load_sample_images().images]
    photos += [PIL.Image.open(path).convert("RGB") for path in sorted((images / "photos").iterdir())]
    small = [PIL.Image.open(path) for path in sorted((images / "cifar10").glob("*.jpg"))[::3]]
    crops = [_crop(photos[index % len(photos)], rng) for index in range(180)]
    resized = [
        np.asarray(i.convert("RGB").resize((SIZE, SIZE), PIL.Image.Resampling.BICUBIC)) for i in (*crops, *small)
    ]
    return np.stack(resized)[rng.permutation(len(resized))]


def _crop(photo: PIL.Image.Image, rng: np.random.Generator) -> PIL.Image.Image:
    side = int(min(photo.size) * rng.uniform(0.4, 1))
    left, top = (int(rng.integers(0, length - side + 1)) for length in photo.size)
    return photo.crop((left, top, left + side, top + side))


def _dequantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of Q/DQ nodes in float: weights as they are stored, and Clip where a convolution's result has one.

    The collection has trained weights of MobileNetV2 in this form alone.
    """
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    convolutions = {node.output[0] for node in model.graph.node if node.op_type == "Conv"}
    same: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        source, result = node.input[0], node.output[0]
        if node.op_type == "DequantizeLinear" and source in constants:
            step, zero = (constants[name].astype(np.float32) for name in node.input[1:])
            constants[result] = (constants[source].astype(np.float32) - zero) * step
        elif node.op_type == "QuantizeLinear" and source in convolutions and not constants[node.input[2]].any():
            same[result] = f"{result}_clipped"
            nodes.append(onnx.helper.make_node("Clip", [source, "zero", "six"], [same[result]]))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            same[result] = same.get(source, source)
        else:
            nodes.append(onnx.helper.make_node(node.op_type, [same.get(i, i) for i in node.input], node.output))
            nodes[-1].attribute.extend(node.attribute)
    constants |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    used = {name for node in nodes for name in node.input}
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in used]
    graph = onnx.helper.make_graph(nodes, "float", model.graph.input, model.graph.output, tensors)
    floats = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
    floats.opset_import.extend(opset for opset in model.opset_import if not opset.domain)
    return floats


SUBJECTS: Mapping[str, Callable[[pathlib.Path], Subject]] = {
    "mnist_cntk": _digits("mnist_cntk"),
    "mnist_pytorch": _digits("mnist_pytorch"),
    "squeezenet": _squeezenet,
    "mobilenetv2": _mobilenet,
}


if __name__ == "__main__":
    sys.exit(main())
