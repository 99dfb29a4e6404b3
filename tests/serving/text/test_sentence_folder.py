"""Folders of sentence-transformers give its answers, in the old form of their files and in the new one."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy

from plain_runtime import run
from tests.workshop.text_models import SIZE, save_encoder, save_folder, token_vectors, write_json
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import view_model
from trtnode.serving.config.checks import setting_problems
from trtnode.serving.errors import TextModelError
from trtnode.serving.models.pipelines import chain_model
from trtnode.serving.models.version_files import find_files
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.text.sentence_folder import as_folder_says
from trtnode.serving.text.text_model import TextModel, text_model

OLD, NEW = "sentence_transformers.models.", "sentence_transformers.sentence_transformer.modules."
TEXTS = ("the red fox", "dog")
IDS = ([1, 7, 9, 12, 2], [1, 13, 2])
"""Their tokens, with [CLS] and [SEP]."""

WEIGHT = np.random.default_rng(11).standard_normal((3, SIZE)).astype(np.float32)
BIAS = np.array([0.5, -0.5, 0.1], np.float32)

Vector = Callable[[np.ndarray], np.ndarray]


class Read(NamedTuple):
    """A folder as it is served."""

    text: TextModel
    answer: Callable[..., np.ndarray]
    config: ModelConfig
    lines: list[str]


def read(folder: pathlib.Path, **keys: Any) -> Read:
    config = ModelConfig.model_validate({"name": "m", "path": folder, **keys})
    (file,) = find_files(config).values()
    whole, lines = as_folder_says(file.configured(config))
    proto = chain_model(whole)
    graph = view_model(proto, folder).graph
    inputs, outputs = ([TensorSpec.of(value) for value in values] for values in (graph.inputs, graph.outputs))
    text = text_model(whole, inputs, outputs)
    assert text is not None

    def answer(*texts: Any, prompt: str | None = None) -> np.ndarray:
        feeds = text.tokenizer.encode("text", texts, prompt=text.prompt(prompt))
        return np.asarray(run(proto, feeds)[0])

    return Read(text, answer, whole, lines)


def modules(*kinds: str, prefix: str = OLD) -> list[dict[str, Any]]:
    """Content of modules.json."""
    return [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"{prefix}{kind}"}
        for n, kind in enumerate(("Transformer", *kinds))
    ]


def old(**modes: bool) -> dict[str, Any]:
    """Files of a folder whose pooling has the old form."""
    config = {f"pooling_mode_{mode}": value for mode, value in modes.items()}
    return {"modules.json": modules("Pooling"), "1_Pooling/config.json": {"word_embedding_dimension": SIZE, **config}}


def new(mode: Any, *more: str, **others: Any) -> dict[str, Any]:
    """Files of a folder whose pooling has the new form."""
    pooling = {"embedding_dimension": SIZE, "pooling_mode": mode, "include_prompt": True, **others}
    return {"modules.json": modules("Pooling", *more, prefix=NEW), "1_Pooling/config.json": pooling}


def dense(place: str, activation: str | None, **others: Any) -> dict[str, Any]:
    named = {} if activation is None else {"activation_function": activation}
    return {f"{place}/config.json": {"in_features": SIZE, "out_features": 3, "bias": True, **named, **others}}


def mean(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.mean(0))


def unit(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.linalg.norm(x))


CAUSAL = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
IDENTITY = "torch.nn.modules.linear.Identity"
LEFT = {"tokenizer_config.json": {"padding_side": "left", "pad_token": {"content": "[PAD]", "lstrip": False}}}

GOLDEN: dict[str, tuple[Mapping[str, Any], Vector]] = {
    "no-modules-is-the-mean": ({}, mean),
    "old-mean": (old(mean_tokens=True), mean),
    "old-cls": (old(cls_token=True, mean_tokens=False), lambda x: x[0]),
    "old-max": (old(max_tokens=True), lambda x: x.max(0)),
    "old-mean-by-the-root": (old(mean_sqrt_len_tokens=True), lambda x: x.sum(0) / np.sqrt(len(x))),
    "old-last": (old(lasttoken=True), lambda x: x[-1]),
    "old-none-is-the-mean": (old(cls_token=False), mean),
    "old-several-in-their-order": (old(mean_tokens=True, cls_token=True), lambda x: np.concatenate([x[0], x.mean(0)])),
    "new-cls": (new("cls"), lambda x: x[0]),
    "new-weighted-mean": (new("weightedmean"), lambda x: np.average(x, 0, np.arange(1, len(x) + 1))),
    "new-mean-by-the-root": (new("mean_sqrt_len_tokens"), lambda x: x.sum(0) / np.sqrt(len(x))),
    "new-several-in-own-order": (new(["mean", "cls"]), lambda x: np.concatenate([x.mean(0), x[0]])),
    "new-normalized-without-a-file": (new("mean", "Normalize"), lambda x: unit(x.mean(0))),
    "left-padding-cls": ({**new("cls"), **LEFT}, lambda x: x[0]),
    "left-padding-last": ({**new("lasttoken"), **LEFT}, lambda x: x[-1]),
    "left-padding-weighted-mean": (
        {**new("weightedmean"), **LEFT},
        lambda x: np.average(x, 0, np.arange(1, len(x) + 1)),
    ),
    "left-padding-mean": ({**new("mean"), **LEFT}, mean),
    "decoder-without-modules-is-the-last": ({"config.json": CAUSAL}, lambda x: x[-1]),
    "decoder-that-is-not-causal-is-the-mean": ({"config.json": {**CAUSAL, "is_causal": False}}, mean),
    "dense-is-tanh": ({**new("mean", "Dense"), **dense("2_Dense", None)}, lambda x: np.tanh(WEIGHT @ x.mean(0) + BIAS)),
    "dense-identity-normalized": (
        {**new("mean", "Dense", "Normalize"), **dense("2_Dense", IDENTITY)},
        lambda x: unit(WEIGHT @ x.mean(0) + BIAS),
    ),
}


@pytest.mark.parametrize("layout", GOLDEN)
def test_a_folder_gives_the_answers_of_sentence_transformers(tmp_path: pathlib.Path, layout: str) -> None:
    files, vector = GOLDEN[layout]
    save_folder(tmp_path, files)
    for path in tmp_path.glob("*_Dense"):
        safetensors.numpy.save_file({"linear.weight": WEIGHT, "linear.bias": BIAS}, path / "model.safetensors")

    found = read(tmp_path)

    assert found.text.task == "embed"
    expected = [vector(token_vectors(ids)) for ids in IDS]
    np.testing.assert_allclose(found.answer(*TEXTS), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.answer(TEXTS[1]), expected[1:], rtol=1e-4, atol=1e-5)


def test_tokens_are_pooled_and_not_what_the_export_pooled(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, new("cls"), {"token_embeddings": "hidden", "sentence_embedding": "mean"})

    np.testing.assert_allclose(read(tmp_path).answer("dog"), [token_vectors(IDS[1])[0]], rtol=1e-5)


def test_an_export_that_pools_is_taken_and_said_to_be_assumed(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_folder(tmp_path, new("mean", "Normalize"), {"sentence_embedding": "mean"})

    found = read(tmp_path)

    np.testing.assert_allclose(found.answer("dog"), [unit(token_vectors(IDS[1]).mean(0))], rtol=1e-5)
    assert "Assumed that the model pools by itself, since it gives 'sentence_embedding' and no tokens" in caplog.text


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"sentence_bert_config.json": {"max_seq_length": 4}}, 4, id="max_seq_length"),
        pytest.param({"sentence_roberta_config.json": {"max_seq_length": 5}}, 5, id="old-name"),
        pytest.param({"tokenizer_config.json": {"model_max_length": 6}}, 6, id="model_max_length"),
        pytest.param({"tokenizer_config.json": {"model_max_length": 1e30}}, 32, id="positions"),
        pytest.param({"tokenizer_config.json": {"model_max_length": 512}}, 32, id="capped-by-positions"),
        pytest.param(
            {"config.json": {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1},
             "tokenizer_config.json": {}}, 512, id="positions-of-roberta"),
        pytest.param({"config.json": {"model_type": "t5"}, "tokenizer_config.json": {}}, 512, id="unknown"),
    ],
)  # fmt: skip
def test_texts_are_cut_where_the_folder_says(tmp_path: pathlib.Path, files: dict[str, Any], expected: int) -> None:
    save_folder(tmp_path, files)

    assert read(tmp_path).text.tokenizer.config.max_length == expected


def test_texts_are_put_into_lower_case_if_the_folder_says(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, {"sentence_bert_config.json": {"max_seq_length": 16, "do_lower_case": True}})

    np.testing.assert_allclose(read(tmp_path).answer("DOG"), [token_vectors(IDS[1]).mean(0)], rtol=1e-5)


PROMPTS = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "query"}


def test_the_default_prompt_stands_before_each_text(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, {**new("mean"), "config_sentence_transformers.json": PROMPTS})

    found = read(tmp_path)

    expected = [token_vectors([1, prompt, 5, 13, 2]).mean(0) for prompt in (4, 6)]
    np.testing.assert_allclose(found.answer("dog"), expected[:1], rtol=1e-5)
    np.testing.assert_allclose(found.answer("dog", prompt="passage"), expected[1:], rtol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_prompts_may_not_count(tmp_path: pathlib.Path, side: str) -> None:
    files = {**new("mean", include_prompt=False), "config_sentence_transformers.json": PROMPTS}
    save_folder(tmp_path, {**files, "tokenizer_config.json": {"padding_side": side}})

    found = read(tmp_path).answer("dog", "the red fox")

    vectors = token_vectors([1, 4, 5, 13, 2]), token_vectors([1, 4, 5, 7, 9, 12, 2])
    np.testing.assert_allclose(found, [one[3:].mean(0) for one in vectors], rtol=1e-5)


CROSS = {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "id2label": {"0": "LABEL_0"}}


def score(ids: Sequence[int]) -> float:
    return float(token_vectors(ids).mean(0).sum() / 2)


@pytest.mark.parametrize(
    ("more", "function"),
    [
        pytest.param({}, lambda x: 1 / (1 + np.exp(-x)), id="sigmoid-by-itself"),
        pytest.param({"sentence_transformers": {"activation_fn": IDENTITY}}, lambda x: x, id="identity"),
        pytest.param({"sbert_ce_default_activation_function": IDENTITY}, lambda x: x, id="identity-old"),
    ],
)
def test_a_cross_encoder_scores_pairs(tmp_path: pathlib.Path, more: Any, function: Vector) -> None:
    save_classifier(tmp_path, {**CROSS, **more}, 1)

    found = read(tmp_path)

    assert (found.text.task, found.text.tokenizer.config.pair) == ("rerank", True)
    expected = function(np.array([[score([1, 13, 2, 7, 9, 12, 2])]]))
    np.testing.assert_allclose(found.answer(["dog", "the red fox"]), expected, rtol=1e-4)


def test_a_classifier_keeps_its_logits_and_has_labels(tmp_path: pathlib.Path) -> None:
    names = {"1": "bad", "0": "good", "2": "neither"}
    save_classifier(tmp_path, {**CROSS, "id2label": names}, 3)

    found = read(tmp_path)

    assert (found.text.task, found.text.tokenizer.config.pair) == ("classify", False)
    assert found.text.labels == ("good", "bad", "neither")
    np.testing.assert_allclose(found.answer("dog"), [[score(IDS[1])] * 3], rtol=1e-4)


def save_classifier(folder: pathlib.Path, config: Mapping[str, Any], classes: int) -> None:
    """Write a folder whose logits are all the mean of the tokens' vectors, summed."""
    save_folder(folder, {"config.json": {"max_position_embeddings": 32, **config}})
    save_encoder(folder / "onnx" / "model.onnx", {"logits": "scores"}, classes=classes)


