"""LeNet-5, AlexNet and VGG-16: networks that are one chain of layers."""

from __future__ import annotations

import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder


def lenet5() -> ir.Model:
    """Build LeNet-5 for 32 x 32 grey images, with ReLU and max-pooling as it is implemented today.

    LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998, section II.B; every map of the second
    convolution reads all six.
    """
    net = NetworkBuilder("lenet5")
    x = net.input("image", 1, 32, 32)
    for channels in (6, 16):
        x = net.op("Relu", net.conv(x, channels, 5, pad=0))
        x = net.pool("MaxPool", x, 2, stride=2)
    x = net.op("Flatten", x)
    for units in (120, 84):
        x = net.op("Relu", net.linear(x, units))
    return net.finish(logits=net.linear(x, 10))


def alexnet() -> ir.Model:
    """Build AlexNet in its single-column form for 224 x 224 images.

    Krizhevsky, One weird trick for parallelizing convolutional neural networks, 2014.
    """
    net = NetworkBuilder("alexnet")
    x = net.input("image", 3, 224, 224)
    x = net.op("Relu", net.conv(x, 64, 11, stride=4, pad=2))
    x = net.pool("MaxPool", x, 3, stride=2)
    x = net.op("Relu", net.conv(x, 192, 5))
    x = net.pool("MaxPool", x, 3, stride=2)
    for channels in (384, 256, 256):
        x = net.op("Relu", net.conv(x, channels, 3))
    x = net.pool("MaxPool", x, 3, stride=2)
    return net.finish(logits=_classify(net, x))


def vgg16() -> ir.Model:
    """Build VGG-16 for 224 x 224 images.

    Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2015, table 1, D.
    """
    net = NetworkBuilder("vgg16")
    x = net.input("image", 3, 224, 224)
    for channels, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            x = net.op("Relu", net.conv(x, channels, 3))
        x = net.pool("MaxPool", x, 2, stride=2)
    return net.finish(logits=_classify(net, x))


def _classify(net: NetworkBuilder, x: ir.Value) -> ir.Value:
    x = net.op("Flatten", x)
    for _ in range(2):
        x = net.op("Relu", net.linear(x, 4096))
    return net.linear(x, 1000)
