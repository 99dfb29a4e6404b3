"""MobileNetV1, MobileNetV2 and MobileNetV3-Large."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder

RELU6, HARD_SWISH, RELU = "Clip", "HardSwish", "Relu"


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
    """An inverted residual block: widen, convolve each channel by itself, narrow.

    Attributes:
        kernel: Side of the depthwise convolution.
        wide: Channels inside.
        narrow: Channels of its result.
        squeezes: True for squeeze and excitation.
        activation: Inside the block; its result has none.
        stride: Of the depthwise convolution.
    """

    kernel: int
    wide: int
    narrow: int
    squeezes: bool
    activation: str
    stride: int


V1_LAYERS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""Howard et al., MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications, 2017, table 1:
channels of each pair of a depthwise and a 1 x 1 convolution, and the stride of the first."""

V2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, 2018, table 2: expansion factor, channels,
blocks, and stride of the first of them."""

V3_LARGE = (
    _Block(3, 16, 16, False, RELU, 1),
    _Block(3, 64, 24, False, RELU, 2),
    _Block(3, 72, 24, False, RELU, 1),
    _Block(5, 72, 40, True, RELU, 2),
    _Block(5, 120, 40, True, RELU, 1),
    _Block(5, 120, 40, True, RELU, 1),
    _Block(3, 240, 80, False, HARD_SWISH, 2),
    _Block(3, 200, 80, False, HARD_SWISH, 1),
    _Block(3, 184, 80, False, HARD_SWISH, 1),
    _Block(3, 184, 80, False, HARD_SWISH, 1),
    _Block(3, 480, 112, True, HARD_SWISH, 1),
    _Block(3, 672, 112, True, HARD_SWISH, 1),
    _Block(5, 672, 160, True, HARD_SWISH, 2),
    _Block(5, 960, 160, True, HARD_SWISH, 1),
    _Block(5, 960, 160, True, HARD_SWISH, 1),
)
"""Howard et al., Searching for MobileNetV3, 2019, table 1."""


def mobilenetv1() -> ir.Model:
    """Build MobileNetV1 of width 1 for 224 x 224 images."""
    net = NetworkBuilder("mobilenetv1")
    x = _conv(net, net.input("image", 3, 224, 224), 32, 3, RELU, stride=2)
    for channels, stride in V1_LAYERS:
        x = _conv(net, x, net.channels(x), 3, RELU, stride=stride, groups=net.channels(x))
        x = _conv(net, x, channels, 1, RELU)
    return net.finish(logits=net.linear(net.global_pool(x), 1000))


def mobilenetv2() -> ir.Model:
    """Build MobileNetV2 of width 1 for 224 x 224 images."""
    net = NetworkBuilder("mobilenetv2")
    x = _conv(net, net.input("image", 3, 224, 224), 32, 3, RELU6, stride=2)
    for factor, channels, blocks, stride in V2_STAGES:
        for block in range(blocks):
            wide = factor * net.channels(x)
            x = _inverted_residual(net, x, _Block(3, wide, channels, False, RELU6, 1 if block else stride))
    x = _conv(net, x, 1280, 1, RELU6)
    return net.finish(logits=net.linear(net.global_pool(x), 1000))


def mobilenetv3() -> ir.Model:
    """Build MobileNetV3-Large of width 1 for 224 x 224 images."""
    net = NetworkBuilder("mobilenetv3", epsilon=1e-3)
    x = _conv(net, net.input("image", 3, 224, 224), 16, 3, HARD_SWISH, stride=2)
    for block in V3_LARGE:
        x = _inverted_residual(net, x, block)
    x = _conv(net, x, 960, 1, HARD_SWISH)
    x = net.op(HARD_SWISH, net.linear(net.global_pool(x), 1280))
    return net.finish(logits=net.linear(x, 1000))


def _inverted_residual(net: NetworkBuilder, x: ir.Value, block: _Block) -> ir.Value:
    source, channels = x, net.channels(x)
    if block.wide != channels:
        x = _conv(net, x, block.wide, 1, block.activation)
    x = _conv(net, x, block.wide, block.kernel, block.activation, stride=block.stride, groups=block.wide)
    if block.squeezes:
        x = _weight_channels(net, x, _multiple_of_8(block.wide / 4))
    x = net.batch_norm(net.conv(x, block.narrow, 1, bias=False))
    return net.op("Add", x, source) if block.stride == 1 and block.narrow == channels else x


def _weight_channels(net: NetworkBuilder, x: ir.Value, squeezed: int) -> ir.Value:
    """Add squeeze and excitation: Hu et al., Squeeze-and-Excitation Networks, 2018, with the sigmoid of MobileNetV3."""
    scale = net.op(RELU, net.conv(net.op("GlobalAveragePool", x), squeezed, 1))
    scale = net.op("HardSigmoid", net.conv(scale, net.channels(x), 1), alpha=1 / 6, beta=0.5)
    return net.op("Mul", x, scale)


def _conv(
    net: NetworkBuilder, x: ir.Value, channels: int, kernel: int, activation: str, *, stride: int = 1, groups: int = 1
) -> ir.Value:
    x = net.batch_norm(net.conv(x, channels, kernel, stride=stride, groups=groups, bias=False))
    limits = (net.constant(0, np.float32), net.constant(6, np.float32)) if activation == RELU6 else ()
    return net.op(activation, x, *limits)


def _multiple_of_8(channels: float) -> int:
    """Return the nearest multiple of eight that is smaller by at most a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
