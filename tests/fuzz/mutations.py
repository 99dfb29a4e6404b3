"""Hypothesis strategies for damaged and hostile input: models, configuration files, tokens files, protocol messages.

Each case begins with something valid and is changed in a few places, so that it gets past the first check. A list of
seeds says where; Hypothesis shortens the list of a case that fails.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import yaml
from google.protobuf.message import Message
from hypothesis import strategies as st

from benchmarks.soak.mutators import NUMBERS, TEXTS, mutate_bytes, mutate_fields
from random_models import random_models
from tests.workshop.index_sweep import CASES
from trtnode import protos
from trtnode.bench.server_process import inference_request
from trtnode.protos import DESCRIPTOR

SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4)
"""Of changes."""
ROW = np.array([[1, 2, 3]], np.float32)
HOSTILE: Sequence[Any] = (
    None, True, 0, -1, 2**31, 2**63, 2**70, 1e308, float("nan"), "", "\0", "x" * 5000, "~nobodyatall/x", "${NONE}",
    "/proc/self/mem", "/dev/zero", "../..", [], {}, [[]], [None], {"": None}, {"name": {}}, *TEXTS,
)  # fmt: skip
"""Values in place of those that belong there."""
DEEP = "[" * 3000
MODEL_TEXTS = (
    "g (float[n, 3] x) => (float[n, 3] y) { a = Relu(x) b = Softsign(a) y = Tanh(b) }",
    "g (float[1, 2, 6, 6] x, float[4, 2, 3, 3] w) => (float[1, 4, 4, 4] y) { c = Conv(x, w) y = Sigmoid(c) }",
    "g (float[n] x) => (float[n] y, seq(float[n]) s) { y = Exp(x) s = SequenceConstruct(x, y) }",
    "g (float[2, 3] x) => (float[3, 2] y, int64[2] s) { y = Transpose<perm = [1, 0]>(x) s = Shape(y) }",
    "g (float[n, 3] x) => (int64[n, 1] i, float[n, 1] v) { k = Constant<value = int64[1] {1}>() v, i = TopK(x, k) }",
    "g (float[n] x) => (float[n] y) <int64 a = {0}, int64 b = {300}, int64 c = {1}> "
    "{ r = Range(a, b, c) q = Cast<to = 1>(r) m = ReduceMax<keepdims = 0>(q) y = Add(x, m) }",
    "g (float[1] x) => (float[m] y) <int64[1] n = {70}> { e = Expand(x, n) t = Tile(x, n) y = Add(e, t) }",
    "g (float[3] x) => (float[m] y) { s = Shape(x) c = ConstantOfShape(s) y = Concat<axis = 0>(c, x) }",
    '<ir_version: 10, opset_import: ["": 21, "f": 1]> g (float[n] x) => (float[n] y) { a = f.t(x) y = f.t(a) } '
    '<domain: "f", opset_import: ["": 21, "f": 1]> t (x) => (y) { a = f.o(x) y = f.o(a) } '
    '<domain: "f", opset_import: ["": 21]> o (x) => (y) { y = Neg(x) }',
    "g (float[n, 4] x, int64[2] to) => (float[a, b] y) { s = Reshape(x, to) y = Softmax<axis = -1>(s) }",
)


def changed_message(message: Message, seeds: Sequence[int]) -> bytes:
    """Return the bytes of a message with changes: of fields first, then perhaps of bytes."""
    changed = copy.deepcopy(message)
    if not changed.DESCRIPTOR.fields:
        return random.Random(seeds[0]).randbytes(seeds[0] % 64)
    *first, last = seeds
    for seed in first:
        mutate_fields(changed, random.Random(seed))
    if last % 2:
        return mutate_bytes(changed.SerializeToString(), random.Random(last))
    mutate_fields(changed, random.Random(last))
    return changed.SerializeToString()


def _parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text if text.startswith("<") else f'<ir_version: 10, opset_import: ["": 21]> {text}')


@st.composite
def indices(draw: st.DrawFn) -> bytes:
    """Operators that take indices or lengths, by name, and values for those: near their ends, and anything else."""
    name, computed = draw(st.sampled_from(sorted(CASES))), draw(st.booleans())
    near = st.sampled_from(CASES[name].indices(computed=computed))
    ends = np.iinfo(np.int32 if computed else CASES[name].dtype)
    any_other = st.integers(int(ends.min), int(ends.max))
    asked = draw(st.lists(st.one_of(near, any_other), min_size=1, max_size=4))
    return json.dumps({"case": name, "computed": computed, "indices": asked}).encode()


@st.composite
def models(draw: st.DrawFn) -> bytes:
    """ONNX files: random graphs, control flow and samples of operators, changed."""
    text = draw(st.one_of(st.sampled_from(MODEL_TEXTS), random_models(most=8)))
    return changed_message(_parse(text), draw(SEEDS))


def changed_tree(tree: Any, seeds: Sequence[int]) -> Any:
    """Return a JSON-like value in which some parts are replaced by hostile ones, doubled, dropped or renamed."""
    changed = copy.deepcopy(tree)
    for seed in seeds:
        rng = random.Random(seed)
        places = list(_places(changed))
        if not places:
            continue
        owner, key = rng.choice(places)
        change = rng.randrange(4)
        if change == 0:
            owner[key] = copy.deepcopy(rng.choice((*HOSTILE, *NUMBERS)))
        elif change == 1:
            del owner[key]
        elif isinstance(owner, list):
            owner.append(copy.deepcopy(owner[key]))
        else:
            owner[str(rng.choice(TEXTS)) if change == 2 else rng.choice(list(owner))] = copy.deepcopy(owner[key])
    return changed


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


@st.composite
def yaml_files(draw: st.DrawFn, trees: Sequence[Any]) -> bytes:
    """YAML files that stand for changed trees, some with damaged bytes, aliases or deep nesting."""
    seeds = draw(SEEDS)
    text = yaml.safe_dump(changed_tree(draw(st.sampled_from(trees)), seeds), allow_unicode=True).encode()
    rng = random.Random(seeds[-1])
    kind = draw(st.sampled_from(["plain", "plain", "plain", "bytes", "alias", "deep", "tag"]))
    if kind == "bytes":
        return mutate_bytes(text, rng)
    if kind == "alias":
        return b"x: &x [*x, *x]\n" + text
    if kind == "deep":
        return text + b"z: " + DEEP.encode()
    return text + (b"z: !!python/object/apply:os.system [ls]\n" if kind == "tag" else b"")


def _valid_messages() -> dict[str, list[Message]]:
    """Requests of each RPC that a fuzzed server answers without changing what others ask of it."""
    sparse = {
        method.name: [getattr(protos, method.input_type.name)()]
        for method in DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
        if method.name not in ("ModelStreamInfer", "RepositoryModelUnload", "LogSettings")
    }
    for messages in sparse.values():
        for field in messages[0].DESCRIPTOR.fields:
            if field.name in ("name", "model_name"):
                setattr(messages[0], field.name, "two")
    sparse["ModelInfer"] = _inference_requests()
    sparse["RepositoryModelLoad"][0].model_name = "brought"
    parameters = sparse["RepositoryModelLoad"][0].parameters
    parameters["config"].string_param = '{"engine": "native", "instances": 1}'
    parameters["file:1/model.onnx"].bytes_param = _parse(MODEL_TEXTS[0]).SerializeToString()
    trace = sparse["TraceSetting"][0].settings
    trace["trace_rate"].value.append("1000")
    trace["trace_level"].value.extend(["TIMESTAMPS"])
    register = sparse["SystemSharedMemoryRegister"][0]
    register.key, register.byte_size = "/none", 64
    return sparse


def _inference_requests() -> list[Message]:
    plain = inference_request("two", {"a": ROW, "b": ROW})
    batched = inference_request("batched", {"a": ROW, "b": ROW})
    batched.outputs.add(name="sum").parameters["classification"].int64_param = 2
    batched.parameters["priority"].uint64_param = 1
    batched.parameters["sequence_id"].int64_param = 0
    typed = protos.ModelInferRequest(model_name="INT64", model_version="1", id="typed")
    typed.inputs.add(name="x", datatype="INT64", shape=[1, 3]).contents.int64_contents.extend([1, 2, 3])
    texts = inference_request("STRING", {"x": np.array([["é", ""]], object)})
    return [plain, batched, typed, texts, inference_request("FLOAT16", {"x": ROW.astype(np.float16)})]


VALID_MESSAGES = _valid_messages()


@st.composite
def grpc_calls(draw: st.DrawFn) -> bytes:
    """A line with an RPC's name, then the bytes of its request."""
    rpc = draw(st.sampled_from(["ModelInfer"] * 20 + sorted(VALID_MESSAGES)))
    if draw(st.integers(0, 15)) == 0:  # few bytes, very often: fields, of which each may become an object
        field = draw(st.binary(min_size=1, max_size=8))
        return f"{rpc}\n".encode() + field * draw(st.sampled_from((1000, 16_384, 70_000, 4_000_000)))
    return f"{rpc}\n".encode() + changed_message(draw(st.sampled_from(VALID_MESSAGES[rpc])), draw(SEEDS))


