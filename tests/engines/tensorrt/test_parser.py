"""Questions to TensorRT's parser, on a simulated TensorRT: the real one needs libraries that are not here."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from trtnode.engines.tensorrt.labelling.parser import ask_parser


def test_simulated_parser_that_gives_no_error_is_quoted_from_its_log(
    tensorrt: Callable[..., Any], model: pathlib.Path
) -> None:
    module = tensorrt(refuses={"Softsign": ("INTERNAL_ERROR", "Assertion failed")}, parser_is_silent=True)

    assert ask_parser(module, model).detail == "TensorRT's parser refuses it: Assertion failed."
