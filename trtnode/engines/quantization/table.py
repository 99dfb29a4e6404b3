"""A calibration table: the range of each tensor of a model on samples. One table serves every engine library."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from trtnode.engines.artifact.files import sha256_of_model, write_atomically
from trtnode.engines.errors import CalibrationTableError

FORMAT = "trtnode.calibration.1"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTable:
    """Ranges of one FP32 model's tensors on one set of samples.

    Attributes:
        ranges: Lowest and highest value to represent, by value name of the cleaned model. A tensor that never had
            elements, or held NaN, infinity or values near it, has no entry; one that was always the same has a range of
            width zero.
        means: Mean of each channel (the second axis) of tensors that a Conv or Gemm reads, by value name.
        factors: Factor of each channel that makes the channels of a tensor alike, by value name: between convolutions,
            where weights take it up, and before a MatMul.
        scaled_ranges: Ranges of these tensors behind their factors.
        model_sha256: Hash of the model's file.
        data_sha256: Hash of the samples: names, types, shapes and bytes, in order.
        samples: Number of samples.
        method: Method that estimated the ranges, with its parameter.
        versions: Versions of the packages that computed them.
    """

    ranges: Mapping[str, tuple[float, float]]
    model_sha256: str
    data_sha256: str
    samples: int
    method: str
    versions: Mapping[str, str]
    means: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    factors: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    scaled_ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def scaled(self, names: Collection[str]) -> CalibrationTable:
        """Return the table of the model in which some of the tensors that have factors are scaled."""
        means = {
            name: tuple(mean * factor for mean, factor in zip(values, self.factors[name], strict=True))
            for name, values in self.means.items()
            if name in names
        }
        ranges = {name: self.scaled_ranges[name] for name in names}
        return dataclasses.replace(self, ranges={**self.ranges, **ranges}, means={**self.means, **means})

    def with_ranges(self, ranges: Mapping[str, tuple[float, float]]) -> CalibrationTable:
        """Return the table with the ranges of more tensors."""
        return dataclasses.replace(self, ranges={**self.ranges, **ranges})

    def save(self, path: pathlib.Path) -> None:
        """Write the table as JSON.

        Raises:
            OutputFileError: The file can't be written.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        write_atomically(path, json.dumps({"format": FORMAT, **fields}, indent=1, allow_nan=False).encode())

    @classmethod
    def load(cls, path: pathlib.Path, *, model: pathlib.Path | None) -> CalibrationTable:
        """Read a table.

        Args:
            path: The file that ``save`` wrote.
            model: The model that it must be of; None takes a table of any.

        Raises:
            CalibrationTableError: The file is missing or damaged, or was made from another model.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["format"] != FORMAT:
                raise ValueError(f"its format is {fields['format']!r}, not {FORMAT!r}")
            table = cls.from_json(fields)
        except OSError as error:
            raise CalibrationTableError(path, f"can't be read ({error.strerror})") from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"is no calibration table, or a damaged one ({type(error).__name__}: {error})"
            raise CalibrationTableError(path, problem) from None
        if model is not None and table.model_sha256 != sha256_of_model(model):
            raise CalibrationTableError(path, f"was made from another model than {model}")
        return table

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> CalibrationTable:
        """Read a table from its fields as JSON values.

        Raises:
            AttributeError: They are damaged, as with the other errors.
            KeyError: One is missing.
            TypeError: One is of another type.
            ValueError: One has another value than it may have.
        """
        factors = {str(name): _factors(name, values) for name, values in fields["factors"].items()}
        return cls(
            ranges={str(name): _range(name, pair) for name, pair in fields["ranges"].items()},
            model_sha256=str(fields["model_sha256"]),
            data_sha256=str(fields["data_sha256"]),
            samples=int(fields["samples"]),
            method=str(fields["method"]),
            versions={str(k): str(v) for k, v in fields["versions"].items()},
            means={str(name): _numbers(name, values) for name, values in fields["means"].items()},
            factors=factors,
            scaled_ranges={name: _range(name, fields["scaled_ranges"][name]) for name in factors},
        )


def _range(name: str, pair: Any) -> tuple[float, float]:
    low, high = map(float, pair)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"the range of {name!r} is {pair}")
    return low, high


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    numbers = tuple(map(float, values))
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"the numbers of {name!r} are not all finite")
    return numbers


def _factors(name: str, values: Any) -> tuple[float, ...]:
    factors = _numbers(name, values)
    if not all(factor > 0 for factor in factors):
        raise ValueError(f"the factors of {name!r} are not all above zero")
    return factors
