"""ResNet-50 and DenseNet-121: networks whose layers read results of several earlier ones."""

from __future__ import annotations

import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder

EXPANSION = 4

GROWTH, BOTTLENECK = 32, 4
"""Channels that a layer of DenseNet adds, and how many times as many its 1 x 1 convolution has."""


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


def densenet121() -> ir.Model:
    """Build DenseNet-121 for 224 x 224 images.

    Huang et al., Densely Connected Convolutional Networks, 2017, table 1.
    """
    net = NetworkBuilder("densenet121")
    x = net.op("Relu", _conv(net, net.input("image", 3, 224, 224), 2 * GROWTH, 7, stride=2))
    x = net.pool("MaxPool", x, 3, stride=2, pad=1)
    for block, layers in enumerate((6, 12, 24, 16)):
        if block:
            x = net.conv(_activated(net, x), net.channels(x) // 2, 1, bias=False)
            x = net.pool("AveragePool", x, 2, stride=2)
        for _ in range(layers):
            new = net.conv(_activated(net, x), BOTTLENECK * GROWTH, 1, bias=False)
            new = net.conv(_activated(net, new), GROWTH, 3, bias=False)
            x = net.op("Concat", x, new, axis=1)
    return net.finish(logits=net.linear(net.global_pool(_activated(net, x)), 1000))


def _activated(net: NetworkBuilder, x: ir.Value) -> ir.Value:
    return net.op("Relu", net.batch_norm(x))


def _bottleneck(net: NetworkBuilder, x: ir.Value, width: int, *, stride: int, widens: bool) -> ir.Value:
    shortcut = _conv(net, x, EXPANSION * width, 1, stride=stride) if widens else x
    x = net.op("Relu", _conv(net, x, width, 1))
    x = net.op("Relu", _conv(net, x, width, 3, stride=stride))
    x = _conv(net, x, EXPANSION * width, 1)
    return net.op("Relu", net.op("Add", x, shortcut))


def _conv(net: NetworkBuilder, x: ir.Value, channels: int, kernel: int, *, stride: int = 1) -> ir.Value:
    return net.batch_norm(net.conv(x, channels, kernel, stride=stride, bias=False))
