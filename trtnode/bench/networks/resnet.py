"""ResNet-50: a network whose layers read results of several earlier ones."""

from __future__ import annotations

import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder

EXPANSION = 4


def resnet50() -> ir.Model:
    """Build ResNet-50 for 224 x 224 images, with the stride in the 3 x 3 convolutions, as usual since 2017.

    He et al., Deep Residual Learning for Image Recognition, 2016, table 1; there the stride is in the first 1 x 1
    convolution of a block, which saves 0.3 of 4.1 billion multiply-accumulates.
    """
    net = NetworkBuilder("resnet50")
    x = net.input("image", 3, 224, 224)
    x = net.op("Relu", _conv(net, x, 64, 7, stride=2))
    x = net.pool("MaxPool", x, 3, stride=2, pad=1)
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            x = _bottleneck(net, x, width, stride=2 if stage and not block else 1, widens=not block)
    return net.finish(logits=net.linear(net.global_pool(x), 1000))


def _bottleneck(net: NetworkBuilder, x: ir.Value, width: int, *, stride: int, widens: bool) -> ir.Value:
    shortcut = _conv(net, x, EXPANSION * width, 1, stride=stride) if widens else x
    x = net.op("Relu", _conv(net, x, width, 1))
    x = net.op("Relu", _conv(net, x, width, 3, stride=stride))
    x = _conv(net, x, EXPANSION * width, 1)
    return net.op("Relu", net.op("Add", x, shortcut))


def _conv(net: NetworkBuilder, x: ir.Value, channels: int, kernel: int, *, stride: int = 1) -> ir.Value:
    return net.batch_norm(net.conv(x, channels, kernel, stride=stride, bias=False))