def test_a_cross_encoder_of_a_new_release_names_its_activation_elsewhere(tmp_path: pathlib.Path) -> None:
    save_classifier(tmp_path, CROSS, 1)
    sentence = {"model_type": "CrossEncoder", "activation_fn": IDENTITY, "prompts": {}}
    write_json(tmp_path, {"config_sentence_transformers.json": sentence, "modules.json": modules(prefix=NEW)})

    found = read(tmp_path)

    np.testing.assert_allclose(found.answer(["dog", "fox"]), [[score([1, 13, 2, 12, 2])]], rtol=1e-4)


def test_what_was_read_and_assumed_is_told_in_five_lines(tmp_path: pathlib.Path) -> None:
    prompts = {"config_sentence_transformers.json": PROMPTS}
    save_folder(tmp_path, {**new("mean", "Normalize"), **prompts})

    first, tokenize, postprocess, text, last = read(tmp_path).lines
    assert first == f"read from the folder {tmp_path}; file onnx/model.onnx"
    assert tokenize.startswith('preprocess: [{"tokenize": {"file": ')
    assert '"max_length": 32' in tokenize
    keep = '{"keep": ["token_embeddings", "last_hidden_state", "sentence_embedding"]}'
    stages = f'[{keep}, {{"pool": {{"by": ["mean"]}}}}, {{"l2_normalize": {{}}}}]'
    assert postprocess == f"postprocess: {stages}"
    assert '"default_prompt": "query"' in text
    assert last == "assumed: nothing"


