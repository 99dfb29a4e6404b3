"""Compiled models, changed after they were compiled."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from trtnode.engines.artifact.checksum import stamp_checksum


def attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    return next(a for a in node.attribute if a.name == name)


def edited(path: pathlib.Path, change: Callable[[onnx.ModelProto], None]) -> pathlib.Path:
    proto = onnx.load(path)
    change(proto)
    target = path.with_name("edited.onnx")
    stamp_checksum(proto, target)  # changed on purpose, so it is not damaged
    onnx.save(proto, target)
    return target


def with_field(**fields: Any) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        envelope = attribute(proto.graph.node[0], "envelope")
        envelope.s = json.dumps(json.loads(envelope.s) | fields).encode()

    return change


def without_option(name: str) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        options = json.loads(attribute(proto.graph.node[0], "envelope").s)["options"]
        with_field(options={key: value for key, value in options.items() if key != name})(proto)

    return change


def with_engine_cut_short(proto: onnx.ModelProto) -> None:
    tensor = attribute(proto.graph.node[0], "engine").t
    tensor.raw_data = tensor.raw_data[:-1]
    tensor.dims[:] = [len(tensor.raw_data)]


def with_engine_bit_flipped(proto: onnx.ModelProto) -> None:
    tensor = attribute(proto.graph.node[0], "engine").t
    tensor.raw_data = bytes([tensor.raw_data[0] ^ 1]) + tensor.raw_data[1:]


def with_engines_exchanged(proto: onnx.ModelProto) -> None:
    nodes = [node for node in proto.graph.node if node.op_type == "TrtNode"]
    one, other = ([attribute(node, name) for name in ("engine", "envelope")] for node in nodes)
    for first, second in zip(one, other, strict=True):
        kept = onnx.AttributeProto.FromString(first.SerializeToString())
        first.CopyFrom(second)
        second.CopyFrom(kept)


def with_weight_changed(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full(4, 9, np.float32), "w"))


def with_function_edited(proto: onnx.ModelProto) -> None:
    proto.functions[0].node[0].op_type = "Sin"
