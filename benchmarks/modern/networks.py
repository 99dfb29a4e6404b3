"""The models: architectures of transformers with random weights, a recommender, and quantized forms of them."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import matmul_nbits_quantizer, quantize_dynamic

Inputs = dict[str, np.ndarray]

HEADS, HEAD_SIZE = 12, 64
ENCODED = 64
"""Positions that the decoders of translation and speech attend to."""

MINILM = transformers.BertConfig(
    hidden_size=384, num_hidden_layers=6, num_attention_heads=HEADS, intermediate_size=1536
)

Request = Callable[[int, int], Inputs]
"""Makes the inputs of a step: of so many new tokens, behind so many past ones."""


def write_network(name: str, folder: pathlib.Path) -> tuple[pathlib.Path, Request]:
    """Write a model, unless it is there, and return it with its requests.

    Args:
        name: One of `NETWORKS`.
        folder: For models, one folder each.

    Returns:
        The file, and the inputs of a step, both lengths 1 or more; networks without a past ignore the second.
    """
    path = folder / name / "model.onnx"
    if not path.is_file():
        partial = folder / f"{name}.partial"
        partial.mkdir(parents=True, exist_ok=True)
        NETWORKS[name](partial / "model.onnx")
        partial.rename(path.parent)
    return path, REQUESTS[name.removesuffix("_int4").removesuffix("_int8")]


def _write_minilm(path: pathlib.Path) -> None:
    model = _Outputs(transformers.BertModel(MINILM, add_pooling_layer=False), ("input_ids", "attention_mask"))
    ones = torch.ones(2, 16, dtype=torch.int64)
    axes = {0: "batch", 1: "sequence"}
    _export(model, (ones, ones), {"input_ids": axes, "attention_mask": axes}, path)


def _write_vit(path: pathlib.Path) -> None:
    model = _Outputs(transformers.ViTModel(transformers.ViTConfig(), add_pooling_layer=False), ("pixel_values",))
    _export(model, (torch.zeros(2, 3, 224, 224),), {"pixel_values": {0: "batch"}}, path)


def _write_clip(path: pathlib.Path) -> None:
    model = _Outputs(transformers.CLIPModel(transformers.CLIPConfig()), ("input_ids", "pixel_values", "attention_mask"))
    ids = torch.ones(3, 16, dtype=torch.int64)
    text = {0: "texts", 1: "sequence"}
    axes = {"input_ids": text, "pixel_values": {0: "images"}, "attention_mask": text}
    _export(model, (ids, torch.zeros(2, 3, 224, 224), ids), axes, path)


def _write_gpt2(path: pathlib.Path) -> None:
    config = transformers.GPT2Config()
    _write_decoder(transformers.GPT2LMHeadModel(config), layers=12, heads=HEADS, path=path)


def _write_llama(path: pathlib.Path) -> None:
    config = transformers.LlamaConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=32,
        num_attention_heads=16,
        num_key_value_heads=HEADS // 3,
        vocab_size=32000,
    )
    _write_decoder(transformers.LlamaForCausalLM(config), layers=32, heads=HEADS // 3, path=path)


def _write_decoder(model: torch.nn.Module, *, layers: int, heads: int, path: pathlib.Path) -> None:
    ids, mask = torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64)
    past = [torch.zeros(2, heads, 5, HEAD_SIZE) for _ in range(2 * layers)]
    axes = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "total"}}
    axes |= {name: {0: "batch", 2: "past"} for name in _past_names(layers)}
    _export(_Decoder(model, layers), (ids, mask, *past), axes, path)


def _write_t5(path: pathlib.Path) -> None:
    config = transformers.T5Config(decoder_start_token_id=0)
    _write_translator(transformers.T5ForConditionalGeneration(config), layers=6, heads=8, width=512, path=path)


def _write_whisper(path: pathlib.Path) -> None:
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(max_target_positions=1024, **tokens)
    _write_translator(transformers.WhisperForConditionalGeneration(config), layers=4, heads=6, width=384, path=path)


def _write_translator(model: torch.nn.Module, *, layers: int, heads: int, width: int, path: pathlib.Path) -> None:
    own = [torch.zeros(2, heads, 5, HEAD_SIZE) for _ in range(2 * layers)]
    crossed = [torch.zeros(2, heads, 7, HEAD_SIZE) for _ in range(2 * layers)]
    ids, states = torch.ones(2, 3, dtype=torch.int64), torch.zeros(2, 7, width)
    axes = {"input_ids": {0: "batch", 1: "sequence"}, "encoder_hidden_states": {0: "batch", 1: "encoder"}}
    axes |= {name: {0: "batch", 2: "past"} for name in _past_names(layers)}
    axes |= {name: {0: "batch", 2: "encoder"} for name in _past_names(layers, "cross")}
    _export(_Translator(model, layers), (ids, states, *own, *crossed), axes, path)


def _write_dlrm(path: pathlib.Path) -> None:
    """Write 26 tables of 64 columns, a gigabyte in all, between two stacks of dense layers (Naumov et al., 2019)."""
    random, tables, columns, rows = np.random.default_rng(0), 26, 64, 150_000
    weights, nodes = [], []
    for table in range(tables):
        weights.append(
            numpy_helper.from_array(random.random((rows, columns), dtype=np.float32) - 0.5, f"table_{table}")
        )
        weights.append(numpy_helper.from_array(np.array(table), f"index_{table}"))
        nodes.append(helper.make_node("Gather", ["sparse", f"index_{table}"], [f"row_{table}"], axis=1))
        nodes.append(helper.make_node("Gather", [f"table_{table}", f"row_{table}"], [f"vector_{table}"], axis=0))

    def dense(value: str, widths: Sequence[int], prefix: str) -> str:
        for layer, (width, wide) in enumerate(itertools.pairwise(widths)):
            weight, name = f"{prefix}_weight_{layer}", f"{prefix}_{layer}"
            scaled = random.standard_normal((width, wide), dtype=np.float32) / np.float32(width) ** np.float32(0.5)
            weights.append(numpy_helper.from_array(scaled, weight))
            nodes.extend(
                (helper.make_node("MatMul", [value, weight], [name]), helper.make_node("Relu", [name], [f"{name}_"]))
            )
            value = f"{name}_"
        return value

    vectors = [*(f"vector_{table}" for table in range(tables)), dense("dense", (13, 512, 256, columns), "bottom")]
    nodes.append(helper.make_node("Concat", vectors, ["joined"], axis=1))
    nodes.append(
        helper.make_node("Sigmoid", [dense("joined", (columns * (tables + 1), 1024, 512, 1), "top")], ["click"])
    )
    graph = helper.make_graph(
        nodes,
        "dlrm",
        [
            helper.make_tensor_value_info("dense", TensorProto.FLOAT, ["batch", 13]),
            helper.make_tensor_value_info("sparse", TensorProto.INT64, ["batch", tables]),
        ],
        [helper.make_tensor_value_info("click", TensorProto.FLOAT, ["batch", 1])],
        weights,
    )
    model = onnx.ModelProto(ir_version=10, graph=graph, opset_import=[helper.make_opsetid("", 17)])
    onnx.save(model, path)


def _write_int4(name: str) -> Callable[[pathlib.Path], None]:
    def write(path: pathlib.Path) -> None:
        source, _ = write_network(name, path.parents[1])
        quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=False)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path))

    return write


def _write_dynamic_int8(path: pathlib.Path) -> None:
    source, _ = write_network("minilm", path.parents[1])
    quantize_dynamic(source, path)


class _Outputs(torch.nn.Module):  # type: ignore[misc]
    """A model called with named arguments that returns its first output."""

    def __init__(self, model: torch.nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self._model, self._names = model, names

    def forward(self, *values: torch.Tensor) -> Any:
        return self._model(**dict(zip(self._names, values, strict=True)), return_dict=True)[0]


class _Decoder(torch.nn.Module):  # type: ignore[misc]
    """A language model whose past is a plain list of tensors: key and value of each layer."""

    def __init__(self, model: torch.nn.Module, layers: int) -> None:
        super().__init__()
        self._model, self._layers = model, layers

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *past: torch.Tensor) -> Any:
        answer = self._model(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=_cache(past), use_cache=True
        )
        return answer.logits, *_tensors(answer.past_key_values)


class _Translator(torch.nn.Module):  # type: ignore[misc]
    """A decoder with the states of an encoder, a past of its own, and one of the encoder's states."""

    def __init__(self, model: torch.nn.Module, layers: int) -> None:
        super().__init__()
        self._model, self._layers = model, layers

    def forward(self, input_ids: torch.Tensor, states: torch.Tensor, *past: torch.Tensor) -> Any:
        own, crossed = past[: 2 * self._layers], past[2 * self._layers :]
        cache = transformers.cache_utils.EncoderDecoderCache(_cache(own), _cache(crossed))
        cache.is_updated = dict.fromkeys(range(self._layers), True)
        answer = self._model(
            decoder_input_ids=input_ids, encoder_outputs=(states,), past_key_values=cache, use_cache=True
        )
        return answer.logits, *_tensors(answer.past_key_values.self_attention_cache)


