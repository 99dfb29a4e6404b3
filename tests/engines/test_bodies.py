"""Engines inside the bodies of If and Loop: they run, the answers stay, and what fails leaves the model right."""

from __future__ import annotations

import concurrent.futures
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from engines import CompiledModel, CompileOptions, EngineCache, ExecutionError, load_executable, partition_model
from engines.openvino_backend import OpenVinoEngine
from partitioner import PartitionOptions

BRANCHES = """g (bool c, float[4,4] s, float[256,1024] x, float[1024] k) => (float[256,1024] y) {
    [branch] y = If (c) <
        then_branch = t () => (float[256,1024] a) {
            p = Mul(x, k) q = Exp(p) r = Tanh(q) d = Det(s) u = Add(r, d) v = Sigmoid(u) a = Neg(v) },
        else_branch = e () => (float[256,1024] b) { b = Neg(x) }
    >
}"""

LOOP = """g (int64 n, bool go, float[4,4] s, float[256,1024] x, float[1024] k)
    => (float[256,1024] y, float[S,256,1024] all, float[S] dets) {
    e = Exp(k)
    [loop] y, all, dets = Loop (n, go, x) <
        body = b (int64 i, bool c, float[256,1024] v) => (bool c2, float[256,1024] v2, float[256,1024] o, float d) {
            two = Constant<value = int64 {2}>()
            d = Det(s) p = Mul(v, e) q = Tanh(p) r = Add(q, d) u = Sigmoid(r) v2 = Neg(u) o = Abs(v2)
            c2 = Less(i, two) }
    >
}"""

NESTED = LOOP.replace(
    "u = Sigmoid(r)",
    """most = ReduceMax<keepdims = 0>(r) some = Cast<to = 9>(most)
       [inner] u = If (some) <
        then_branch = t () => (float[256,1024] u1) {
            f1 = Sigmoid(r) f2 = Tanh(f1) f3 = Mul(f2, e) f4 = Det(s) f5 = Neg(f3) u1 = Mul(f5, f4) },
        else_branch = f () => (float[256,1024] u2) { u2 = Add(r, r) }
    >""",
)


SCAN = """g (float[4,4] s, float[256,1024] x, float[1024] k, float[T,1024] z)
    => (float[256,1024] y, float[T,256,1024] all) {
    [scan] y, all = Scan<num_scan_inputs = 1,
        body = b (float[256,1024] v, float[1024] w) => (float[256,1024] v2, float[256,1024] o) {
            d = Det(s) p = Mul(v, w) q = Tanh(p) r = Add(q, d) u = Sigmoid(r) h = Mul(u, k) v2 = Neg(h) o = Abs(v2) }
    >(x, z)
}"""


