"""Has TensorRT's parser read a whole model: which nodes it takes where they stand, and which shapes it infers.

A node that stands among the others has their constants and shapes; one that is asked about alone has not.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

from trtnode.engines.backends.protocols import ModelReading
from trtnode.engines.errors import BuildError
from trtnode.engines.tensorrt.builder import parse, take_weights
from trtnode.engines.tensorrt.element_types import ELEMENT_TYPES
from trtnode.engines.tensorrt.labelling.parser import first_refusal, make_logger, new_builder, new_network
from trtnode.engines.tensorrt.labelling.rewrites import PASSES, prepare
from trtnode.engines.tensorrt.parsed_tensors import misread_tensors, results
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.view import TensorSpec

NARROWED = (ir.DataType.FLOAT, ir.DataType.INT8)
"""Types that a rewritten model has in place of others."""


def read_model(trt: Any, path: pathlib.Path) -> ModelReading:
    """Have the parser read a model, rewritten as for a build.

    Args:
        trt: The tensorrt module.
        path: An ONNX file.

    Raises:
        BackendMissingError: TensorRT does not start.
    """
    asked = onnx.load(path)
    made = {name for node in asked.graph.node for name in node.output if name}
    try:
        proto = prepare(asked, PASSES)
    except BuildError as error:
        return ModelReading(verdict=Verdict(ReasonCode.UNSUPPORTED_DTYPE, str(error)))
    logger = make_logger(trt)
    builder = new_builder(trt, logger)
    network = new_network(trt, builder)
    parser = trt.OnnxParser(network, logger)
    weights = take_weights(parser, proto)
    taken = parse(parser, proto, weights, path)
    inputs = map(network.get_input, range(network.num_inputs))
    found = ModelReading(
        verdict=SUPPORTED,
        tensors=tuple({spec.name: spec for spec in _specs(network, proto) if spec.name in made}.values()),
        sizes=tuple(tensor.name for tensor in inputs if tensor.is_shape_tensor),
    )
    for name, problem in misread_tensors(network, proto):
        return dataclasses.replace(found, verdict=Verdict(ReasonCode.BUILD_FAILED, problem), refused=name)
    if taken:
        return found
    return dataclasses.replace(found, verdict=first_refusal(parser, logger), refused=_refused(parser, proto, made))


def _specs(network: Any, proto: onnx.ModelProto) -> Iterator[TensorSpec]:
    for tensor in results(network, proto):
        try:
            shape = tuple(None if size < 0 else int(size) for size in tensor.shape)
        except (RuntimeError, ValueError):  # the library knows no rank
            continue
        dtype = ELEMENT_TYPES.get(tensor.dtype.name)
        yield TensorSpec(name=tensor.name, dtype=None if dtype in NARROWED else dtype, shape=shape)


def _refused(parser: Any, proto: onnx.ModelProto, made: set[str]) -> str:
    """Return a tensor of the node that the parser's first error is about: rewriting puts other nodes before it."""
    place = parser.get_error(0).node() if parser.num_errors else -1
    if place < 0:
        return ""
    outputs = itertools.chain.from_iterable(node.output for node in proto.graph.node[place:])
    return next((name for name in outputs if name in made), "")
