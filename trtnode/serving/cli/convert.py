"""``trtnode convert``: writes a model in a lower precision, as plain ONNX for other programs."""

from __future__ import annotations

import argparse
import json

from trtnode.engines.conversion.typed_models import convert_file
from trtnode.serving.cli.compile_flags import options_from
from trtnode.serving.cli.terminal.console import open_console
from trtnode.serving.cli.terminal.precision import print_precision
from trtnode.serving.cli.terminal.progress_bar import showing_progress


def convert(arguments: argparse.Namespace) -> int:
    """Convert and write.

    Raises:
        PartitionError: The model can't be read.
        EngineError: The precision can't be had inside the budget, or the file can't be written.
        InvalidOptionError: A precision rule or a shape has another form.
    """
    with showing_progress("Converting"):
        report = convert_file(arguments.model, arguments.output, options_from(arguments))
    size = arguments.output.stat().st_size
    if arguments.json:
        print(json.dumps({"output": str(arguments.output), "file_bytes": size, "precision": report}))
    else:
        console = open_console()
        print_precision(report, console)
        console.print(f"Wrote {arguments.output}, {size:,} bytes, in {report['effective']}.", markup=False)
    return 0
