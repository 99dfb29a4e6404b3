"""``trtnode calibrate``: learns the ranges of a model's tensors from samples and writes them."""

from __future__ import annotations

import argparse
import json
import logging
import pathlib
import time

from trtnode.engines.artifact.files import check_output
from trtnode.engines.precision.options import FEWEST_SAMPLES
from trtnode.engines.quantization.calibrator import calibrate
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.serving.cli.terminal.progress_bar import showing_progress

logger = logging.getLogger(__name__)


def calibrate_(arguments: argparse.Namespace) -> int:
    """Calibrate and write.

    Raises:
        PartitionError: The model can't be read.
        EngineError: It can't be run, the data don't fit it, or the file can't be written.
    """
    check_output(arguments.output, arguments.model, pathlib.Path(arguments.data))
    start = time.perf_counter()
    with showing_progress("Learning ranges"):
        table = calibrate(
            arguments.model,
            CalibrationDataset(arguments.data),
            method=arguments.method,
            percentile=arguments.percentile,
            samples=arguments.samples,
        )
    table.save(arguments.output)
    if table.samples < FEWEST_SAMPLES:
        logger.warning("Ranges from %d samples quantize a model only with --allow-few-samples", table.samples)
    facts = {
        "output": str(arguments.output),
        "method": table.method,
        "samples": table.samples,
        "tensors": len(table.ranges),
        "model_sha256": table.model_sha256,
        "data_sha256": table.data_sha256,
        "seconds": round(time.perf_counter() - start, 3),
    }
    if arguments.json:
        print(json.dumps(facts))
    else:
        print(
            f"Wrote {facts['output']}: ranges of {facts['tensors']} tensors from {table.samples} samples "
            f"({table.method}) in {facts['seconds']} s."
        )
    return 0
