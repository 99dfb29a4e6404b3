"""The arguments of ``trtnode bench server``; its work is imported when it runs."""

from __future__ import annotations

import argparse
import math
import pathlib

from trtnode.serving.cli.command import Command, lazy, positive


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text} is no address; write HOST:PORT, such as 127.0.0.1:8001")
    return text


def _concurrencies(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def _rates(text: str) -> list[float]:
    return [amount(part) for part in text.split(",")]


def amount(text: str) -> float:
    """Read a positive number, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _amount_or_zero(text: str) -> float:
    return 0.0 if text == "0" else amount(text)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, colon, sizes = text.rpartition(":")  # names may hold colons
    parts = sizes.split("x") if sizes else []
    if not (name and colon and all(part.isdecimal() for part in parts)):
        raise argparse.ArgumentTypeError(f"{text} is no shape; write NAME:1x3x224x224")
    return name, tuple(map(int, parts))


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", type=_address, metavar="HOST:PORT", help="gRPC address of any KServe V2 server")
    parser.add_argument("--model", required=True, metavar="NAME", help="the model's name there")
    load = parser.add_mutually_exclusive_group()
    load.add_argument(
        "--concurrency",
        type=_concurrencies,
        default=[1, 8, 32],
        metavar="N,...",
        help="closed loop: callers that each wait for their answer; default: 1,8,32",
    )
    load.add_argument(
        "--rate",
        type=_rates,
        metavar="R,...",
        help="open loop: requests a second at random times; latency counts from when a request was due",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=amount, default=5.0, metavar="S", help="length of a row; default: 5")
    length.add_argument("--requests", type=positive, metavar="N", help="length of a row in requests instead")
    parser.add_argument(
        "--warmup", type=_amount_or_zero, default=1.0, metavar="S", help="seconds of load before a row; default: 1"
    )
    parser.add_argument("--batch", type=positive, default=1, metavar="N", help="size of open first dimensions")
    parser.add_argument(
        "--shape",
        type=_shape,
        action="append",
        default=[],
        metavar="NAME:1x3x224x224",
        help="shape of an input; may be repeated; other open dimensions are 1",
    )
    parser.add_argument(
        "--inputs", type=pathlib.Path, metavar="IN.npz", help="inputs, or texts (.txt, .jsonl); generated without this"
    )
    parser.add_argument("--timeout", type=amount, default=60.0, metavar="S", help="limit of a request; default: 60")
    parser.add_argument("--processes", type=positive, metavar="N", help="client processes; default: one for four cores")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the open loop's times; default: 0")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows as JSON")


SERVER = Command(
    name="server",
    help="put load on a KServe V2 server",
    configure=_configure,
    run=lazy("trtnode.bench.load.command:bench"),
)
