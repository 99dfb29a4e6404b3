"""A compiled model of two engines, the keys of a signer, and the trust in them."""

from __future__ import annotations

import pathlib

import pytest

from trtnode.engines.artifact.keys import generate_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
from workshop import Workshop

GRAPH = """g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}>
{ e = Exp(x) m = Mul(e, w) r = Relu(m) y = Neg(r) }"""


@pytest.fixture
def key(tmp_path: pathlib.Path) -> pathlib.Path:
    """A private key; the public one is beside it."""
    generate_key(tmp_path / "signer")
    return tmp_path / "signer"


@pytest.fixture
def trust(key: pathlib.Path) -> Trust:
    return Trust.of([key.with_name("signer.pub")], None)


@pytest.fixture(scope="module")
def source(shared_workshop: Workshop) -> pathlib.Path:
    return shared_workshop.write(GRAPH)


@pytest.fixture(scope="module")
def unsigned(source: pathlib.Path, shared_workshop: Workshop) -> pathlib.Path:
    """Two engines around a native node."""
    return shared_workshop.compile_file(source, native_ops=("Relu",))


@pytest.fixture
def signed(unsigned: pathlib.Path, key: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "signed.onnx"
    sign_model(unsigned, path, key)
    return path
