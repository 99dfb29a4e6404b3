"""Workers share what was measured of variants."""

from __future__ import annotations

import pathlib
import re

from tests.serving.conftest import Adders
from tests.serving.workers.conftest import Launch


def test_workers_measure_variants_once_and_answer_with_the_same(
    tmp_path: pathlib.Path, adders: Adders, launch: Launch
) -> None:
    adders.write("big.onnx", 1)
    adders.write("small.onnx", 2)
    two = f"[{{path: {tmp_path}/big.onnx, quality: 2}}, {{path: {tmp_path}/small.onnx, quality: 1}}]"
    group = launch(f"- {{name: m, engine: native, variants: {two}, latency_target_ms: 600000}}", cache=tmp_path)
    group.wait_for("ready on")

    measured = re.findall(r"variant 'big' answers; measured: (.* ms)", group.log)

    assert len(measured) == 2
    assert len(set(measured)) == 1