INFER_BODY = {
    "id": "1",
    "parameters": {"timeout": 0, "binary_data_output": False},
    "inputs": [
        {"name": name, "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3], "parameters": {}} for name in ("a", "b")
    ],
    "outputs": [{"name": "sum", "parameters": {"classification": 2, "binary_data": False}}],
}
POSTS: tuple[tuple[str, Any], ...] = (
    ("/v2/models/two/infer", INFER_BODY),
    ("/v2/models/batched/versions/1/infer", INFER_BODY),
    ("/v2/repository/index", {"ready": True}),
    ("/v2/repository/models/rest/load", {"parameters": {"config": "{}", "file:1/model.onnx": "eA=="}}),
    ("/v2/systemsharedmemory/region/r/register", {"key": "/none", "offset": 0, "byte_size": 64}),
    ("/v2/models/two/trace/setting", {"trace_rate": "10", "trace_level": ["OFF"]}),
)
HEADERS: tuple[dict[str, str], ...] = (
    {}, {}, {}, {"Inference-Header-Content-Length": "10"}, {"Inference-Header-Content-Length": "99999999"},
    {"Content-Encoding": "gzip"}, {"Content-Encoding": "deflate"}, {"Content-Encoding": "br"},
    {"Inference-Header-Content-Length": "-1"}, {"traceparent": "00-zz"}, {"Authorization": "Bearer \xff"},
)  # fmt: skip


@st.composite
def rest_calls(draw: st.DrawFn) -> bytes:
    """A line of JSON with path and headers, then the body."""
    seeds = draw(SEEDS)
    rng = random.Random(seeds[0])
    path, tree = draw(st.sampled_from(POSTS))
    body = json.dumps(changed_tree(tree, seeds)).encode()
    kind = rng.randrange(8)
    headers = draw(st.sampled_from(HEADERS))
    if kind == 0:
        body = mutate_bytes(body, rng)
    elif kind == 1:
        body = gzip.compress(body)
    elif kind == 2:
        body = body + DEEP.encode()
    elif kind == 3:
        body, headers = gzip.compress(many_values(tree, rng), 1), {"Content-Encoding": "gzip"}
    head = {"path": path, "headers": headers}
    return json.dumps(head).encode() + b"\n" + body


def many_values(tree: Any, rng: random.Random) -> bytes:
    """Return JSON of up to 40 MB, in which something small stands in one place very often, in lists or not."""
    depth = rng.choice((0, 1, 2, 3, 200))
    small = "[" * depth + rng.choice(("", "{}", "1", "1e9", '""', "null", '{"a":[]}')) + "]" * depth
    count = rng.choice((1000, 100_000, 40_000_000 // (len(small) + 1)))
    many = "[" + ",".join([small or "[]"] * min(count, 40_000_000 // (len(small) + 1))) + "]"
    place = rng.choice(("1", "[1, 2, 3]", "{}"))
    return json.dumps(tree).replace(place, many, 1).encode()


@st.composite
def odd_files(draw: st.DrawFn) -> bytes:
    """A command, and what stands in place of its file."""
    command = draw(st.sampled_from(["explain", "compile", "yaml", "tokens"]))
    kinds = ["folder", "device", "loop", "socket", "sparse"] + ["pipe"] * (command in ("explain", "compile"))
    return f"{command} {draw(st.sampled_from(kinds))}".encode()


def changed_bytes(data: bytes, seeds: Sequence[int]) -> bytes:
    """Return a file with changes of bytes, each anywhere."""
    for seed in seeds:
        data = mutate_bytes(data, random.Random(seed))
    return data


@st.composite
def compiled_files(draw: st.DrawFn, source: bytes) -> bytes:
    """A compiled file with changed fields or bytes: envelopes and engine bytes are fields of nodes."""
    seeds = draw(SEEDS)
    if draw(st.booleans()):
        return changed_bytes(source, seeds)
    return changed_message(onnx.ModelProto.FromString(source), seeds)
