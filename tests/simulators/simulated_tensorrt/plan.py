"""Engine bytes: a magic line, JSON, the ONNX model that the engine computes, and a hash of it all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from simulated_tensorrt.graphs import Tensor

MAGIC = b"simulated TensorRT plan\n"
LENGTH_BYTES = 8
HASH_BYTES = 32


class PlanError(Exception):
    """Bytes that are no whole plan."""


@dataclasses.dataclass(kw_only=True)
class Plan:
    """The result of a build.

    Attributes:
        version: Of the TensorRT that built it.
        tensors: Inputs, then outputs.
        profiles: Least, best and most shape by input; values, of inputs on the host, below ``values``.
        scratch: Bytes of device memory, by profile.
        layers: Names.
        flags: Names of the builder flags.
        settings: Other settings of the builder.
        model: ONNX.
    """

    version: str
    tensors: tuple[Tensor, ...]
    profiles: list[dict[str, Any]]
    scratch: list[int]
    layers: list[str]
    flags: list[str]
    settings: Mapping[str, Any]
    model: bytes

    def to_bytes(self) -> bytes:
        fields = {**dataclasses.asdict(self), "model": None}
        header = json.dumps(fields).encode()
        body = b"".join([MAGIC, len(header).to_bytes(LENGTH_BYTES, "little"), header, self.model])
        return body + hashlib.sha256(body).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Plan:
        """Read a plan.

        Raises:
            PlanError: The bytes are none, or damaged.
        """
        if not data.startswith(MAGIC):
            raise PlanError("magicTag mismatch: this is no plan")
        body, digest = data[:-HASH_BYTES], data[-HASH_BYTES:]
        if hashlib.sha256(body).digest() != digest:
            raise PlanError("checksum mismatch: the plan is corrupt or truncated")
        start = len(MAGIC) + LENGTH_BYTES
        end = start + int.from_bytes(body[len(MAGIC) : start], "little")
        fields = json.loads(body[start:end])
        fields["tensors"] = tuple(_tensor(t) for t in fields["tensors"])
        return cls(**{**fields, "model": body[end:]})


def _tensor(fields: dict[str, Any]) -> Tensor:
    return Tensor(**{**fields, "shape": tuple(fields["shape"]), "symbols": tuple(fields["symbols"])})
