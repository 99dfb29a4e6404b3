"""The networks that speed is measured on: what the papers say of them, their files, and what they compute."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from trtnode.bench.networks.builder import NetworkBuilder
from trtnode.bench.networks.catalogue import NETWORKS, UnknownNetworkError, network_file, sample_inputs
from trtnode.bench.networks.normalization import set_statistics
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import OutputFileError
from trtnode.engines.openvino.labels import label
from trtnode.partitioner.cut.cost_model import FLOPS, flops
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import partition_graph
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.passes.clean_up import clean_up

SMALL = ("lenet5", "mobilenetv2", "mobilenetv3", "widedeep")
"""Networks of less than a hundred megabytes, which a test may run."""

PUBLISHED = {
    "lenet5": (61_706, 0.4165e6),
    "alexnet": (61_100_840, 0.71e9),
    "resnet50": (25_557_032, 4.1e9),
    "vgg16": (138_357_544, 15.5e9),
    "inceptionv3": (23_834_568, 5.7e9),
    "mobilenetv2": (3_504_872, 300e6),
    "mobilenetv3": (5_483_032, 219e6),
    "bert": (109_482_240, 12 * 128 * (12 * 768**2 + 2 * 128 * 768)),
    "widedeep": (18_867_223, 39 * 80 * 1024 + 1024 * 512 + 512 * 256 + 256 * 128 + 128),
}
"""Parameters and multiply-accumulates, by network."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("networks")


def run(path: pathlib.Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # tests run side by side
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip([v.name for v in session.get_outputs()], session.run(None, feeds), strict=True))


@functools.cache
def built(name: str) -> ir.Model:
    return NETWORKS[name].build()


@functools.cache
def cleaned(name: str) -> Graph:
    return clean_up(NETWORKS[name].build())


def count_parameters(model: ir.Model) -> int:
    norms = [op for op in model.graph if op.op_type == "BatchNormalization"]
    statistics = {value for op in norms for value in op.inputs[3:]}
    return sum(v.const_value.size for v in model.graph.initializers.values() if v not in statistics)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_network_has_the_published_number_of_parameters(name: str) -> None:
    parameters, _ = PUBLISHED[name]

    assert count_parameters(built(name)) == NETWORKS[name].parameters == parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_network_computes_as_much_as_published(name: str) -> None:
    _, published = PUBLISHED[name]

    macs = sum(flops(node) for node in cleaned(name).nodes if node.op_type in FLOPS) // 2

    assert macs == NETWORKS[name].macs
    assert macs == pytest.approx(published, rel=0.012)


def test_the_networks_are_those_of_the_tables_in_their_order() -> None:
    assert list(NETWORKS) == list(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_input_and_output_has_a_dynamic_batch_and_no_other_unknown_dimension(name: str) -> None:
    graph = built(name).graph

    for value in (*graph.inputs, *graph.outputs):
        batch, *sizes = value.shape
        assert batch == ir.SymbolicDim("batch")
        assert all(isinstance(size, int) for size in sizes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_inputs_are_of_the_declared_types_and_shapes_and_depend_on_the_seed(name: str) -> None:
    first, again, other = (sample_inputs(name, 2, seed) for seed in (1, 1, 2))

    declared = {v.name: (v.dtype.numpy(), (2, *v.shape[1:])) for v in built(name).graph.inputs}
    assert {key: (array.dtype, array.shape) for key, array in first.items()} == declared
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert any(not np.array_equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", SMALL)
def test_a_file_is_valid_onnx(name: str, folder: pathlib.Path) -> None:
    onnx.checker.check_model(network_file(name, folder), full_check=True)


@pytest.mark.parametrize("name", SMALL)
def test_a_batch_gives_what_its_samples_give_alone(name: str, folder: pathlib.Path) -> None:
    feeds = sample_inputs(name, 3, seed=7)
    path = network_file(name, folder)

    together = run(path, feeds)

    alone = run(path, {key: array[:1] for key, array in feeds.items()})
    for key, array in together.items():
        assert array.shape[0] == 3
        np.testing.assert_allclose(array[:1], alone[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_outputs_are_of_a_healthy_size_and_tell_inputs_apart(name: str, folder: pathlib.Path) -> None:
    first, *others = next(iter(run(network_file(name, folder), sample_inputs(name, 4, seed=7)).values()))

    assert 0.1 < np.sqrt(np.mean(np.square([first, *others]))) < 10
    for other in others:
        assert np.linalg.norm(other - first) > 0.05 * np.linalg.norm(first)


@pytest.mark.parametrize("name", ["lenet5", "mobilenetv2"])
def test_two_builds_give_the_same_bytes(name: str, folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert network_file(name, folder).read_bytes() == network_file(name, tmp_path).read_bytes()


def test_a_file_that_is_there_is_not_made_again(tmp_path: pathlib.Path) -> None:
    made = network_file("lenet5", tmp_path).stat()

    assert network_file("lenet5", tmp_path).stat() == made
    assert len(list(tmp_path.iterdir())) == 1


def test_batch_normalizations_have_the_statistics_of_what_they_read() -> None:
    net = NetworkBuilder("normalized")
    x = net.input("image", 3, 16, 16)
    x = net.op("Relu", net.batch_norm(net.conv(x, 8, 3, bias=False)))
    model = net.finish(normal=net.batch_norm(net.conv(x, 4, 3, bias=False)))
    images = np.random.default_rng(0).normal(5, 3, (2, 3, 16, 16)).astype(np.float32)

    set_statistics(model, {"image": images})

    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    (normal,) = session.run(None, {"image": images})
    np.testing.assert_allclose(normal.mean(axis=(0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(normal.var(axis=(0, 2, 3)), 1, rtol=1e-3)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_network_is_one_segment(name: str) -> None:
    whole = partition_graph(cleaned(name), label, PartitionOptions())

    assert len(whole.segments) == 1


def test_a_compiled_network_computes_the_same_in_its_engines(
    folder: pathlib.Path, tmp_path: pathlib.Path, worker: SubprocessWorker
) -> None:
    path = network_file("lenet5", folder)
    feeds = sample_inputs("lenet5", 2, seed=7)

    compiled = compile_model(path, CompileOptions(engine="openvino"), worker=worker)

    compiled.save(tmp_path / "compiled.onnx")
    results = open_model(tmp_path / "compiled.onnx").run(feeds)
    assert len(compiled.report.segments) == 1
    np.testing.assert_allclose(results["logits"], run(path, feeds)["logits"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("ask", [lambda: network_file("resnet18", pathlib.Path()), lambda: sample_inputs("x", 1, 0)])
def test_an_unknown_network_is_a_sentence_that_lists_the_known_ones(ask: Callable[[], object]) -> None:
    with pytest.raises(UnknownNetworkError, match=r"There is no network '.*'\. Use one of: lenet5, .*, widedeep\."):
        ask()


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OutputFileError, match="file"):
        network_file("lenet5", tmp_path / "file" / "folder")
