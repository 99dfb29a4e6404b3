"""Small models built as those of speech in use: each step takes a frame of sound, and a state of its own form."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

from model_texts import parse
from stateful_models import with_weights

FRAME, BINS, UNITS = 16, 6, 4
RATES = (16000, 8000)


def voice_detector() -> onnx.ModelProto:
    """Return a model as Silero VAD is: a branch a rate, a spectrum by Conv, and h and c of its LSTM in one tensor."""
    branches = [
        f"rate{rate} () => (float[batch,1] voice, float[2,batch,{UNITS}] next) {{ {_detector(f'_{rate}')} }}"
        for rate in RATES
    ]
    model = parse(
        f"detector (float[batch,samples] input, int64 sr, float[2,batch,{UNITS}] state) => "
        f"(float[batch,1] output, float[2,batch,{UNITS}] stateN)"
        "<int64[4] reflected = {0,0,0,4}, int64[1] first = {0}, int64[1] second = {1}, int64[1] last = {-1}, "
        f"int64[1] bins = {{{BINS}}}, int64[1] all = {{{2 * BINS}}}, "
        f"int64 zero = {{0}}, int64 one = {{1}}, int64 rate = {{{RATES[0]}}}> {{ fast = Equal(sr, rate) "
        f"output, stateN = If(fast)<then_branch = {branches[0]}, else_branch = {branches[1]}> }}",
        opset=17,
    )
    shapes = {
        "basis": (2 * BINS, 1, 8),
        "encode": (UNITS, BINS, 3),
        "shrink": (UNITS, UNITS, 3),
        "take": (4 * UNITS, UNITS),
        "keep": (4 * UNITS, UNITS),
        "bias": (4 * UNITS,),
        "decode": (1, UNITS, 1),
    }
    return with_weights(model, **{f"{name}_{rate}": shape for rate in RATES for name, shape in shapes.items()})


def _detector(rate: str) -> str:
    return f"""
    padded = Pad<mode = "reflect">(input, reflected) wave = Unsqueeze(padded, second)
    spectrum = Conv<strides = [4]>(wave, basis{rate})
    real = Slice(spectrum, first, bins, second) imaginary = Slice(spectrum, bins, all, second)
    real2 = Mul(real, real) imaginary2 = Mul(imaginary, imaginary)
    power = Add(real2, imaginary2) magnitude = Sqrt(power)
    encoded = Conv<pads = [1,1], strides = [2]>(magnitude, encode{rate}) positive = Relu(encoded)
    shrunk = Conv<pads = [1,1], strides = [2]>(positive, shrink{rate}) features = Relu(shrunk)
    x = Gather<axis = 2>(features, zero) h = Gather<axis = 0>(state, zero) c = Gather<axis = 0>(state, one)
    taken = Gemm<transB = 1>(x, take{rate}, bias{rate}) kept = Gemm<transB = 1>(h, keep{rate}, bias{rate})
    gates = Add(taken, kept) {_cell("gates", "c", "")}
    rows = Unsqueeze(h_, last) heard = Relu(rows) scores = Conv(heard, decode{rate}) likely = Sigmoid(scores)
    flat = Squeeze(likely, second) mean = ReduceMean<axes = [1], keepdims = 0>(flat) voice = Unsqueeze(mean, second)
    h_row = Unsqueeze(h_, first) c_row = Unsqueeze(c_, first) next = Concat<axis = 0>(h_row, c_row)"""


def noise_mask() -> onnx.ModelProto:
    """Return a model as the first half of DTLN is: a mask of magnitudes by two LSTMs, whose states are one tensor."""
    layers = "".join(
        f"""
        all{n}, h_{n}, c_{n} = LSTM<hidden_size = {UNITS}>(x{n}, take{n}, keep{n}, bias{n}, , h{n}, c{n})
        x{n + 1} = Squeeze(all{n}, second)"""
        for n in range(2)
    )
    model = parse(
        f"mask (float[1,time,{BINS}] input_2, float[1,2,{UNITS},2] input_3) => "
        f"(float[1,time,{BINS}] activation_2, float[1,2,{UNITS},2] stack_2) <{_CONSTANTS}> {{ "
        f"x0 = Transpose<perm = [1,0,2]>(input_2) {_parts('input_3')} {layers} "
        "y = Transpose<perm = [1,0,2]>(x2) dots = MatMul(y, dense) scores = Add(dots, biases) "
        f"activation_2 = Sigmoid(scores) {_stack('stack_2')} }}",
        opset=17,
    )
    shapes = {
        f"{name}{n}": (1, *shape)
        for n, width in enumerate((BINS, UNITS))
        for name, shape in {"take": (4 * UNITS, width), "keep": (4 * UNITS, UNITS), "bias": (8 * UNITS,)}.items()
    }
    return with_weights(model, **shapes, dense=(UNITS, BINS), biases=(BINS,))


def noise_filter() -> onnx.ModelProto:
    """Return a model as the second half of DTLN is: a mask over a learnt spectrum, which is normalised on its way."""
    layers = "".join(
        f"""
        taken{n} = MatMul(x{n}, take{n}) kept{n} = MatMul(part_h{n}, keep{n})
        sum{n} = Add(taken{n}, kept{n}) gates{n} = Add(sum{n}, bias{n}) {_cell(f"gates{n}", f"part_c{n}", f"{n}")}
        x{n + 1} = Identity(h_{n})"""
        for n in range(2)
    )
    model = parse(
        f"filter (float[1,1,{FRAME}] input_4, float[1,2,{UNITS},2] input_5) => "
        f"(float[n,1,{FRAME}] conv1d_3, float[n,2,{UNITS},2] stack_5) <float tiny = {{0.0000001}}, {_CONSTANTS}> {{ "
        f"turned = Transpose<perm = [0,2,1]>(input_4) learnt = Conv(turned, encode) "
        f"spectrum = Transpose<perm = [0,2,1]>(learnt) {_parts('input_5')} "
        "mean = ReduceMean<axes = [-1]>(spectrum) centred = Sub(spectrum, mean) square = Mul(centred, centred) "
        "variance = ReduceMean<axes = [-1]>(square) safe = Add(variance, tiny) deviation = Sqrt(safe) "
        "unit = Div(centred, deviation) scaled = Mul(unit, gamma) normal = Add(scaled, beta) "
        f"x0 = Squeeze(normal, second) {layers} row = Unsqueeze(x2, second) dots = MatMul(row, dense) "
        "mask = Sigmoid(dots) masked = Mul(spectrum, mask) back = Transpose<perm = [0,2,1]>(masked) "
        f"sound = Conv(back, decode) conv1d_3 = Transpose<perm = [0,2,1]>(sound) "
        + "".join(f"{part}_{n}_ = Unsqueeze({part}_{n}, first) " for n in range(2) for part in "hc")
        + _stack("stack_5", "_")
        + "}",
        opset=17,
    )
    shapes = {
        f"{name}{n}": shape
        for n, width in enumerate((BINS, UNITS))
        for name, shape in {"take": (width, 4 * UNITS), "keep": (UNITS, 4 * UNITS), "bias": (4 * UNITS,)}.items()
    }
    convolutions = {"encode": (BINS, FRAME, 1), "decode": (FRAME, BINS, 1)}
    return with_weights(model, **shapes, **convolutions, gamma=(BINS,), beta=(BINS,), dense=(UNITS, BINS))


_CONSTANTS = "int64[1] first = {0}, int64[1] second = {1}, int64[1] last = {-1}, int64[2] places = {1,3}, " + ", ".join(
    f"int64[2] {part}{n}_from = {{{n},{at}}}, int64[2] {part}{n}_to = {{{n + 1},{at + 1}}}"
    for n in range(2)
    for at, part in enumerate("hc")
)


def _parts(state: str) -> str:
    """Take h and c of both layers out of one tensor: as rows, and with an axis for the directions of an LSTM."""
    return "".join(
        f"cut_{p} = Slice({state}, {p}_from, {p}_to, places) part_{p} = Squeeze(cut_{p}, places) "
        f"{p} = Unsqueeze(part_{p}, first) "
        for p in ("h0", "c0", "h1", "c1")
    )


def _stack(state: str, mark: str = "") -> str:
    """Make one tensor of h and c of both layers."""
    rows = "".join(f"{p}s = Concat<axis = 1>({p}_0{mark}, {p}_1{mark}) {p}s_ = Unsqueeze({p}s, last) " for p in "hc")
    return f"{rows} {state} = Concat<axis = -1>(hs_, cs_)"


def _cell(gates: str, c: str, mark: str) -> str:
    """Spell an LSTM behind its gates, as exporters do."""
    return f"""
    i{mark}, f{mark}, g{mark}, o{mark} = Split<axis = 1>({gates})
    si{mark} = Sigmoid(i{mark}) sf{mark} = Sigmoid(f{mark}) so{mark} = Sigmoid(o{mark}) tg{mark} = Tanh(g{mark})
    old{mark} = Mul(sf{mark}, {c}) new{mark} = Mul(si{mark}, tg{mark}) c_{mark} = Add(old{mark}, new{mark})
    tc{mark} = Tanh(c_{mark}) h_{mark} = Mul(so{mark}, tc{mark})"""


def in_one_run(step: onnx.ModelProto, states: Mapping[str, str], frames: str) -> onnx.ModelProto:
    """Return a model that runs all steps of another one as a Scan.

    Args:
        step: The model.
        states: The output of each input of state, by its name.
        frames: The input that has a value a step: here an axis before its own. Other inputs are the same in all steps.
    """
    whole, body = onnx.ModelProto(), onnx.GraphProto()
    whole.CopyFrom(step)
    body.CopyFrom(step.graph)
    ins = {value.name: value for value in step.graph.input}
    outs = {value.name: value for value in step.graph.output}
    answers = [name for name in outs if name not in states.values()]
    del body.input[:], body.output[:]
    body.input.extend(ins[name] for name in (*states, frames))
    body.output.extend(outs[name] for name in (*states.values(), *answers))
    scan = helper.make_node(
        "Scan",
        [*(f"first_{name}" for name in states), "frames"],
        [*(f"last_{name}" for name in states), *(f"all_{name}" for name in answers)],
        body=body,
        num_scan_inputs=1,
    )
    same = [value for name, value in ins.items() if name not in (frames, *states)]
    given = [*(_named(f"first_{name}", ins[name]) for name in states), _named("frames", ins[frames], "steps"), *same]
    results = [_named(f"all_{name}", outs[name], "steps") for name in answers]
    whole.graph.CopyFrom(helper.make_graph([scan], "whole", given, results))
    return whole


def _named(name: str, value: onnx.ValueInfoProto, *before: str) -> onnx.ValueInfoProto:
    """Describe a value of another name, with axes before its own."""
    kind = value.type.tensor_type
    sizes = [one.dim_param or one.dim_value for one in kind.shape.dim]
    return helper.make_tensor_value_info(name, kind.elem_type, [*before, *sizes])