def test_keys_of_the_configuration_go_before_the_folder(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, {**new("mean"), "config_sentence_transformers.json": PROMPTS})

    found = read(tmp_path, text={"default_prompt": None, "dimensions": True}, lengths=None)

    np.testing.assert_allclose(found.answer("dog"), [token_vectors(IDS[1]).mean(0)], rtol=1e-5)
    assert (found.text.prompts, found.text.dimensions) == (PROMPTS["prompts"], SIZE)
    assert found.config.lengths is None
    assert found.config.batching is not None


def test_a_file_may_be_chosen(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, new("cls"))
    save_encoder(tmp_path / "onnx" / "model_O2.onnx", {"token_embeddings": "hidden"})

    found = read(tmp_path, file="onnx/model_O2.onnx")

    assert found.config.path == tmp_path / "onnx" / "model_O2.onnx"
    np.testing.assert_allclose(found.answer("dog"), [token_vectors(IDS[1])[0]], rtol=1e-5)


def fault(folder: pathlib.Path, **keys: Any) -> str:
    """Return the sentence with which the configuration of a folder is refused."""
    model = {"name": "m", "path": folder, **keys}
    problems = setting_problems(ServableConfig.model_validate({"models": [model]}))
    return "; ".join(f"{'.'.join(map(str, place[2:]))}: {text}" for place, text in problems).replace(f"{folder}/", "")


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "sparse": (
        {"config_sentence_transformers.json": {"model_type": "SparseEncoder"}},
        "config_sentence_transformers.json: model_type: should be 'SentenceTransformer' or 'CrossEncoder', not",
    ),
    "python-of-the-folder": (
        {"modules.json": [{"idx": 0, "path": "", "type": "custom_st.Transformer"}]},
        "modules.json: [0].type: 'custom_st.Transformer' is Python of the folder, which never runs",
    ),
    "unknown-module": (
        {"modules.json": modules("LayerNorm")},
        "modules.json: [1]: 'sentence_transformers.models.LayerNorm' in the folder '1_LayerNorm', which isn't followed",
    ),
    "model-elsewhere": (
        {"modules.json": [{"idx": 0, "path": "0_Transformer", "type": f"{OLD}Transformer"}]},
        "modules.json: [0]: 'sentence_transformers.models.Transformer' in the folder '0_Transformer', which isn't",
    ),
    "unknown-pooling": (new("median"), "1_Pooling/config.json: pooling_mode[0]: should be 'cls', 'max', 'mean'"),
    "pooling-of-another-type": (old(mean_tokens=3), "pooling_mode_mean_tokens: should be a valid boolean, not 3"),
    "dense-with-a-residual": (
        {**new("mean", "Dense"), **dense("2_Dense", IDENTITY, use_residual=True)}, "use_residual: should be False"
    ),
    "dense-of-something-else": (
        {**new("mean", "Dense"), **dense("2_Dense", IDENTITY, module_input_name="token_embeddings")},
        "2_Dense/config.json: module_input_name: should be 'sentence_embedding', not \"token_embeddings\"",
    ),
    "dense-with-python": (
        {**new("mean", "Dense"), **dense("2_Dense", "custom.Swish")}, "activation_function: should be one of torch"
    ),
    "missing-prompt": (
        {"config_sentence_transformers.json": {"default_prompt_name": "query"}},
        "config_sentence_transformers.json: default_prompt_name: 'query' is none of prompts",
    ),
    "prompts-that-are-no-texts": (
        {"config_sentence_transformers.json": {"prompts": {"query": 3}}}, "prompts.query: should be a valid string"
    ),
    "no-object": ({"tokenizer_config.json": [1]}, "tokenizer_config.json: should be a mapping, not a list"),
    "no-list": ({"modules.json": {"a": 1}}, "modules.json: should be a valid array"),
    "third-side": ({"tokenizer_config.json": {"padding_side": "top"}}, "padding_side: should be 'right' or 'left'"),
    "labels-with-a-gap": (
        {"config.json": {**CROSS, "id2label": {"0": "a", "2": "b"}}}, "id2label: should have a name for each number"
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", REFUSED)
def test_what_can_not_be_followed_is_refused_with_its_field(tmp_path: pathlib.Path, layout: str) -> None:
    files, problem = REFUSED[layout]
    save_folder(tmp_path, files)
    for path in tmp_path.glob("*_Dense"):
        safetensors.numpy.save_file({"linear.weight": WEIGHT, "linear.bias": BIAS}, path / "model.safetensors")

    assert problem in fault(tmp_path)


def test_weights_that_are_programs_are_refused(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, {**new("mean", "Dense"), **dense("2_Dense", IDENTITY)})
    (tmp_path / "2_Dense" / "pytorch_model.bin").write_bytes(b"pickle")

    assert "2_Dense/model.safetensors: there is no such file" in fault(tmp_path)
    (tmp_path / "2_Dense" / "model.safetensors").write_bytes(b"\xff" * 64)
    assert "2_Dense/model.safetensors is no layer of safetensors" in fault(tmp_path)


def test_an_export_without_the_tokens_does_not_tell_whether_a_dense_layer_is_in_it(tmp_path: pathlib.Path) -> None:
    files = {**new("mean", "Dense"), **dense("2_Dense", IDENTITY)}
    save_folder(tmp_path, files, {"sentence_embedding": "mean"})
    safetensors.numpy.save_file({"linear.weight": WEIGHT}, tmp_path / "2_Dense" / "model.safetensors")

    assert "no tensor 'token_embeddings', 'last_hidden_state' here, only 'sentence_embedding'" in fault(tmp_path)


def test_outputs_that_nothing_names_are_refused(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, new("mean"), {"a": "hidden", "b": "mean"})

    named = "'token_embeddings', 'last_hidden_state', 'sentence_embedding'"
    assert f"there is no tensor {named} here, only 'a', 'b'" in fault(tmp_path)


def test_a_folder_without_its_file_says_which_there_are(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, new("mean"))
    (tmp_path / "onnx" / "model.onnx").rename(tmp_path / "onnx" / "model_O4.onnx")

    advice = "export one, or choose one with the key file; its ONNX files are onnx/model_O4.onnx"
    assert fault(tmp_path).endswith(f"it has config.json, but no model.onnx or onnx/model.onnx; {advice}")
    assert fault(tmp_path, file="b.onnx").endswith(f"it has config.json, but no b.onnx; {advice}")
    (tmp_path / "tokenizer.json").unlink()
    assert "tokenizer.json: there is no such file" in fault(tmp_path, file="onnx/model_O4.onnx")


def test_stages_beside_a_folder_are_refused(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, new("mean"))

    assert "leave preprocess and postprocess out, or name its ONNX file" in fault(
        tmp_path, postprocess=[{"l2_normalize": {}}]
    )


@pytest.mark.parametrize(
    "name", ["config.json", "modules.json", "tokenizer.json", "onnx/model.onnx", "1_Pooling/config.json"]
)
def test_links_out_of_the_folder_are_refused(tmp_path: pathlib.Path, name: str) -> None:
    folder = tmp_path / "folder"
    save_folder(folder, new("mean"))
    (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")

    assert f"{name}: it leads out of {folder}; put a copy of the file there" in fault(folder)


def test_links_to_the_blobs_of_a_hubs_cache_are_inside(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "models--m" / "snapshots" / "1234"
    save_folder(folder, new("cls"))
    blobs = tmp_path / "models--m" / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        path.rename(blobs / str(number))
        path.symlink_to(blobs / str(number))

    np.testing.assert_allclose(read(folder).answer("dog"), [token_vectors(IDS[1])[0]], rtol=1e-5)


def test_paths_that_climb_out_of_the_folder_are_refused(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "folder"
    entries = modules("Pooling")
    entries[1]["path"] = "../outside"
    save_folder(folder, {"modules.json": entries})
    write_json(tmp_path, {"outside/config.json": {}})

    assert f"it leads out of {folder}" in fault(folder)
    assert f"it leads out of {folder}" in fault(folder, file="../outside/config.json")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json"])
def test_files_without_an_end_are_not_read(tmp_path: pathlib.Path, name: str) -> None:
    save_folder(tmp_path, new("mean"))
    os.truncate(tmp_path / name, 1 << 30)

    with pytest.raises(TextModelError, match="it has more than"):
        read(tmp_path)


def test_pipes_are_not_waited_for(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, new("mean"))
    (tmp_path / "tokenizer.json").unlink()
    os.mkfifo(tmp_path / "tokenizer.json")

    assert "tokenizer.json: there is no such file" in fault(tmp_path)


def test_a_folder_of_numbers_stays_version_folders(tmp_path: pathlib.Path) -> None:
    save_folder(tmp_path, new("mean"))
    save_encoder(tmp_path / "3" / "model.onnx", {"y": "mean"})

    found = find_files(ModelConfig.model_validate({"name": "m", "path": tmp_path}))

    assert {number: file.file for number, file in found.items()} == {3: None}
