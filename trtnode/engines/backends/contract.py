"""Tests of the contract of an engine, for whoever offers one: its answers are those of onnx.reference.

``TRTNODE_ENGINE=NAME python -m pytest --pyargs trtnode.engines.backends.contract`` runs them on an installed engine.
They need pytest. A model with a node that the engine doesn't take is skipped.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from trtnode.engines.artifact.envelope import Envelope, current_platform
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import Backend, Engine, LoadOptions
from trtnode.engines.backends.registry import abilities_of, get_backend
from trtnode.engines.backends.shape_range import Profile, ShapeRange
from trtnode.engines.errors import BuildError, EngineRejectedError
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.loading import load_model

ENGINE_VARIABLE = "TRTNODE_ENGINE"

TOLERANCE = 1e-3
"""Largest difference from onnx.reference, absolute and relative. Engines may add in another order."""

MODELS = {
    "elementwise": "g (float[2,4] x) => (float[2,4] y) <float[4] w = {1,2,3,4}> { e = Sigmoid(x) y = Mul(e, w) }",
    "product": "g (float[2,4] x) => (float[2,2] y) <float[4,2] w = {1,-2,3,4,0.5,6,-7,8}> { y = MatMul(x, w) }",
    "pooling": "g (float[1,2,6,6] x) => (float[1,2,3,3] y) { y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(x) }",
    "two-inputs-and-outputs": "g (float[2,4] a, float[2,4] b) => (float[2,4] y, float[2,4] z) "
    "{ y = Sub(a, b) z = Max(a, b) }",
    "any-number-of-rows": "g (float[N,4] x) => (float[N,4] y) { e = Relu(x) y = Softmax(e) }",
}

Feeds = Mapping[str, np.ndarray]


@pytest.fixture(scope="session")
def engine_name() -> str:
    """The name of the engine, as the environment has it. Modules that import these tests may define another one."""
    name = os.environ.get(ENGINE_VARIABLE)
    if not name:
        pytest.fail(f"{ENGINE_VARIABLE} names no engine. Set it to the name of an entry point of trtnode.engines.")
    return name


@pytest.fixture(scope="session")
def backend(engine_name: str) -> Backend:
    """The engine."""
    found = abilities_of(engine_name, BuildOptions())
    if reason := found.missing or found.idle:
        pytest.skip(reason)
    return get_backend(engine_name)


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """Writes a graph in ONNX's own language into a file."""

    def write(graph: str, domains: str = "") -> pathlib.Path:
        path = tmp_path / "model.onnx"
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21{domains}]> {graph}')
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path

    return write


class Built:
    """An engine of one of the models, its bytes and its envelope."""

    def __init__(self, backend: Backend, model: pathlib.Path) -> None:
        graph = Graph.of(load_model(model))
        for verdict in (*map(backend.label, graph.nodes), backend.check_support(model)):
            if not verdict.supported:
                pytest.skip(f"the engine doesn't take this model: {verdict.detail}")
        inputs, outputs = (tuple(map(TensorSpec.of, values)) for values in (graph.inputs, graph.outputs))
        options = BuildOptions(profiles=(_profile(inputs),) if backend.needs_shapes else ())
        self.inputs = inputs
        self.content = backend.build(model, options)
        self.envelope = Envelope(
            backend=backend.name,
            backend_version=backend.version(),
            platform=current_platform(),
            device=backend.target_device(options),
            precision_asked="fp32",
            precision_effective=backend.precision_support().effective["fp32"],
            options=backend.build_properties(options),
            inputs=inputs,
            outputs=outputs,
            engine_sha256=hashlib.sha256(self.content).hexdigest(),
            segment_sha256="",
            builder_version="",
        )
        self._reference = ReferenceEvaluator(onnx.load(model))

    def feeds(self, seed: int, rows: int = 2) -> Feeds:
        """Return inputs, other ones for each seed; ``rows`` stands for the size that varies."""
        rng = np.random.default_rng(seed)
        return {spec.name: rng.normal(size=_shape(spec, rows)).astype(np.float32) for spec in self.inputs}

    def expected(self, feeds: Feeds) -> Sequence[Any]:
        """Return the answers of onnx.reference."""
        return list(self._reference.run(None, dict(feeds)))


