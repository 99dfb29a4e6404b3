"""The envelope of an engine: its origin, and where it may run. It is checked before a library sees engine bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from trtnode.engines.artifact.json_fields import Form, MapOf, misfit
from trtnode.engines.errors import EngineRejectedError
from trtnode.partitioner.graph.view import TensorSpec

FORMAT_VERSION = 2
"""From 2 on, bytes of an engine may stand in the weights beside it."""

TARGETS = "TARGETS"
"""The option that names the GPUs of an engine that was built for several, with commas between."""

UNCHECKED = "UNCHECKED"
"""The option of engines whose results nobody has compared with native execution: nothing could run them."""

INDICES = "INDICES"
"""The option that has the ranges of inputs which are indices; the library of these engines doesn't check them all."""

SATURATED = "SATURATED"
"""The option of an envelope that lists the int64 inputs whose values may end at the range of 32 bits."""

EMPTY = "EMPTY"
"""The option that has the places at which inputs may be empty, in sets: engines were compared with these sizes of 0."""

InputAxis = tuple[int, int]
"""An input and one of its axes."""

PRECISIONS = frozenset(("fp32", "fp16", "bf16", "int8", "fp8", "int4"))
"""Those of engines."""
ASKED = PRECISIONS | {"auto"}
"""Those that may be asked for."""

_TENSOR = {"name": str, "dtype": (frozenset(ir.DataType.__members__), None), "shape": ([(int, str, None)], None)}
FORM = {
    "backend": str,
    "backend_version": str,
    "platform": str,
    "device": {"features": str, "name": str},
    "precision_asked": ASKED,
    "precision_effective": PRECISIONS,
    "options": MapOf(str),
    "inputs": [_TENSOR],
    "outputs": [_TENSOR],
    "engine_sha256": str,
    "segment_sha256": str,
    "builder_version": str,
    "calibration_sha256?": str,
    "node_precisions?": MapOf(PRECISIONS),
    "profiles?": [MapOf(object)],
    "signature?": (str, None),
}
"""Of an envelope as JSON, beside its format version."""
OPTION_FORMS: Mapping[str, Form] = {
    EMPTY: [[[int]]],
    INDICES: [{"input": int, "sizes": [(int, [int])], "negative": bool, "length": bool}],
    SATURATED: [int],
}
"""Of options that hold JSON."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The processor that an engine is built for.

    Attributes:
        features: The instruction set or compute capability, which must be equal for the engine to run.
        name: Marketing name; differs between machines that can share engines.
    """

    features: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A description that travels with engine bytes.

    Attributes:
        backend: Name of the library.
        backend_version: Full version of the library.
        platform: Operating system and machine.
        device: Processor.
        precision_asked: The precision that the user asked for.
        precision_effective: The precision that the engine computes in.
        options: Properties of the library, by name; they are set again at load.
        inputs: Run-time inputs in binding order.
        outputs: In binding order.
        engine_sha256: Of the engine bytes.
        segment_sha256: Of the segment's nodes and weights; see ``segment_hash``.
        builder_version: Version of this project that built the engine.
        calibration_sha256: Of the ranges that were used, if any.
        node_precisions: The precision asked of each node, by node identity; none where all are float32.
        profiles: Shape profiles; none for engines that take any shape their inputs declare.
        format_version: Of the envelope itself.
        signature: Over ``signed_bytes``, see ``trtnode.engines.artifact.trust``; None for engines that nobody has
            signed.
    """

    backend: str
    backend_version: str
    platform: str
    device: Device
    precision_asked: str
    precision_effective: str
    options: Mapping[str, str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    engine_sha256: str
    segment_sha256: str
    builder_version: str
    calibration_sha256: str = ""
    node_precisions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    profiles: tuple[Mapping[str, Any], ...] = ()
    format_version: int = FORMAT_VERSION
    signature: str | None = None

    @property
    def is_unchecked(self) -> bool:
        """True if nobody has compared the engine with native execution when it was built."""
        return self.options.get(UNCHECKED) == "1"

    @property
    def empty_places(self) -> frozenset[frozenset[InputAxis]]:
        """The sets of places that may have a size of 0 at the same time."""
        sets = json.loads(self.options.get(EMPTY, "[]"))
        return frozenset(frozenset((place, axis) for place, axis in one) for one in sets)

    def with_empty(self, places: Iterable[frozenset[InputAxis]]) -> Envelope:
        """Return the envelope of an engine that was compared with inputs empty at these places. Nothing signs it."""
        sets = sorted(sorted(one) for one in places)
        return dataclasses.replace(self, options={**self.options, EMPTY: json.dumps(sets)}, signature=None)

    def without(self, *options: str) -> Envelope:
        """Return the envelope without some options."""
        return dataclasses.replace(self, options={k: v for k, v in self.options.items() if k not in options})

    def as_checked(self) -> Envelope:
        """Return the envelope of an engine that was compared after all. No signature covers it."""
        return self.without(UNCHECKED)

    def to_json(self) -> str:
        """Return canonical JSON: UTF-8, sorted keys, no spaces."""
        return _canonical(self._fields())

    def signed_bytes(self) -> bytes:
        """Return the bytes that a signature covers: the canonical JSON without ``signature``."""
        fields = self._fields()
        del fields["signature"]
        return _canonical(fields).encode("utf-8", "surrogatepass")

    def _fields(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        fields["inputs"] = [_spec_to_json(s) for s in self.inputs]
        fields["outputs"] = [_spec_to_json(s) for s in self.outputs]
        return fields

    @classmethod
    def from_json(cls, text: str, segment: str) -> Envelope:
        """Read an envelope.

        Raises:
            EngineRejectedError: The text is no envelope, or one of another format.
        """
        try:
            fields = json.loads(text)
            _check(fields, {"format_version": int})
            version = fields["format_version"]
            if version != FORMAT_VERSION:
                known = f"this program reads {FORMAT_VERSION}; compile the model again"
                raise EngineRejectedError(segment, f"its envelope has format {version}, {known}.")
            _check(fields, FORM)
            fields["device"] = Device(**fields["device"])
            for key in ("inputs", "outputs"):
                fields[key] = tuple(_spec_from_json(s) for s in fields[key])
            fields["profiles"] = tuple(fields.get("profiles", ()))
            envelope = cls(**fields)
            _check_options(envelope.options, len(envelope.inputs))
            return envelope
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise EngineRejectedError(segment, f"its envelope can't be read ({error}).") from error

    def verify(self, engine: bytes | memoryview, segment: str, *, version: str, device: Device) -> None:
        """Refuse an engine that is damaged or was made for something else. The hash comes first.

        Args:
            engine: The engine bytes.
            segment: For the message.
            version: The library's version here.
            device: The processor here.

        Raises:
            EngineRejectedError: Something differs.
        """
        if hashlib.sha256(engine).hexdigest() != self.engine_sha256:
            raise EngineRejectedError(segment, "its bytes are damaged (sha256 differs).")
        self.check_machine(segment, version=version, device=device)

    def check_machine(self, segment: str, *, version: str, device: Device) -> None:
        """Refuse an engine that was made for something else, as ``verify`` does after it has hashed the bytes.

        Raises:
            EngineRejectedError: Something differs.
        """
        if not self._runs_on_later(version):
            _compare(segment, f"{self.backend} version", self.backend_version, version)
        _compare(segment, "platform", self.platform, current_platform())
        if not self._runs_on_others(device):
            _compare(segment, "processor", self.device.features, device.features)

    def _runs_on_later(self, version: str) -> bool:
        """Apply TensorRT's rule for version compatible engines: they run on later releases up to the next major one."""
        if self.options.get("VERSION_COMPATIBLE") != "1":
            return False
        built, here = _numbers(self.backend_version), _numbers(version)
        return built <= here and here[0] - built[0] <= 1

    def _runs_on_others(self, device: Device) -> bool:
        """Apply TensorRT's rules: of targets, and of hardware compatible engines, which run from 8.0 on."""
        if device.features in self.options.get(TARGETS, "").split(","):
            return True
        on_ampere_or_later = (_numbers(one.features) >= [8, 0] for one in (self.device, device))
        return self.options.get("HARDWARE_COMPATIBILITY_LEVEL") == "AMPERE_PLUS" and all(on_ampere_or_later)


