"""A loaded engine of OpenVINO.

Runs call the base class of ``InferRequest``, because the public wrapper costs more than a small model's run. No other
file calls it.
int64 inputs of each request are checked to fit 32 bits. A value beyond them raises ``OutOfRangeError``, and the
executor answers natively, unless only its order counts: see ``wide_integers``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.backends.protocols import Buffer, Engine
from trtnode.engines.errors import EngineRejectedError, ExecutionError, OutOfRangeError
from trtnode.engines.openvino.indices import Bound
from trtnode.engines.openvino.library import ov, ov_c
from trtnode.engines.openvino.memory import LARGE_BYTES, Inputs, Results, made_by
from trtnode.engines.openvino.wide_integers import ENDS, touches_an_end
from trtnode.partitioner.graph.view import TensorSpec

HEADINGS = (
    "Exception from src/",
    "Check '",
    "FrontEnd API failed with",
    "Model wasn't fully converted",
    "While validating",
    "Summary:",
)
"""Beginnings of lines in OpenVINO's messages that name places in its source."""


CORES = len(os.sched_getaffinity(0))
"""The number of cores when OpenVINO was imported. On one, infer() runs in the calling thread, where the process crashes
once an earlier model has been freed (2026.4)."""


class OpenVinoEngine(Engine):
    """One inference request of a compiled model."""

    reads_in_place = True

    def __init__(
        self,
        compiled: ov.CompiledModel,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        blob: Buffer,
        bounds: Sequence[Bound] = (),
        saturated: frozenset[int] = frozenset(),
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._compiled = compiled
        self._blob = blob
        self._request = compiled.create_infer_request()
        # The public infer() wraps every output in an ordered dictionary; the base class does not.
        infer = functools.partial(ov_c.InferRequest.infer, self._request, {}, share_outputs=True, decode_strings=False)
        self._infer = infer if CORES > 1 else functools.partial(_infer_elsewhere, self._request)
        self._bounds = bounds
        self._saturated = saturated
        bounded = {bound.input for bound in bounds}  # sizes fit into 32 bits
        self._wide = [i for i, spec in enumerate(inputs) if spec.dtype == ir.DataType.INT64 and i not in bounded]
        self._wide_buffers: list[Buffer] = []
        self._placed = Inputs(len(inputs))
        self._results = Results(compiled, self._request)
        self._inputs: Sequence[Buffer] = ()
        self._bound_inputs: list[Buffer | None] = [None] * len(inputs)
        self._bound_outputs: Sequence[Buffer] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Bind the request to buffers. A buffer that is bound already costs nothing.

        Raises:
            ExecutionError: A buffer does not fit what the engine was built for.
        """
        try:
            for index, buffer in enumerate(inputs):
                if buffer is not self._bound_inputs[index]:
                    self._request.set_input_tensor(index, ov.Tensor(buffer, shared_memory=True))
                    self._bound_inputs[index] = buffer
            for index, buffer in enumerate(outputs or ()):
                self._request.set_output_tensor(index, ov.Tensor(buffer, shared_memory=True))
        except RuntimeError as error:
            raise ExecutionError(f"OpenVINO: {first_line(error)}") from error
        self._bound_outputs = outputs
        self._wide_buffers = [inputs[index] for index in self._wide]
        self._inputs = inputs

    def run(self) -> Sequence[Buffer]:
        """Run on the bound buffers.

        Raises:
            OutOfRangeError: An int64 input holds a value beyond 32 bits, which OpenVINO would cut off, or an index is
                outside its range.
            ExecutionError: OpenVINO failed.
        """
        for bound in self._bounds:
            bound.check(self._inputs, self.inputs)
        buffers = zip(self._wide, self._wide_buffers, strict=True)
        wide = [place for place, buffer in buffers if not np.array_equal(buffer.astype(np.int32), buffer)]
        if not self._saturated.issuperset(wide):
            raise _out_of_range()
        try:
            if self._bound_outputs is None:
                self._results.prepare()
            for place in wide:
                self._request.set_input_tensor(place, ov.Tensor(np.clip(self._inputs[place], *ENDS)))
            self._infer()
        except RuntimeError as error:
            raise ExecutionError(f"OpenVINO: {first_line(error)}") from error
        finally:
            for place in wide:
                self._request.set_input_tensor(place, ov.Tensor(self._inputs[place], shared_memory=True))
        results = self._results.take() if self._bound_outputs is None else self._bound_outputs
        if wide and touches_an_end(results):
            raise _out_of_range()
        return results

    def run_on(self, inputs: Sequence[Buffer]) -> Sequence[Buffer]:
        """Run on arrays, of which large ones are read where they lie.

        Raises:
            OutOfRangeError: As ``run``.
            ExecutionError: OpenVINO failed, or an array does not fit what the engine was built for.
        """
        try:
            self.bind(self._placed.place(inputs), None)
            return self.run()
        finally:
            self._inputs, self._wide_buffers = (), []
            both = zip(self._bound_inputs, inputs, strict=True)
            self._bound_inputs = [bound if given.nbytes < LARGE_BYTES else None for bound, given in both]

    def made(self, array: Buffer) -> bool:
        """Return whether an array is a result of this model as it was handed out."""
        return made_by(array, self._compiled)

    def fork(self) -> OpenVinoEngine:
        """Return another request of the same compiled model."""
        return OpenVinoEngine(self._compiled, self.inputs, self.outputs, self._blob, self._bounds, self._saturated)


def _infer_elsewhere(request: ov.InferRequest) -> None:
    """Run a request in OpenVINO's own thread."""
    request.start_async()
    request.wait()


def _out_of_range() -> OutOfRangeError:
    return OutOfRangeError("int64_range", "An int64 input holds a value that does not fit into 32 bits.")


def check_bindings(kind: str, ports: Sequence[Any], specs: Sequence[TensorSpec]) -> None:
    """Compare bindings by position, count and type: OpenVINO drops unused inputs and renames others."""
    if len(ports) != len(specs):
        raise EngineRejectedError("OpenVINO", f"it has {len(ports)} {kind}, its envelope {len(specs)}.")
    for port, spec in zip(ports, specs, strict=True):
        built = np.dtype(port.get_element_type().to_dtype())
        if spec.dtype is None or built != spec.dtype.numpy():
            raise EngineRejectedError("OpenVINO", f"{kind[:-1]} {spec.name!r} is {built}, not {spec.dtype}.")


def first_line(error: Exception) -> str:
    """Return the first line of an OpenVINO error that names no place in its source."""
    lines = [line.strip().removeprefix("-- ") for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(HEADINGS) and not line.endswith("with a message:")]
    return (told or lines or [type(error).__name__])[0][:300]
