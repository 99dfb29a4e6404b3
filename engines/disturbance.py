"""A model whose values take noise: shows what the errors of its parts do to its answers."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from engines.onnxruntime_backend import NativeSession

LOWEST_IR_VERSION = 4
"""The first in which an initializer may be the default of an input."""

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)

Values = Mapping[str, np.ndarray]


def make_disturbable(model: onnx.ModelProto, values: Iterable[ir.Value]) -> onnx.ModelProto:
    """Add an input for noise to each of some values; by default it is zero.

    Args:
        model: Is the same afterwards.
        values: Of its nodes. Those that hold no floats take no noise.
    """
    noisy = onnx.ModelProto()
    noisy.CopyFrom(model)
    noisy.ir_version = max(model.ir_version, LOWEST_IR_VERSION)
    del noisy.graph.node[:]
    dtypes = {value.name: value.dtype for value in values if value.dtype in FLOATS}
    for node in model.graph.node:
        made = noisy.graph.node.add()
        made.CopyFrom(node)
        for index, name in enumerate(node.output):
            if (dtype := dtypes.get(name)) is not None:
                made.output[index] = f"{name}/exact"
                noise = onnx.numpy_helper.from_array(np.zeros((), dtype.numpy()), _noise_of(name))
                noisy.graph.initializer.append(noise)
                noisy.graph.input.append(onnx.helper.make_tensor_value_info(noise.name, noise.data_type, None))
                noisy.graph.node.append(onnx.helper.make_node("Add", [made.output[index], noise.name], [name]))
    return noisy


class NoiseMeter:
    """Measures what is left in a model's answers of the noise that its parts make, one part at a time.

    Noise is not equally bad everywhere: behind an edge filter little of a smooth image is left, but all of the steps
    to which its input was rounded.

    Attributes:
        session: The model, which gives its values and answers.
    """

    def __init__(self, model: pathlib.Path, answers: Sequence[str]) -> None:
        """Load a model that ``make_disturbable`` has written.

        Raises:
            ModelLoadError: ONNX Runtime refuses it.
        """
        self.session = NativeSession(model, name="the model with its tensors as outputs")
        self._answers = answers
        self._local = _Energies()
        self._in_answers: dict[str, _Energies] = {}

    def add(self, part: str, feeds: Values, exact: Values, computed: Values) -> None:
        """Take one sample into account.

        Args:
            part: What makes the noise.
            feeds: The model's inputs.
            exact: All values of the model.
            computed: What the part makes of them; values that take noise, or hold no floats.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        noise: dict[str, np.ndarray] = {}
        for name, array in computed.items():
            self._local.add(part, exact[name], array)
            if array.dtype.kind == "f":
                noise[_noise_of(name)] = array - exact[name]
        for name, answer in zip(self._answers, self.session.run({**feeds, **noise}, self._answers), strict=True):
            if isinstance(answer, np.ndarray) and answer.dtype.kind == "f":
                self._in_answers.setdefault(name, _Energies()).add(part, exact[name], answer)

    def decibels(self) -> dict[str, tuple[float, float]]:
        """Signal-to-noise ratios by part: the worst of any answer, and that of the part's own results.

        Infinite where there is no noise.
        """
        return {
            part: (min((e.decibels(part) for e in self._in_answers.values()), default=math.inf), local)
            for part in self._local.parts
            for local in [self._local.decibels(part)]
        }


class _Energies:
    """Sums of squares of signals and of their noise, by part."""

    def __init__(self) -> None:
        self.parts: dict[str, npt.NDArray[np.float64]] = {}

    def add(self, part: str, exact: np.ndarray, actual: np.ndarray) -> None:
        signal = exact.astype(np.float64)
        energies = (np.sum(signal**2), np.sum((signal - actual.astype(np.float64)) ** 2))
        self.parts[part] = self.parts.get(part, np.zeros(2)) + energies

    def decibels(self, part: str) -> float:
        signal, noise = self.parts[part]
        if not (math.isfinite(signal) and math.isfinite(noise)):
            return -math.inf
        return math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal else -math.inf


def _noise_of(value: str) -> str:
    return f"{value}/noise"
