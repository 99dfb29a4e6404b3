"""The networks by name, their files, and inputs for them."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from trtnode.bench.errors import BenchmarkError
from trtnode.bench.networks import bert, classic, inception, mobilenet, reparameterized, resnet, samples, wide_deep
from trtnode.bench.networks.normalization import set_statistics
from trtnode.engines.artifact.files import write_model
from trtnode.engines.errors import OutputFileError
from trtnode.engines.inputs.samples import Feeds

VERSION = 1
"""Version of the files. Raise it with any change of a network's nodes or weights."""

CALIBRATION_BATCH, CALIBRATION_SEED = 4, 0
"""Batch size and seed of the inputs that give batch normalizations their statistics."""

InputSampler = Callable[..., Feeds]
"""Makes inputs for a network, given ``batch``, the first dimension of each array, and ``rng``."""


class UnknownNetworkError(BenchmarkError):
    """There is no network of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no network {name!r}. Use one of: {', '.join(NETWORKS)}.")


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """A network to measure.

    Attributes:
        name: Its key in ``NETWORKS``.
        build: Builds it without drawing weights. Each running mean is 0 and each running variance 1;
            ``network_file`` sets them.
        sample: Makes inputs for it.
        parameters: Number of trainable parameters, without running means and variances.
        macs: Multiply-accumulates of convolutions and matrix products for a batch of one.
    """

    name: str
    build: Callable[[], ir.Model]
    sample: InputSampler
    parameters: int
    macs: int


def network_file(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Return a network's ONNX file; it is written atomically if it is missing.

    The same version of this project writes the same bytes on the same machine. On other processors, running means and
    variances may differ in the last digits.

    Args:
        name: A key of ``NETWORKS``.
        folder: Of the files; created if it is missing.

    Raises:
        UnknownNetworkError: No network has this name.
        OutputFileError: The folder can't be made, or the file can't be written.
    """
    network = find_network(name)
    path = folder / f"{name}-v{VERSION}.onnx"
    if not path.exists():
        _make_folder(folder)
        model = network.build()
        set_statistics(model, sample_inputs(name, CALIBRATION_BATCH, CALIBRATION_SEED))
        write_model(ir.to_proto(model), path)
    return path


def sample_inputs(name: str, batch: int, seed: int) -> dict[str, np.ndarray]:
    """Return inputs with the statistics of real ones, the same for the same arguments.

    Args:
        name: A key of ``NETWORKS``.
        batch: First dimension of each array.
        seed: Of the random numbers.

    Returns:
        Arrays by input name.

    Raises:
        UnknownNetworkError: No network has this name.
    """
    return dict(find_network(name).sample(batch=batch, rng=np.random.default_rng(seed)))


def find_network(name: str) -> Network:
    """Return the network of a name.

    Raises:
        UnknownNetworkError: No network has this name.
    """
    network = NETWORKS.get(name) or TRAINING_FORMS.get(name)
    if network is None:
        raise UnknownNetworkError(name)
    return network


def _make_folder(folder: pathlib.Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputFileError(folder, error.strerror or str(error)) from error


def _images(channels: int, side: int) -> InputSampler:
    return functools.partial(samples.images, channels, side)


_TOKENS = functools.partial(samples.token_sequences, bert.VOCABULARY, bert.SEQUENCE)
_CLICKS = functools.partial(samples.clicks, wide_deep.VOCABULARY, wide_deep.FIELDS)


NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (
        Network("lenet5", classic.lenet5, _images(1, 32), parameters=61_706, macs=416_520),
        Network("alexnet", classic.alexnet, _images(3, 224), parameters=61_100_840, macs=714_188_480),
        Network("resnet50", resnet.resnet50, _images(3, 224), parameters=25_557_032, macs=4_089_184_256),
        Network("vgg16", classic.vgg16, _images(3, 224), parameters=138_357_544, macs=15_470_264_320),
        Network("inceptionv3", inception.inceptionv3, _images(3, 299), parameters=23_834_568, macs=5_713_216_096),
        Network("mobilenetv2", mobilenet.mobilenetv2, _images(3, 224), parameters=3_504_872, macs=300_774_272),
        Network("mobilenetv3", mobilenet.mobilenetv3, _images(3, 224), parameters=5_483_032, macs=216_589_760),
        Network("bert", bert.bert, _TOKENS, parameters=109_482_240, macs=11_174_215_680),
        Network("widedeep", wide_deep.widedeep, _CLICKS, parameters=18_867_223, macs=3_883_136),
    )
}
"""The networks by name, in the order of the tables."""

TRAINING_FORMS: Mapping[str, Network] = {
    network.name: network
    for network in (
        Network("repvgg-a0", reparameterized.repvgg_a0, _images(3, 224), parameters=9_108_968, macs=1_512_581_120),
        Network(
            "mobileone-s0", reparameterized.mobileone_s0, _images(3, 224), parameters=5_293_272, macs=1_051_935_232
        ),
    )
}
"""Networks in the form that they are trained in, whose branches a rewrite merges."""
