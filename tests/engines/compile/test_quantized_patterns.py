"""Quantized operators give what onnx.reference gives, on whatever processor the tests meet."""

from __future__ import annotations

import pytest

from quantized_patterns import PATTERNS, Pattern, qdq
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.backends.cpu_features import has_short_sums, usable_flags
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.cut.labels import ReasonCode
from workshop import Workshop


@pytest.fixture(params=PATTERNS)
def pattern(request: pytest.FixtureRequest) -> Pattern:
    return PATTERNS[request.param]()


@pytest.mark.parametrize("options", [{}, {"unfused": True}], ids=["fused", "as-written"])
def test_native_sums_are_exact(pattern: Pattern, options: dict[str, bool]) -> None:
    (result,) = NativeSession(pattern.model, **options).run(pattern.feeds)

    assert pattern.steps_away(result) <= 1.001


def test_sums_of_a_compiled_model_are_exact(pattern: Pattern, workshop: Workshop) -> None:
    result = workshop.executable(pattern.model).run(pattern.feeds)["y"]

    assert pattern.steps_away(result) <= 1.001


def test_an_engine_takes_the_sums_where_the_processor_has_dot_products(workshop: Workshop) -> None:
    if has_short_sums(usable_flags()):
        pytest.skip("this processor has no 8-bit dot products")

    assert compiled(workshop).report.native == ()


def test_sums_that_would_saturate_in_an_engine_run_natively(workshop: Workshop) -> None:
    if not has_short_sums(usable_flags()):
        pytest.skip("this processor has 8-bit dot products; tests/engines/test_lesser_processors.py hides them")

    report = compiled(workshop).report

    (sums,) = (n for n in report.native if n.op_type == "Conv")
    assert "OpenVINO's 16-bit sums would saturate" in sums.detail
    assert {n.code for n in report.native} == {ReasonCode.INACCURATE}
    assert report.segments == ()


def compiled(workshop: Workshop) -> CompiledModel:
    return workshop.compile(workshop.write(qdq("Conv").model))