def _cache(past: Sequence[torch.Tensor]) -> Any:
    cache = transformers.cache_utils.DynamicCache()
    for layer in range(len(past) // 2):
        cache.update(past[2 * layer], past[2 * layer + 1], layer)
    return cache


def _tensors(cache: Any) -> list[torch.Tensor]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def _past_names(layers: int, kind: str = "past") -> list[str]:
    return [f"{kind}.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]


def _export(
    model: torch.nn.Module, inputs: Sequence[torch.Tensor], axes: dict[str, dict[int, str]], path: pathlib.Path
) -> None:
    free = tuple(axes.values())
    named = 0 if isinstance(model, _Outputs) else 2
    past = [name for name in axes if name.startswith("past")]
    torch.manual_seed(0)
    with torch.no_grad():
        torch.onnx.export(
            model.eval(),
            tuple(inputs),
            path,
            input_names=list(axes),
            output_names=["output", *(name.replace("past", "present") for name in past)],
            dynamic_shapes=(*free[:named], free[named:]),
            dynamo=True,
            verbose=False,
            external_data=sum(parameter.nbytes for parameter in model.parameters()) > 2**31,
        )


def _tokens(count: int, past: int = 0) -> Inputs:
    return {
        "input_ids": np.arange(count, dtype=np.int64)[np.newaxis] + 1,
        "attention_mask": np.ones((1, past + count), np.int64),
    }


def _past(kind: str, layers: int, heads: int, count: int) -> Inputs:
    random = np.random.default_rng(0)
    shape = (1, heads, count, HEAD_SIZE)
    return {name: random.standard_normal(shape, dtype=np.float32) for name in _past_names(layers, kind)}


def _images() -> Inputs:
    return {"pixel_values": np.random.default_rng(0).random((1, 3, 224, 224), dtype=np.float32)}


def _translation(layers: int, heads: int, width: int) -> Request:
    states = np.random.default_rng(0).random((1, ENCODED, width), dtype=np.float32)
    return lambda count, past: {
        "input_ids": _tokens(count)["input_ids"],
        "encoder_hidden_states": states,
        **_past("past", layers, heads, past),
        **_past("cross", layers, heads, ENCODED),
    }


NETWORKS: dict[str, Callable[[pathlib.Path], None]] = {
    "minilm": _write_minilm,
    "vit": _write_vit,
    "clip": _write_clip,
    "gpt2": _write_gpt2,
    "dlrm": _write_dlrm,
    "llama": _write_llama,
    "t5": _write_t5,
    "whisper": _write_whisper,
    "minilm_int4": _write_int4("minilm"),
    "gpt2_int4": _write_int4("gpt2"),
    "t5_int4": _write_int4("t5"),
    "minilm_int8": _write_dynamic_int8,
}

REQUESTS: dict[str, Request] = {
    "minilm": lambda count, _: _tokens(count),
    "vit": lambda _, __: _images(),
    "clip": lambda count, _: _tokens(count) | _images(),
    "gpt2": lambda count, past: _tokens(count, past) | _past("past", 12, HEADS, past),
    "dlrm": lambda count, _: {"dense": np.ones((count, 13), np.float32), "sparse": np.ones((count, 26), np.int64)},
    "llama": lambda count, past: _tokens(count, past) | _past("past", 32, HEADS // 3, past),
    "t5": _translation(6, 8, 512),
    "whisper": _translation(4, 6, 384),
}
