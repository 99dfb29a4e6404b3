"""Every operator and version that ONNX Runtime has a kernel for can be explained; the ordinary tests have a sample."""

from __future__ import annotations

import pathlib

import onnx
import pytest

import trtnode
from kernel_models import kernel_models
from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.session import NativeSession


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "model"), [pytest.param(*one, id=one[0]) for one in kernel_models()])
def test_an_operator_without_declared_shapes_is_explained(
    name: str, model: onnx.ModelProto, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / f"{name}.onnx"
    onnx.save(model, path)
    try:
        NativeSession(path, name=name)
    except ModelLoadError as error:
        pytest.skip(str(error))

    report = trtnode.explain(path, engine="openvino")

    assert report.native or report.segments
