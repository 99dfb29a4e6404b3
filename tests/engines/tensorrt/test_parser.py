"""Questions to TensorRT's parser, on a simulated TensorRT: the real one needs libraries that are not here."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from trtnode.engines.tensorrt.labelling.parser import CODES, ask_parser
from trtnode.partitioner.cut.labels import ReasonCode, Verdict


@pytest.mark.parametrize(("code", "reason"), [*CODES.items(), ("UNSUPPORTED_NODE", ReasonCode.UNSUPPORTED_OP)])
def test_simulated_refusal_keeps_the_parsers_words_and_gets_our_reason_code(
    code: str, reason: ReasonCode, tensorrt: Callable[..., Any], model: pathlib.Path
) -> None:
    module = tensorrt(refuses={"Softsign": (code, "In node 1: Softsign is odd\nmore about it")})

    verdict = ask_parser(module, model)

    assert verdict == Verdict(reason, f"TensorRT's parser ({code}): In node 1: Softsign is odd.")


def test_simulated_parser_that_gives_no_error_is_quoted_from_its_log(
    tensorrt: Callable[..., Any], model: pathlib.Path
) -> None:
    module = tensorrt(refuses={"Softsign": ("INTERNAL_ERROR", "Assertion failed")}, parser_is_silent=True)

    assert ask_parser(module, model).detail == "TensorRT's parser refuses it: Assertion failed."
