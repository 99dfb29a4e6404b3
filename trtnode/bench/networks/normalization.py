"""Sets the statistics of batch normalizations, as training does."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from trtnode.engines.inputs.samples import Feeds
from trtnode.engines.onnxruntime.session import NativeSession

NORMALIZATION = "BatchNormalization"


def set_statistics(model: ir.Model, feeds: Feeds) -> None:
    """Set each running mean and variance to those of the node's input on one batch, in place.

    Then activations neither vanish nor explode in a deep network.

    Args:
        model: A network; its BatchNormalization nodes read initializers of their own.
        feeds: The batch.
    """
    if all(op.op_type != NORMALIZATION for op in model.graph):
        return
    training, results = _training_form(model)
    # One thread, so that sums are always added up in the same order.
    statistics = NativeSession(training, threads=1).run(feeds, list(results))
    for name, array in zip(results.values(), statistics, strict=True):
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)


def _training_form(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Return the network in training form, with the statistics of the batch as outputs.

    With momentum 0 the training form of BatchNormalization returns just these:
    https://onnx.ai/onnx/operators/onnx__BatchNormalization.html.

    Returns:
        The network, and the initializer that each output belongs to.
    """
    proto = ir.to_proto(model)
    results: dict[str, str] = {}
    for node in proto.graph.node:
        if node.op_type == NORMALIZATION:
            node.attribute.extend(
                [onnx.helper.make_attribute("training_mode", 1), onnx.helper.make_attribute("momentum", 0.0)]
            )
            for name in node.input[3:]:
                results[f"{name}.batch"] = name
                node.output.append(f"{name}.batch")
    proto.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results
    )
    return proto, results
