"""Functions are inlined as onnx_ir's own pass does it, in time that grows with the nodes alone."""

from __future__ import annotations

import cProfile
import pstats

import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes import common

from model_texts import parse
from trtnode.partitioner.passes.inlining import inline_calls

HEADER = '<ir_version: 10, opset_import: ["": 21, "f": 1]>'
FUNCTION = '<domain: "f", opset_import: ["": 21, "f": 1]>'

MODELS = {
    "names-that-clash": f"""{HEADER} g (float[N] x, bool c) => (float[N] y, float[N] a_2) {{
        a = f.twice(x) b = f.twice(a) a_2 = f.twice(b)
        y = If(c) <then_branch = t () => (float[N] u) {{ u = f.twice(b) }},
            else_branch = e () => (float[N] v) {{ v = Relu(x) }}>
    }} {FUNCTION} twice (x) => (y) {{ a = f.once(x) y = f.once(a) }}
    {FUNCTION} once (x) => (y) {{ a = Neg(x) y = Abs(a) }}""",
    "attributes-with-and-without-a-default": f"""{HEADER} g (float[N, M] x) => (float[N, M] y, float[N, M] z) {{
        y = f.soft <axis = 0> (x) z = f.soft(x)
    }} {FUNCTION} soft <axis: int = 1, beta> (x) => (y) {{
        s = Softmax <axis: int = @axis> (x) y = f.leaky <alpha: float = @beta> (s) }}
    {FUNCTION} leaky <alpha> (x) => (y) {{ y = LeakyRelu <alpha: float = @alpha> (x) }}""",
    "an-input-that-is-left-out": f"""{HEADER} g (float[N] x) => (float[N] y) {{ y = f.bounded(x) }}
    {FUNCTION} bounded (x, low) => (y) {{ y = Clip(x, low) }}""",
    "subgraphs-within-a-function": f"""{HEADER} g (float[N] x, bool c) => (float[N] y) {{
        a = f.pick(c, x) y = f.pick(c, a)
    }} {FUNCTION} pick (c, x) => (y) {{ z = Abs(x)
        y = If(c) <then_branch = t () => (float[N] u) {{ u = Neg(z) }},
            else_branch = e () => (float[N] v) {{ v = Relu(x) }}> }}""",
}


def inlined_by_the_library(model: onnx.ModelProto) -> onnx.ModelProto:
    read = ir.from_proto(model)
    common.InlinePass()(read)
    return ir.to_proto(read)


@pytest.mark.parametrize("name", MODELS)
def test_models_become_what_the_library_makes_of_them(name: str) -> None:
    model = parse(MODELS[name])
    read = ir.from_proto(model)

    inline_calls(read)

    assert ir.to_proto(read) == inlined_by_the_library(model)


def test_functions_that_stay_apart_call_no_others() -> None:
    read = ir.from_proto(parse(MODELS["names-that-clash"]))

    inline_calls(read, apart=[("f", "twice", "")])

    assert [key[1] for key in read.functions] == ["twice"]
    assert [op.op_type for op in read.functions["f", "twice", ""]] == ["Neg", "Abs", "Neg", "Abs"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = f.once(x, x) y = f.once(a)", "a call of function 'once' has 2 inputs, which is too many"),
        ("y = f.other(x)", "function 'other' imports another version of '' than the model"),
    ],
)
def test_calls_that_do_not_fit_their_function_are_named(text: str, problem: str) -> None:
    functions = f"""{FUNCTION} once (x) => (y) {{ y = Neg(x) }}
        <domain: "f", opset_import: ["": 20]> other (x) => (y) {{ y = Neg(x) }}"""
    read = ir.from_proto(parse(f"{HEADER} g (float[N] x) => (float[N] y) {{ {text} }} {functions}"))

    with pytest.raises(ValueError, match=problem):
        inline_calls(read)


def test_twice_the_calls_take_twice_the_work() -> None:
    def work(calls: int) -> int:
        nodes = "".join(f"v{i + 1} = f.once(v{i})" for i in range(calls))
        graph = f"g (float[N] v0) => (float[N] v{calls}) {{ {nodes} }}"
        read = ir.from_proto(parse(f"{HEADER} {graph} {FUNCTION} once (x) => (y) {{ y = Neg(x) }}"))
        with cProfile.Profile() as profile:
            inline_calls(read)
        return int(pstats.Stats(profile).total_calls)

    assert work(400) < 2.1 * work(200)
