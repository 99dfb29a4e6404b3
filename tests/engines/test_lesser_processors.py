"""Answers of processors without 8-bit dot products, shown on a machine that has them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lesser_processors import HELD_BACK, held_back_to, run_tests

PATTERNS = "tests/engines/compile/test_quantized_patterns.py"

SAMPLES = {
    "AVX512_CORE": [PATTERNS],
    "AVX2": [
        *(PATTERNS, "tests/engines/precision/test_rewriting.py"),
        *(
            f"tests/engines/quantization/test_{name}.py"
            for name in ("bias_correction", "channel_equalization", "float8", "qdq_writer")
        ),
    ],
}
"""Tests whose results follow from the instructions of the processor, by those that it is held back to."""

STEPS_OF_DEFAULTS = """
import onnxruntime, quantized_patterns
pattern = quantized_patterns.qdq("Conv")
session = onnxruntime.InferenceSession(pattern.model.SerializeToString(), providers=["CPUExecutionProvider"])
print(pattern.steps_away(session.run(None, pattern.feeds)[0]))
"""


@pytest.mark.parametrize("instruction_set", ["AVX2", "AVX512_CORE"])
def test_plain_onnxruntime_saturates_when_it_is_held_back(instruction_set: str) -> None:
    environment = {**held_back_to(instruction_set), "PYTHONPATH": f"{HELD_BACK}:{HELD_BACK.parent}"}

    done = subprocess.run([sys.executable, "-c", STEPS_OF_DEFAULTS], env=environment, capture_output=True)

    assert float(done.stdout) > 5


@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("instruction_set", SAMPLES)
def test_samples_pass_with_older_instructions(instruction_set: str) -> None:
    assert "passed" in run_tests(instruction_set, *SAMPLES[instruction_set])