def current_platform() -> str:
    """Return operating system and machine, for example ``linux-x86_64``."""
    return f"{platform.system()}-{platform.machine()}".lower()


def _canonical(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _numbers(version: str) -> list[int]:
    """Return the parts of a version; a part that is no number counts as the oldest."""
    return [int(part) if part.isdecimal() else -1 for part in version.split(".")]


def _compare(segment: str, what: str, built: str, here: str) -> None:
    if built != here:
        raise EngineRejectedError(segment, f"it was built for {what} {built!r}; here it is {here!r}.")


def _check(value: object, form: Form, place: str = "it") -> None:
    if problem := misfit(value, form, place):
        raise ValueError(problem)


def _check_options(options: Mapping[str, str], inputs: int) -> None:
    """Check the options that hold JSON, each of which names inputs by their places."""
    held = {}
    for name in OPTION_FORMS.keys() & options:
        try:
            held[name] = json.loads(options[name])
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} is no JSON: {error}") from None
        _check(held[name], OPTION_FORMS[name], name)
    empty = [pair for one in held.get(EMPTY, ()) for pair in one]
    bounds = held.get(INDICES, ())
    pairs = [*empty, *(size for bound in bounds for size in bound["sizes"] if isinstance(size, list))]
    if any(len(pair) != len(("input", "axis")) for pair in pairs):
        raise ValueError("an option has a place that isn't an input and an axis")
    places = [*(pair[0] for pair in pairs), *(bound["input"] for bound in bounds), *held.get(SATURATED, ())]
    if any(not 0 <= place < inputs for place in places):
        raise ValueError(f"an option names an input beyond the {inputs} that there are")


def _spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype and spec.dtype.name, "shape": spec.shape and list(spec.shape)}


def _spec_from_json(fields: Mapping[str, Any]) -> TensorSpec:
    shape: Sequence[int | str | None] | None = fields["shape"]
    return TensorSpec(
        name=fields["name"],
        dtype=ir.DataType[fields["dtype"]] if fields["dtype"] else None,
        shape=None if shape is None else tuple(shape),
    )


def index_sizes(envelopes: Iterable[Envelope]) -> dict[str, int]:
    """Return how many values each input of engines that holds indices may have, by name, where that is known."""
    sizes: dict[str, int] = {}
    for envelope in envelopes:
        for bound in json.loads(envelope.options.get(INDICES, "[]")):
            name = envelope.inputs[bound["input"]].name
            for size in bound["sizes"]:
                if isinstance(size, int):
                    sizes[name] = min(size, sizes.get(name, size))
    return sizes
