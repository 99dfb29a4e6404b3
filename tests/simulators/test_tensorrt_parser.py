"""How TensorRT's parser is asked, on a simulated TensorRT: the real one needs libraries that are not here."""

from __future__ import annotations

from typing import Any

import pytest

from engines import Worker, jobs
from engines.cuda_devices import Gpu
from engines.envelope import Device
from engines.tensorrt_backend import TensorRtBackend, missing_part
from engines.tensorrt_parser import CODES, ask_parser, make_logger
from engines.verdicts import _known, ask_library
from partitioner import SUPPORTED, PartitionOptions, ReasonCode, Verdict, clean_up, label_nodes, load_model


@pytest.mark.parametrize("version", ["10.3.0", "10.16.1.11", "11.0.0.114", "11.4.0.106"])
def test_simulated_parser_of_any_release_is_given_a_strongly_typed_network(version, tensorrt, model) -> None:
    assert ask_parser(tensorrt(version=version), model) == SUPPORTED


def test_simulated_parser_is_asked_twice_with_a_new_network_each_time(tensorrt, model) -> None:
    module = tensorrt()

    assert [ask_parser(module, model), ask_parser(module, model)] == [SUPPORTED, SUPPORTED]


@pytest.mark.parametrize(("code", "reason"), [*CODES.items(), ("UNSUPPORTED_NODE", ReasonCode.UNSUPPORTED_OP)])
def test_simulated_refusal_keeps_the_parsers_words_and_gets_our_reason_code(code, reason, tensorrt, model) -> None:
    module = tensorrt(refuses={"Softsign": (code, "In node 1: Softsign is odd\nmore about it")})

    verdict = ask_parser(module, model)

    assert verdict == Verdict(reason, f"TensorRT's parser ({code}): In node 1: Softsign is odd.")


def test_simulated_parser_that_gives_no_error_is_quoted_from_its_log(tensorrt, model) -> None:
    module = tensorrt(refuses={"Softsign": ("INTERNAL_ERROR", "Assertion failed")}, parser_is_silent=True)

    assert ask_parser(module, model).detail == "TensorRT's parser refuses it: Assertion failed."


def test_one_logger_serves_the_whole_process_of_a_simulated_library(tensorrt) -> None:
    module = tensorrt()

    assert make_logger(module) is make_logger(module)


def test_notes_of_a_simulated_library_are_not_taken_for_its_errors(tensorrt) -> None:
    module = tensorrt()
    logger = make_logger(module)

    logger.log(module.ILogger.Severity.INFO, "a note")

    assert logger.last() is None


class InProcess(Worker):
    """Asks a simulated library in this process."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self._module = module
        self.asked = 0

    def call(self, function, timeout_s, /, *args, **kwargs):
        assert function is jobs.refusal
        self.asked += 1
        return ask_parser(self._module, args[1])


class Simulated(TensorRtBackend):
    """The backend on a machine that has a simulated TensorRT and a GPU."""

    def missing(self) -> None:
        return None

    def version(self) -> str:
        return "11.1.0.1"

    def device(self) -> Device:
        return Device(features="9.0", name="simulated GPU")


def test_simulated_parser_refines_the_table(tensorrt, model) -> None:
    _known.clear()
    graph = clean_up(load_model(model))
    worker = InProcess(tensorrt(refuses={"Softsign": ("UNSUPPORTED_NODE_SHAPE", "rank")}))

    rule = ask_library(Simulated(), graph, PartitionOptions(), None, worker)
    labels = label_nodes(graph, rule, PartitionOptions())
    _known.clear()

    assert {node.op_type: labels[node.name].code for node in graph.nodes} == {
        "Relu": None,
        "Softsign": ReasonCode.UNSUPPORTED_RANK,
        "Tanh": None,
    }


@pytest.mark.parametrize(
    ("version", "load_problem", "gpu", "said"),
    [
        pytest.param(None, "", Gpu(name="a", compute_capability="9.0"), "not installed here", id="not-installed"),
        pytest.param(None, "libnvinfer.so.11: not found", None, "libnvinfer.so.11: not found", id="no-libnvinfer"),
        pytest.param("10.0.1", "", Gpu(name="a", compute_capability="9.0"), "10.3 or newer", id="too-old"),
        pytest.param("11.4.0.106", "", None, "no NVIDIA GPU", id="no-gpu"),
    ],
)
def test_what_is_missing_is_told_with_the_way_to_mend_it(version, load_problem, gpu, said, tensorrt) -> None:
    module = tensorrt(version=version) if version else None

    sentence = missing_part(module, load_problem=load_problem, gpu=gpu)

    assert said in str(sentence)
    assert "pip install" in str(sentence) or "nvidia-smi" in str(sentence)


def test_nothing_is_missing_with_a_simulated_library_and_a_gpu(tensorrt) -> None:
    assert missing_part(tensorrt(), load_problem="", gpu=Gpu(name="a", compute_capability="9.0")) is None
