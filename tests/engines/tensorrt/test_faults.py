"""Faults of a GPU, and their effect on requests and models. TensorRT and the GPU are simulated."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import onnx
import pytest

from arrays import floats
from simulated_cuda.errors import ILLEGAL_ADDRESS, LAUNCH_FAILED
from streams import ANYONE, NOTHING, Machine, between
from trtnode.engines.artifact.compiled_model import NATIVE_FALLBACK
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import BackendMissingError, EngineRejectedError, ExecutionError
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.cut.options import Allowance

ROWS = "g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) y = Exp(a) }"
CHAIN = "g (float[2, 4] x) => (float[2, 4] y) { a = Relu(x) b = Softsign(a) c = Exp(b) d = Softsign(c) y = Abs(d) }"
REVEALED = "g (float[6] x) => (int64[1, M] y) { a = Relu(x) y = NonZero(a) }"


def test_plan_that_the_library_refuses_runs_natively_and_its_log_says_why(machine: Machine) -> None:
    _, compiled = machine.compile(CHAIN, native_ops=("Softsign",))
    machine.simulation.faults.deserialize_fails = "Serialization assertion failed: magic number"

    executable = open_model(compiled, run=RunOptions(trust=ANYONE))

    assert executable.facts.engine == "native"
    assert "Serialization assertion failed: magic number." in executable.facts.rejected[0]
    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)


def test_damaged_plan_is_refused_by_the_library_itself(machine: Machine) -> None:
    engine = machine.engine(ROWS.replace("N", "2"))
    envelope = machine.envelope

    with pytest.raises(EngineRejectedError, match="this is no plan"):
        get_backend("tensorrt").load(b"no plan", envelope)

    assert engine.inputs == envelope.inputs


def test_plan_of_other_tensors_than_its_envelope_says_is_refused(machine: Machine) -> None:
    machine.engine("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    envelope = machine.envelope
    machine.engine("g (float[2] x) => (float[2] z) { z = Relu(x) }")

    with pytest.raises(EngineRejectedError, match=r"its outputs are \['z'\], its envelope's \['y'\]"):
        get_backend("tensorrt").load(machine.plan, envelope)


def test_plan_of_another_type_than_its_envelope_says_is_refused(machine: Machine) -> None:
    machine.engine("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    envelope = machine.envelope
    machine.engine("g (float16[2] x) => (float16[2] y) { y = Relu(x) }")

    with pytest.raises(EngineRejectedError, match="'x' is HALF in it, not FLOAT"):
        get_backend("tensorrt").load(machine.plan, envelope)


def test_missing_runtime_is_told_like_a_refused_plan(machine: Machine) -> None:
    machine.engine(ROWS.replace("N", "2"))
    machine.simulation.faults.builder_missing = True

    with pytest.raises(EngineRejectedError, match="factory function returned nullptr"):
        get_backend("tensorrt").load(machine.plan, machine.envelope)


@pytest.mark.parametrize(
    ("fault", "said"), [("context_fails", "out of memory for a context"), ("profile_switch_fails", "Profile 1")]
)
def test_model_without_execution_contexts_runs_natively(
    fault: str, said: str, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.profiles = [{"x": between((1, 4), (8, 4))}, {"x": between((9, 4), (64, 4))}]
    _, compiled = machine.compile(ROWS)
    faults = machine.simulation.faults
    setattr(faults, fault, said if isinstance(getattr(faults, fault), str) else True)

    executable = open_model(compiled, run=RunOptions(trust=ANYONE))

    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)
    assert said in executable.facts.rejected[0]
    machine.clean()
    assert machine.gpu.leaks() == NOTHING


def test_gpu_without_room_for_a_model_runs_it_natively_and_the_others_on(machine: Machine) -> None:
    small = machine.load(ROWS.replace("N", "2"))
    small.check(x=floats(2, 4))
    _, compiled = machine.compile("g (float[4096] x) => (float[4096] y) { a = Relu(x) b = Exp(a) y = Tanh(b) }")
    machine.clean()
    machine.gpu.total_bytes = machine.gpu.memory.size + 4096

    executable = open_model(compiled, run=RunOptions(trust=ANYONE))

    assert "The GPU's memory is full" in executable.facts.rejected[0]
    small.check(x=floats(2, 4))
    assert small.fallbacks == []


def test_gpu_without_room_for_a_request_answers_it_natively(machine: Machine) -> None:
    machine.profiles = [{"x": between((1, 4), (1 << 16, 4))}]
    model = machine.load(ROWS)
    model.check(x=floats(2, 4))
    machine.clean()
    machine.gpu.total_bytes = machine.gpu.memory.size + 1024

    model.check(x=floats(1 << 14, 4))
    model.check(x=floats(2, 4))

    assert model.fallbacks == ["engine_error"]
    assert model.losses == []


@pytest.mark.parametrize("succeeding", [0, 1, 2])
def test_enqueue_that_fails_anywhere_in_a_request_answers_it_natively_and_the_next_works(
    succeeding: int, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    model = machine.load(CHAIN, native_ops=("Softsign",))
    model.check(x=floats(2, 4))
    machine.simulation.faults.enqueue_fails_after = succeeding

    model.check(x=floats(2, 4, seed=1))
    model.check(x=floats(2, 4, seed=2))

    assert model.fallbacks == ["engine_error"]
    assert "could not be enqueued: IExecutionContext::enqueueV3: Cuda failure: out of memory." in caplog.text


def test_request_without_a_native_path_fails_with_the_librarys_own_words(machine: Machine) -> None:
    _, compiled = machine.compile(ROWS.replace("N", "2"))
    proto = onnx.load(compiled)
    proto.metadata_props.append(onnx.StringStringEntryProto(key=NATIVE_FALLBACK, value="none"))
    onnx.save(proto, compiled)
    executable = open_model(compiled, run=RunOptions(trust=ANYONE))
    compiled.unlink()
    machine.simulation.faults.enqueue_fails_after = 0

    with pytest.raises(ExecutionError, match="Cuda failure: out of memory"):
        executable.run({"x": floats(2, 4)})

    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)


def test_memory_that_an_output_lacks_is_told_as_the_cause_and_the_next_request_works(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    model = machine.load(REVEALED, allow=(Allowance.DATA_DEPENDENT,))
    machine.clean()
    room, machine.gpu.total_bytes = machine.gpu.total_bytes, machine.gpu.memory.size + 300

    model.check(x=np.ones(6, np.float32))  # room for the input alone
    machine.gpu.total_bytes = room
    model.check(x=np.ones(6, np.float32))

    assert model.fallbacks == ["engine_error"]
    assert "The GPU's memory is full" in caplog.text


@pytest.mark.parametrize("code", [ILLEGAL_ADDRESS, LAUNCH_FAILED])
def test_lost_context_is_told_once_and_nothing_wrong_is_answered(code: int, machine: Machine) -> None:
    model = machine.load(CHAIN, native_ops=("Softsign",))
    other = machine.load(ROWS.replace("N", "2"))
    model.check(x=floats(2, 4))
    machine.gpu.fails_kernel = code

    model.check(x=floats(2, 4, seed=1))
    model.check(x=floats(2, 4, seed=2))
    other.check(x=floats(2, 4, seed=3))

    assert model.fallbacks == ["engine_error", "engine_error"]
    assert "can't be used any more in this process" in model.losses[0]
    assert "Restart the server." in other.losses[0]
    model.executable.close()
    other.executable.close()


def test_model_is_not_loaded_onto_a_lost_context(machine: Machine) -> None:
    model = machine.load(ROWS.replace("N", "2"))
    _, compiled = machine.compile(CHAIN, native_ops=("Softsign",))
    machine.gpu.fails_kernel = ILLEGAL_ADDRESS
    model.check(x=floats(2, 4))

    executable = open_model(compiled, run=RunOptions(trust=ANYONE))

    assert "can't be used any more" in executable.facts.rejected[0]
    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)


def test_machine_without_a_gpu_tells_how_to_find_out(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.driver, "Device", _no_device(machine.driver))

    with pytest.raises(BackendMissingError, match="Run nvidia-smi"):
        get_backend("tensorrt").load(b"", None)  # type: ignore[arg-type]


def _no_device(driver: ModuleType):
    def device(ordinal: int) -> None:
        raise driver.RuntimeError(f"cuDeviceGet failed: no device {ordinal}")

    return device


def test_program_without_pycuda_is_told_how_to_get_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtnode.engines.cuda.context.driver", None)

    assert "pip install 'trtnode[cuda]'" in (get_backend("tensorrt").unavailable_reason() or "")
    with pytest.raises(BackendMissingError, match=r"pip install 'trtnode\[cuda\]'"):
        get_backend("tensorrt").load(b"", None)  # type: ignore[arg-type]