def feeds(**others: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((256, 1024)), rng.standard_normal(1024)
    eye = 2 * np.eye(4, dtype=np.float32)
    return {"s": eye, "x": x.astype(np.float32), "k": k.astype(np.float32), **others}


def loop_feeds(trips: int, go: bool = True) -> dict[str, np.ndarray]:
    return feeds(n=np.array(trips, np.int64), go=np.array(go))


def bodies(compiled: CompiledModel) -> list[dict[str, Any]]:
    """What the report says about bodies."""
    found: list[dict[str, Any]] = compiled.report.as_json()["bodies"]
    return found


@pytest.fixture
def engine_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each run of an engine in this process."""
    runs: list[str] = []
    run = OpenVinoEngine.run

    def counted(engine: OpenVinoEngine) -> Any:
        runs.append(engine.outputs[0].name)
        return run(engine)

    monkeypatch.setattr(OpenVinoEngine, "run", counted)
    return runs


@pytest.fixture(scope="module")
def branches(shared_workshop: Any) -> tuple[pathlib.Path, pathlib.Path]:
    source = shared_workshop.write(BRANCHES)
    return source, shared_workshop.compile_file(source)


@pytest.fixture(scope="module")
def loop(shared_workshop: Any) -> tuple[pathlib.Path, pathlib.Path]:
    source = shared_workshop.write(LOOP)
    return source, shared_workshop.compile_file(source)


@pytest.mark.parametrize(("condition", "runs"), [(True, 1), (False, 0)], ids=["then", "else"])
def test_branch_runs_in_its_engine(
    condition: bool, runs: int, branches: Any, plain: Any, same: Any, fallbacks: Any, engine_runs: list[str]
) -> None:
    source, compiled = branches
    executable = load_executable(compiled)
    reasons = fallbacks(executable)
    given = feeds(c=np.array(condition))

    answers = executable.run(given)

    assert len(engine_runs) == runs
    assert reasons == []
    assert executable.description["segments"] == 1
    same(answers, plain(source, given))
    same(plain(compiled, given), plain(source, given))


def test_report_tells_what_runs_in_a_branch(workshop: Any) -> None:
    compiled = workshop.compile(workshop.write(BRANCHES))

    (body,) = bodies(compiled)
    (native,) = compiled.report.native
    assert (body["node"], body["body"], body["nodes"]) == ("branch", "then_branch", 7)
    assert [segment["name"] for segment in body["segments"]] == ["branch/then_branch/segment_0"]
    assert sum(len(segment["nodes"]) for segment in body["segments"]) == 6
    assert [(n["node"], n["code"]) for n in body["native"]] == [("branch/Det:d", "UNSUPPORTED_OP")]
    assert native.code == "CONTROL_FLOW"
    assert native.detail.endswith("Of its then_branch, 6 of 7 nodes run in engines.")
    assert compiled.engines_built == 1


def test_branch_with_little_to_do_stays_native(workshop: Any) -> None:
    compiled = workshop.compile(workshop.write(BRANCHES.replace("256,1024", "2,4").replace("1024", "4")))

    assert compiled.engine == "native"
    assert bodies(compiled) == []


def test_user_can_keep_nodes_of_a_branch_native(workshop: Any) -> None:
    source = workshop.write(BRANCHES)
    options = CompileOptions(engine="openvino", partition=PartitionOptions(native_nodes=("branch/E*", "Neg:*")))

    _, report = partition_model(source, options)

    native = {n.node: n.code for body in report.bodies for n in body.native}
    assert native == {"branch/Det:d": "UNSUPPORTED_OP", "branch/Exp:q": "USER_EXCLUDED"}


def test_user_can_keep_a_branch_native(workshop: Any) -> None:
    source = workshop.write(BRANCHES)

    assert workshop.compile(source, native_ops=("If",)).engine == "native"
    assert bodies(workshop.compile(source, native_ops=("Exp",)))[0]["segments"] != []


@pytest.mark.parametrize(
    ("trips", "go", "iterations"),
    [
        pytest.param(0, True, 0, id="none"),
        pytest.param(1, True, 1, id="one"),
        pytest.param(2, True, 2, id="two"),
        pytest.param(9, True, 3, id="stopped-early"),
        pytest.param(9, False, 0, id="never-started"),
    ],
)
def test_loop_runs_its_engine_each_time(
    trips: int,
    go: bool,
    iterations: int,
    loop: Any,
    plain: Any,
    same: Any,
    fallbacks: Any,
    engine_runs: list[str],
) -> None:
    source, compiled = loop
    executable = load_executable(compiled)
    reasons = fallbacks(executable)
    given = loop_feeds(trips, go)

    answers = executable.run(given)

    assert engine_runs.count("v2") == iterations
    assert reasons == []
    assert answers["all"].shape == (iterations, 256, 1024)
    same(answers, plain(source, given))
    same(plain(compiled, given), plain(source, given))


def test_results_of_a_loop_belong_to_the_caller(loop: Any) -> None:
    executable = load_executable(loop[1])
    kept = [(trips, executable.run(loop_feeds(trips))) for trips in (0, 1, 2, 1, 0)]

    again = {trips: executable.run(loop_feeds(trips)) for trips in (0, 1, 2)}

    for trips, answers in kept:
        for name, value in answers.items():
            np.testing.assert_array_equal(value, again[trips][name])
            value.fill(7)
    np.testing.assert_array_equal(executable.run(loop_feeds(0))["y"], loop_feeds(0)["x"])


def test_threads_run_bodies_at_the_same_time(loop: Any, same: Any) -> None:
    executable = load_executable(loop[1])
    expected = [executable.run(loop_feeds(trips)) for trips in range(4)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: executable.run(loop_feeds(i % 4)), range(16)))

    for index, one in enumerate(answers):
        same(one, expected[index % 4])


def test_scan_runs_its_engine_each_time(
    workshop: Any, plain: Any, same: Any, fallbacks: Any, engine_runs: list[str]
) -> None:
    source = workshop.write(SCAN)
    compiled = workshop.compile_file(source)
    executable = load_executable(compiled)
    reasons = fallbacks(executable)
    given = feeds()
    given["z"] = given["x"][:3].copy()

    answers = executable.run(given)

    assert engine_runs.count("v2") == 3
    assert reasons == []
    same(answers, plain(source, given))
    same(plain(compiled, given), plain(source, given))


def test_bodies_inside_bodies_have_engines_too(workshop: Any, plain: Any, same: Any, engine_runs: list[str]) -> None:
    source = workshop.write(NESTED)
    compiled = workshop.compile(source)
    path = workshop.folder / "nested.onnx"
    compiled.save(path)
    executable = load_executable(path)
    given = loop_feeds(3)

    answers = executable.run(given)

    assert [(b["node"], b["body"]) for b in bodies(compiled)] == [("loop", "body"), ("loop/inner", "then_branch")]
    names = [segment["name"] for body in bodies(compiled) for segment in body["segments"]]
    assert "loop/body/inner/then_branch/segment_0" in names
    assert len(set(names)) == len(names)
    assert len(engine_runs) == 3 * len(names) + 1
    same(answers, plain(source, given))
    same(plain(path, given), plain(source, given))


@pytest.mark.parametrize("graph", [BRANCHES, LOOP, SCAN, NESTED], ids=["if", "loop", "scan", "nested"])
def test_compiled_file_passes_the_checker(graph: str, workshop: Any) -> None:
    compiled = workshop.compile(workshop.write(graph))

    assert bodies(compiled)
    onnx.checker.check_model(compiled.model, full_check=True)


def test_loop_of_unknown_sizes_runs_in_engines(workshop: Any, plain: Any, same: Any) -> None:
    pinned = "[256,1024] z) => (float[N,1024] y) { w = Concat<axis = 0>(z, x) y = Loop(n, , w)"
    graph = f"""g (int64 n, float[4,4] s, float[N,1024] x, float{pinned} <
        body = b (int64 i, bool c, float v) => (bool c2, float v2) {{
            d = Det(s) p = Mul(z, z) q = Tanh(p) r = Add(q, d) u = Sigmoid(r) m = ReduceSum<keepdims = 0>(u)
            v2 = Mul(v, m) c2 = Identity(c) }} > }}"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}')
    for value in (model.graph.node[1].attribute[0].g.input[2], model.graph.node[1].attribute[0].g.output[1]):
        value.type.tensor_type.ClearField("shape")
    source = workshop.write(model)
    compiled = workshop.compile_file(source)
    base = feeds(n=np.array(2))
    given: Mapping[str, np.ndarray] = {"n": base["n"], "s": base["s"], "x": base["x"][:3], "z": base["x"]}

    executable = load_executable(compiled)

    assert executable.description["segments"] > 0
    same(executable.run(given), plain(source, given))