@pytest.fixture(params=MODELS)
def built(request: pytest.FixtureRequest, backend: Backend, write: Callable[[str], pathlib.Path]) -> Built:
    """An engine of each model."""
    return Built(backend, write(MODELS[request.param]))


def _shape(spec: TensorSpec, rows: int) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else rows for size in spec.shape or ())


def _profile(inputs: Sequence[TensorSpec]) -> Profile:
    least, best, most = ({spec.name: _shape(spec, rows) for spec in inputs} for rows in (1, 2, 8))
    return {name: ShapeRange(min=least[name], opt=best[name], max=most[name]) for name in least}


def _run(engine: Engine, feeds: Feeds) -> list[np.ndarray]:
    engine.bind([feeds[spec.name] for spec in engine.inputs], None)
    return [np.array(result) for result in engine.run()]


def _assert_close(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    assert [np.shape(a) for a in actual] == [np.shape(e) for e in expected]
    for one, other in zip(actual, expected, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_engine_has_the_name_of_its_entry_point(backend: Backend, engine_name: str) -> None:
    """Files name the engine by it."""
    assert backend.name == engine_name


def test_the_facts_of_keys_are_text_and_the_same_again(backend: Backend) -> None:
    """Engines in the cache are found by them."""
    device = backend.device()

    facts = (backend.version(), device.features, device.name, backend.fingerprint(BuildOptions()))

    assert all(isinstance(fact, str) for fact in facts)
    assert facts[0]
    assert facts == (backend.version(), device.features, device.name, backend.fingerprint(BuildOptions()))


def test_it_computes_in_float32(backend: Backend) -> None:
    """All else is asked for."""
    assert backend.precision_support().effective["fp32"] == "fp32"


def test_it_takes_at_least_one_of_the_models(backend: Backend, write: Callable[[str], pathlib.Path]) -> None:
    """Else all the other tests are skipped."""
    graphs = [Graph.of(load_model(write(graph))) for graph in MODELS.values()]

    assert any(all(backend.label(node).supported for node in graph.nodes) for graph in graphs)


def test_answers_are_those_of_the_reference(backend: Backend, built: Built) -> None:
    """A run keeps nothing of the one before."""
    engine = backend.load(built.content, built.envelope)

    for seed, rows in enumerate((2, 1, 5)):
        feeds = built.feeds(seed, rows)
        _assert_close(_run(engine, feeds), built.expected(feeds))


def test_answers_go_to_the_buffers_that_are_given(backend: Backend, built: Built) -> None:
    """Nothing is allocated then."""
    engine, feeds = backend.load(built.content, built.envelope), built.feeds(7)
    expected = built.expected(feeds)
    buffers = [np.zeros_like(e) for e in expected]

    engine.bind([feeds[spec.name] for spec in engine.inputs], buffers)
    engine.run()

    _assert_close(buffers, expected)


def test_a_fork_has_bindings_of_its_own(backend: Backend, built: Built) -> None:
    """Requests run on forks at the same time."""
    engine = backend.load(built.content, built.envelope, LoadOptions(instances=2))
    fork = engine.fork()
    one, other = built.feeds(1), built.feeds(2)

    engine.bind([one[spec.name] for spec in engine.inputs], None)
    answers = _run(fork, other)

    _assert_close([np.array(result) for result in engine.run()], built.expected(one))
    _assert_close(answers, built.expected(other))


def test_bytes_that_are_no_engine_are_refused(backend: Backend, built: Built) -> None:
    """The native path answers then."""
    with pytest.raises(EngineRejectedError):
        backend.load(b"no engine", built.envelope)


def test_a_model_with_an_unknown_operator_is_refused(
    backend: Backend, write: Callable[[str, str], pathlib.Path]
) -> None:
    """The compilation goes on without the node."""
    model = write("g (float[4] x) => (float[4] y) { y = nowhere.Nothing(x) }", ', "nowhere": 1')

    with pytest.raises(BuildError):
        backend.build(model, BuildOptions())
