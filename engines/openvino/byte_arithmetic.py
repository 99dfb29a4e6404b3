"""Lets an engine compute 8-bit results as ONNX Runtime does: in 32 bits, of which the last eight stay.

OpenVINO rounds quotients of 8-bit integers, and stops at the end of their range where it casts a float beyond it. In
int32 it does neither, and a cast from there drops the upper bits.
"""

from __future__ import annotations

from typing import Any

from trtnode.engines.openvino.library import opset, ov, passes

BYTES = (ov.Type.i8, ov.Type.u8)

WIDE = "i32"


def compute_bytes_in_32_bits(model: ov.Model) -> None:
    """Rewrite the casts and quotients of a model and of its branches and bodies, in place."""
    manager = passes.Manager()
    manager.register_pass(_Rewrite("opset1.Convert", _widen_cast))
    manager.register_pass(_Rewrite("opset1.Divide", _widen_quotient))
    manager.run_passes(model)


class _Rewrite(passes.MatcherPass):  # type: ignore[misc]
    """Applies a function to each operation of a type with an 8-bit result."""

    def __init__(self, kind: str, rewrite: Any) -> None:
        super().__init__()

        def apply(matcher: Any) -> bool:
            operation = matcher.get_match_root()
            return bool(operation.get_element_type() in BYTES and rewrite(operation))

        self.register_matcher(passes.Matcher(passes.WrapType(kind), rewrite.__name__), apply)


def _widen_cast(cast: Any) -> bool:
    """Cast floats to int32 first. A quantized value lies in the range already."""
    source = cast.input_value(0)
    if not source.get_element_type().is_real() or source.get_node().get_type_name() == "FakeQuantize":
        return False
    cast.input(0).replace_source_output(opset.convert(source, WIDE).output(0))
    return True


def _widen_quotient(quotient: Any) -> bool:
    consumers, element = quotient.output(0).get_target_inputs(), quotient.get_element_type()
    wide = opset.divide(*(opset.convert(quotient.input_value(place), WIDE) for place in (0, 1)))
    narrow = opset.convert(wide, element)
    narrow.set_friendly_name(quotient.get_friendly_name())
    for consumer in consumers:
        consumer.replace_source_output(narrow.output(0))
    return True