def test_body_whose_engine_is_refused_stays_native(workshop: Any, in_process: Any, unreliable: Any, plain: Any) -> None:
    unreliable.refuses = ("Tanh", "Exp", "Mul", "Add", "Sigmoid", "Neg")
    source = workshop.write(BRANCHES)

    compiled = workshop.compile(source, engine="unreliable", worker=in_process, native_ops=("Det",))

    assert compiled.engine == "native"
    assert bodies(compiled) == []


def test_node_of_a_body_that_is_computed_wrong_runs_natively(
    workshop: Any, in_process: Any, unreliable: Any, plain: Any, same: Any
) -> None:
    unreliable.miscomputes = ("Sigmoid",)
    source = workshop.write(BRANCHES)
    compiled = workshop.compile(source, engine="unreliable", worker=in_process, native_ops=("Det",))
    path = workshop.folder / "wrong.onnx"
    compiled.save(path)
    given = feeds(c=np.array(True))

    (body,) = bodies(compiled)

    assert ("branch/Sigmoid:v", "INACCURATE") in [(n["node"], n["code"]) for n in body["native"]]
    same(load_executable(path).run(given), plain(source, given))


def test_engine_that_fails_inside_a_body_is_answered_natively(
    loop: Any, plain: Any, same: Any, fallbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, compiled = loop
    executable = load_executable(compiled)
    reasons = fallbacks(executable)

    def failing(engine: OpenVinoEngine) -> Any:
        raise ExecutionError("It is broken.")

    with monkeypatch.context() as patch:
        patch.setattr(OpenVinoEngine, "run", failing)
        answers = executable.run(loop_feeds(2))

    assert reasons == ["engine_error"]
    same(answers, plain(source, loop_feeds(2)))
    same(executable.run(loop_feeds(2)), answers)


def test_engines_of_bodies_come_out_of_the_cache(workshop: Any, tmp_path: pathlib.Path) -> None:
    source, cache = workshop.write(LOOP), EngineCache(tmp_path / "cache", max_bytes=10**9)

    first, second = (workshop.compile(source, cache=cache) for _ in range(2))

    assert (first.engines_built, first.engines_cached) == (2, 0)
    assert (second.engines_built, second.engines_cached) == (0, 2)
    assert bodies(second) == bodies(first)


def test_explanation_plans_what_a_compilation_does(workshop: Any) -> None:
    source = workshop.write(NESTED)

    _, report = partition_model(source, CompileOptions(engine="openvino"))

    compiled = workshop.compile(source)
    assert report.bodies == compiled.report.bodies
    assert report.native == compiled.report.native


@pytest.mark.parametrize("faster", [True, False])
def test_tuning_keeps_engines_in_bodies_where_they_are_faster(
    faster: bool, workshop: Any, in_process: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    asked: list[Mapping[str, Any]] = []

    def measured(subject: Any, kept: Mapping[str, Any], seconds: float) -> Mapping[str, list[float]]:
        asked.append(kept)
        return {"native": [2.0] * 41, "engines": [1.0 if faster else 1.99] * 41}

    monkeypatch.setattr("engines.measuring.measure_candidates", measured)
    source, cache = workshop.write(BRANCHES), EngineCache(tmp_path / "cache", max_bytes=10**9)
    first, second = (workshop.compile(source, tune=True, worker=in_process, cache=cache) for _ in range(2))

    assert asked == [{"native": [], "engines": ["branch/then_branch/segment_0"]}]
    assert [bool(bodies(one)) for one in (first, second)] == [faster] * 2
    assert first.report.tuning == second.report.tuning
    assert second.engines_built == 0


@pytest.mark.usefixtures("brief_tuning")
def test_tuning_measures_engines_in_bodies(loop: Any, workshop: Any) -> None:
    np.savez(workshop.folder / "samples.npz", **loop_feeds(2))

    compiled = workshop.compile(loop[0], tune=True, samples=workshop.folder / "samples.npz")

    assert compiled.report.tuning is not None
    assert set(compiled.report.tuning["bodies"]) == {"native_ms", "engines_ms", "kept"}
    assert bool(bodies(compiled)) == compiled.report.tuning["bodies"]["kept"]


def test_bodies_whose_engines_are_not_wanted_run_natively(loop: Any, plain: Any, same: Any) -> None:
    source, compiled = loop

    executable = load_executable(compiled, native=True)

    assert executable.description["segments"] == 0
    same(executable.run(loop_feeds(2)), plain(source, loop_feeds(2)))
