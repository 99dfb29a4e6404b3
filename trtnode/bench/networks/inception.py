"""InceptionV3."""

from __future__ import annotations

import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder


def inceptionv3() -> ir.Model:
    """Build InceptionV3 for 299 x 299 images, without the auxiliary classifier, which only training uses.

    Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016, table 1 and figures 5 to 7 and 10.
    Numbers of channels are those of the published weights.
    """
    net = NetworkBuilder("inceptionv3", epsilon=1e-3)
    x = net.input("image", 3, 299, 299)
    x = _conv(net, x, 32, 3, stride=2, pad=0)
    x = _conv(net, x, 32, 3, pad=0)
    x = _conv(net, x, 64, 3)
    x = net.pool("MaxPool", x, 3, stride=2)
    x = _conv(net, x, 80, 1)
    x = _conv(net, x, 192, 3, pad=0)
    x = net.pool("MaxPool", x, 3, stride=2)
    for pooled in (32, 64, 64):
        x = _block_35(net, x, pooled)
    x = _reduce_to_17(net, x)
    for width in (128, 160, 160, 192):
        x = _block_17(net, x, width)
    x = _reduce_to_8(net, x)
    for _ in range(2):
        x = _block_8(net, x)
    return net.finish(logits=net.linear(net.global_pool(x), 1000))


def _block_35(net: NetworkBuilder, x: ir.Value, pooled: int) -> ir.Value:
    """Figure 5: two 3 x 3 convolutions replace one of 5 x 5."""
    one = _conv(net, x, 64, 1)
    five = _conv(net, _conv(net, x, 48, 1), 64, 5)
    double = _chain(net, x, (64, 1), (96, 3), (96, 3))
    return net.op("Concat", one, five, double, _pooled(net, x, pooled), axis=1)


def _block_17(net: NetworkBuilder, x: ir.Value, width: int) -> ir.Value:
    """Figure 6: rows and columns of seven."""
    row, column = (1, 7), (7, 1)
    one = _conv(net, x, 192, 1)
    seven = _chain(net, x, (width, 1), (width, row), (192, column))
    double = _chain(net, x, (width, 1), (width, column), (width, row), (width, column), (192, row))
    return net.op("Concat", one, seven, double, _pooled(net, x, 192), axis=1)


def _block_8(net: NetworkBuilder, x: ir.Value) -> ir.Value:
    """Figure 7: the last convolutions side by side."""
    three, double = _conv(net, x, 384, 1), _chain(net, x, (448, 1), (384, 3))
    sides = [_conv(net, branch, 384, kernel) for branch in (three, double) for kernel in ((1, 3), (3, 1))]
    return net.op("Concat", _conv(net, x, 320, 1), *sides, _pooled(net, x, 192), axis=1)


def _reduce_to_17(net: NetworkBuilder, x: ir.Value) -> ir.Value:
    """Figure 10: half the size, by convolutions and by pooling."""
    three = _conv(net, x, 384, 3, stride=2, pad=0)
    double = _conv(net, _chain(net, x, (64, 1), (96, 3)), 96, 3, stride=2, pad=0)
    return net.op("Concat", three, double, net.pool("MaxPool", x, 3, stride=2), axis=1)


def _reduce_to_8(net: NetworkBuilder, x: ir.Value) -> ir.Value:
    three = _conv(net, _conv(net, x, 192, 1), 320, 3, stride=2, pad=0)
    seven = _conv(net, _chain(net, x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192, 3, stride=2, pad=0)
    return net.op("Concat", three, seven, net.pool("MaxPool", x, 3, stride=2), axis=1)


def _pooled(net: NetworkBuilder, x: ir.Value, channels: int) -> ir.Value:
    pooled = net.pool("AveragePool", x, 3, stride=1, pad=1, count_include_pad=1)
    return _conv(net, pooled, channels, 1)


def _chain(net: NetworkBuilder, x: ir.Value, *layers: tuple[int, int | tuple[int, int]]) -> ir.Value:
    """Convolutions one after the other, each given as channels and kernel."""
    for channels, kernel in layers:
        x = _conv(net, x, channels, kernel)
    return x


def _conv(
    net: NetworkBuilder,
    x: ir.Value,
    channels: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    pad: int | None = None,
) -> ir.Value:
    return net.op("Relu", net.batch_norm(net.conv(x, channels, kernel, stride=stride, pad=pad, bias=False)))
