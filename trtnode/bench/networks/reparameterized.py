"""RepVGG-A0 and MobileOne-S0 in the form that they are trained in: several branches a block."""

from __future__ import annotations

import functools

import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder

REPVGG_A0 = ((48, 2), (96, 4), (192, 14), (1280, 1))
"""Ding et al., RepVGG: Making VGG-style ConvNets Great Again, 2021, tables 2 and 3: channels and blocks of the stages
behind the first block. The first block of each stage has stride 2."""

MOBILEONE_S0 = ((48, 2), (128, 8), (256, 10), (1024, 1))
"""Vasu et al., MobileOne: An Improved One millisecond Mobile Backbone, 2023, tables 2 and 3: the same."""

FIRST_CHANNELS = 48

BRANCHES = 4
"""Convolutions of MobileOne-S0 with the block's own kernel, side by side."""


def repvgg_a0() -> ir.Model:
    """Build RepVGG-A0 for 224 x 224 images, with three branches a block."""
    net = NetworkBuilder("repvgg-a0")
    x = _block(net, net.input("image", 3, 224, 224), FIRST_CHANNELS, 3, stride=2)
    for channels, blocks in REPVGG_A0:
        for block in range(blocks):
            x = _block(net, x, channels, 3, stride=1 if block else 2)
    return net.finish(logits=net.linear(net.global_pool(x), 1000))


def mobileone_s0() -> ir.Model:
    """Build MobileOne-S0 for 224 x 224 images, with up to six branches a block."""
    net = NetworkBuilder("mobileone-s0")
    x = _block(net, net.input("image", 3, 224, 224), FIRST_CHANNELS, 3, stride=2)
    for channels, blocks in MOBILEONE_S0:
        for block in range(blocks):
            x = _block(net, x, net.channels(x), 3, stride=1 if block else 2, depthwise=True, branches=BRANCHES)
            x = _block(net, x, channels, 1, branches=BRANCHES)
    return net.finish(logits=net.linear(net.global_pool(x), 1000))


def _block(
    net: NetworkBuilder,
    x: ir.Value,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    depthwise: bool = False,
    branches: int = 1,
) -> ir.Value:
    """Add up convolutions of one value, a pointwise one beside larger ones, and the value itself where sizes allow."""
    conv = functools.partial(net.conv, x, channels, stride=stride, groups=channels if depthwise else 1, bias=False)
    added = [net.batch_norm(x)] if stride == 1 and net.channels(x) == channels else []
    added += [net.batch_norm(conv(1))] if kernel > 1 else []
    added += [net.batch_norm(conv(kernel)) for _ in range(branches)]
    return net.op("Relu", functools.reduce(functools.partial(net.op, "Add"), added))
