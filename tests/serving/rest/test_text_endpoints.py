"""Vectors and scores of texts over HTTP, for the clients of OpenAI, Cohere, Jina and text-embeddings-inference."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx_ir
import openai
import pytest
from hypothesis import given as cases
from hypothesis import settings
from hypothesis import strategies as st

from tests.serving.conftest import FakeExecutable, Running, Starter, given, spec
from tests.serving.rest.conftest import call
from tests.workshop.text_models import SIZE, TABLE, WORDS, save_encoder, save_tokenizer

ALL, ONE = "a" * 32, "b" * 32
VOCABULARY = {word: number for number, word in enumerate(WORDS)}

MODELS = """
- name: embed
  path: embed.onnx
  engine: native
  lengths: auto
  batching: {max_batch_size: 8, max_batch_tokens: 64}
  preprocess: [{tokenize: {file: tokenizer.json, max_length: 16, max_texts: 100}}]
  text: {prompts: {query: "query : ", passage: "passage : ", document: "a "}, dimensions: true}
- name: rank
  path: rank.onnx
  engine: native
  preprocess: [{tokenize: {file: tokenizer.json, max_length: 16, pair: true}}]
- name: classes
  path: classes.onnx
  engine: native
  preprocess: [{tokenize: {file: tokenizer.json, max_length: 16}}]
  text: {task: classify}
- name: tokens
  path: tokens.onnx
  engine: native
  preprocess: [{tokenize: {file: tokenizer.json, max_length: 16}}]
- {name: plain, path: embed.onnx, engine: native}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("texts")
    save_tokenizer(folder / "tokenizer.json")
    save_encoder(folder / "embed.onnx", {"vectors": "mean"})
    save_encoder(folder / "rank.onnx", {"logits": "scores"})
    save_encoder(folder / "classes.onnx", {"logits": "scores"}, classes=3)
    save_encoder(folder / "tokens.onnx", {"last_hidden_state": "hidden"})
    tokens = folder / "tokens.yaml"
    tokens.touch(0o600)
    tokens.write_text(f"tokens:\n- {{name: all, token: {ALL}}}\n- {{name: one, token: {ONE}, models: [rank]}}\n")
    starter = Starter(folder, warm_cache)
    yield starter(MODELS, server=f"auth: {{tokens_file: {tokens}}}")
    starter.close()


def post(running: Running, path: str, body: Any, token: str = ALL, **headers: str) -> tuple[int, Any]:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, _, text = call(running, path, sent, authorization=f"Bearer {token}", **headers)
    return status, json.loads(text)


def embed(running: Running, texts: Any, **more: Any) -> tuple[int, Any]:
    return post(running, "/v1/embeddings", {"model": "embed", "input": texts, **more})


def ids_of(*words: str) -> list[int]:
    return [1, *(VOCABULARY.get(word, 3) for word in words), 2]


def vector(*words: str) -> np.ndarray:
    mean: np.ndarray = TABLE[ids_of(*words)].mean(0)
    return mean


def client_of(running: Running, token: str = ALL) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.http}/v1", api_key=token, max_retries=0)


def vectors_of(answer: Any) -> np.ndarray:
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return np.array([one["embedding"] for one in answer["data"]])


def test_the_openai_client_gets_vectors_and_usage(served: Running) -> None:
    with client_of(served) as client:
        answer = client.embeddings.create(model="embed", input=["the red fox", "dog"])
        models = client.models.list()
        one = client.models.retrieve("rank")

    np.testing.assert_allclose(
        [one.embedding for one in answer.data], [vector("the", "red", "fox"), vector("dog")], rtol=1e-5, atol=1e-6
    )
    assert (answer.model, answer.object) == ("embed", "list")
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (8, 8)
    assert [one.id for one in models.data] == ["embed", "rank", "classes", "tokens"]
    assert one.id == "rank"


def test_the_asynchronous_openai_client_asks_side_by_side(served: Running) -> None:
    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{served.http}/v1", api_key=ALL) as client:
            asked = (client.embeddings.create(model="embed", input=word) for word in WORDS[6:])
            return await asyncio.gather(*asked)

    answers = asyncio.run(ask())

    for word, answer in zip(WORDS[6:], answers, strict=True):
        np.testing.assert_allclose(answer.data[0].embedding, vector(word), rtol=1e-5, atol=1e-6)


def test_errors_are_those_that_the_openai_client_raises(served: Running) -> None:
    with client_of(served) as client:
        with pytest.raises(openai.NotFoundError, match="missing"):
            client.embeddings.create(model="missing", input="fox")
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="embed", input="fox", dimensions=SIZE + 1)
        with pytest.raises(openai.NotFoundError, match="there is no model of texts 'plain'"):
            client.models.retrieve("plain")
    with client_of(served, "c" * 32) as client, pytest.raises(openai.AuthenticationError):
        client.embeddings.create(model="embed", input="fox")
    with client_of(served, ONE) as client:
        with pytest.raises(openai.PermissionDeniedError):
            client.embeddings.create(model="embed", input="fox")
        assert [one.id for one in client.models.list()] == ["rank"]

    assert (caught.value.param, caught.value.type) == ("dimensions", "invalid_request_error")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param("fox", [("fox",)], id="text"),
        pytest.param(["fox", "a dog"], [("fox",), ("a", "dog")], id="texts"),
        pytest.param(ids_of("fox"), [("fox",)], id="token-ids"),
        pytest.param([ids_of("fox"), ids_of("a", "dog")], [("fox",), ("a", "dog")], id="lists-of-token-ids"),
    ],
)
def test_every_form_of_input_gets_its_vectors(served: Running, sent: Any, expected: list[Sequence[str]]) -> None:
    status, answer = embed(served, sent)
    _, packed = embed(served, sent, encoding_format="base64")

    wanted = [vector(*words) for words in expected]
    assert status == 200
    np.testing.assert_allclose(vectors_of(answer), wanted, rtol=1e-5, atol=1e-6)
    raw = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed["data"]]
    np.testing.assert_array_equal(raw, vectors_of(answer).astype(np.float32))
    assert answer["usage"]["total_tokens"] == sum(len(words) + 2 for words in expected)


@pytest.mark.parametrize(
    ("more", "before"),
    [
        ({}, ()),
        ({"prompt_name": "passage"}, ("passage", ":")),
        ({"input_type": "query"}, ("query", ":")),
        ({"input_type": "search_query"}, ("query", ":")),
        ({"input_type": "document"}, ("a",)),
        ({"input_type": "passage"}, ("passage", ":")),
    ],
)
def test_prompts_are_chosen_by_name_or_by_the_type_of_the_input(
    served: Running, more: Mapping[str, str], before: Sequence[str]
) -> None:
    _, answer = embed(served, "fox", **more)

    np.testing.assert_allclose(vectors_of(answer), [vector(*before, "fox")], rtol=1e-5, atol=1e-6)


def test_vectors_that_are_cut_have_unit_length(served: Running) -> None:
    _, answer = embed(served, ["fox", "dog"], dimensions=2)

    cut = np.array([vector("fox")[:2], vector("dog")[:2]])
    np.testing.assert_allclose(vectors_of(answer), cut / np.linalg.norm(cut, axis=1, keepdims=True), rtol=1e-5)


@settings(max_examples=15, deadline=None)
@cases(st.lists(st.lists(st.sampled_from(WORDS[6:]), min_size=1, max_size=14), min_size=1, max_size=60))
def test_many_texts_of_any_lengths_get_their_own_vectors_in_order(served: Running, texts: list[list[str]]) -> None:
    _, answer = embed(served, [" ".join(words) for words in texts])

    np.testing.assert_allclose(vectors_of(answer), [vector(*words) for words in texts], rtol=1e-4, atol=1e-5)
    assert answer["usage"]["prompt_tokens"] == sum(len(words) + 2 for words in texts)


@pytest.mark.parametrize(
    ("body", "parameter", "message"),
    [
        (b"{", "body", "can't be read"),
        ({"model": "embed"}, "input", "should be text, a list of texts, a list of token ids, or a list of such lists"),
        ({"model": "embed", "input": 3}, "input", "should be text"),
        ({"model": "embed", "input": [1, "a"]}, "input", "should be text"),
        ({"model": "embed", "input": [True]}, "input", "should be text"),
        ({"input": "fox"}, "model", "is missing; the models for embed are embed, tokens"),
        ({"model": "embed", "input": "fox", "encoding_format": "hex"}, "encoding_format", "can't be read"),
        ({"model": "embed", "input": "fox", "dimensions": 0}, "dimensions", "is 0, and can be from 1 to 4"),
        ({"model": "embed", "input": "fox", "dimensions": 5}, "dimensions", "is 5, and can be from 1 to 4"),
        ({"model": "tokens", "input": "fox", "dimensions": 2}, "dimensions", "text.dimensions of the model is off"),
        ({"model": "embed", "input": [1, 2], "prompt_name": "query"}, "prompt_name", "is for texts"),
        ({"model": "embed", "input": "fox", "prompt_name": "song"}, None, "there is no prompt 'song'"),
        ({"model": "embed", "input": "fox", "input_type": "song"}, None, "there is no prompt 'song'"),
        ({"model": "embed", "input": []}, None, "'input' has no text"),
        ({"model": "embed", "input": ["fox", ""]}, None, "'input': text 1 is empty"),
        ({"model": "embed", "input": ["fox"] * 101}, None, "'input' has 101 texts; a request may have 100"),
        ({"model": "embed", "input": [99]}, None, "'input': list 0 has a token that is not from 0 to"),
        ({"model": "rank", "input": "fox"}, "model", "'rank' is for rerank, and /v1/embeddings for embed"),
        ({"model": "classes", "input": "fox"}, "model", "'classes' is for classify"),
        ({"model": "plain", "input": "fox"}, "model", "'plain' takes no texts"),
        ({"model": "tokens", "input": "fox"}, "model", "needs one vector a text; add `pool` behind the model"),
    ],
)
def test_a_request_at_fault_is_told_what_is_wrong(
    served: Running, body: Any, parameter: str | None, message: str
) -> None:
    status, answer = post(served, "/v1/embeddings", body)

    assert status == 400
    assert answer["error"]["param"] == parameter
    assert answer["error"]["type"] == "invalid_request_error"
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "method", "token", "status", "code"),
    [
        ("/v1/embeddings", "POST", "c" * 32, 401, "invalid_api_key"),
        ("/v1/embeddings", "POST", ONE, 403, "forbidden"),
        ("/v1/embeddings", "GET", ALL, 405, None),
        ("/v1/completions", "POST", ALL, 404, "not_found"),
        ("/v1/models/none", "GET", ALL, 404, "not_found"),
    ],
)
def test_errors_have_openais_form(
    served: Running, path: str, method: str, token: str, status: int, code: str | None
) -> None:
    body = b'{"model": "embed", "input": "fox"}' if method == "POST" else None
    found, _, text = call(served, path, body, method=method, authorization=f"Bearer {token}")

    assert found == status
    assert json.loads(text)["error"].keys() == {"message", "type", "param", "code"}
    assert json.loads(text)["error"]["code"] == code


def scores(running: Running, path: str = "/v1/rerank", **body: Any) -> tuple[int, Any]:
    return post(running, path, {"query": "the fox", **body})


def score(*words: str) -> float:
    return float(TABLE[[*ids_of("the", "fox"), *(VOCABULARY[word] for word in words), 2]].mean(0).sum())


DOCUMENTS = {"red fox": score("red", "fox"), "dog": score("dog"), "a dog runs": score("a", "dog", "runs")}
RANKED = sorted(DOCUMENTS, key=lambda text: -DOCUMENTS[text])


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
@pytest.mark.parametrize("as_objects", [False, True])
def test_documents_come_back_by_their_scores(served: Running, path: str, as_objects: bool) -> None:
    documents = [{"text": text} if as_objects else text for text in DOCUMENTS]
    status, answer = scores(served, path, model="rank", documents=documents, return_documents=True)
    _, first = scores(served, path, model="rank", documents=documents, top_n=1)

    results = answer["results"]
    assert status == 200
    assert [one["document"]["text"] for one in results] == RANKED
    assert [list(DOCUMENTS)[one["index"]] for one in results] == RANKED
    np.testing.assert_allclose(
        [one["relevance_score"] for one in results], [DOCUMENTS[text] for text in RANKED], rtol=1e-4
    )
    assert answer["usage"]["total_tokens"] == sum(len(text.split()) + 5 for text in DOCUMENTS)
    assert [(one["index"], "document" in one) for one in first["results"]] == [(results[0]["index"], False)]


def test_texts_are_ranked_as_text_embeddings_inference_does_without_a_model(served: Running) -> None:
    _, answer = scores(served, "/rerank", texts=list(DOCUMENTS), return_text=True)

    assert [one["text"] for one in answer] == RANKED
    assert answer[0].keys() == {"index", "score", "text"}


@pytest.mark.parametrize(
    ("body", "parameter", "message"),
    [
        ({"model": "rank"}, None, "'documents' has no text"),
        ({"model": "rank", "documents": ["fox", ""]}, None, "'documents': pair 1: text 1 is empty"),
        ({"model": "rank", "documents": [{}]}, "documents", "should be a list of texts, or of objects with a text"),
        ({"model": "rank", "documents": ["fox"], "top_n": 0}, "top_n", "can't be read"),
        ({"texts": ["fox"], "raw_scores": True}, "raw_scores", "can't be read"),
        ({"model": "embed", "documents": ["fox"]}, "model", "'embed' is for embed, and /v1/rerank for rerank"),
    ],
)
def test_a_request_for_scores_at_fault_is_told_what_is_wrong(
    served: Running, body: Any, parameter: str | None, message: str
) -> None:
    status, answer = scores(served, **body)

    assert (status, answer["error"]["param"]) == (400, parameter)
    assert message in answer["error"]["message"]


def test_tokens_are_counted_for_every_way_in(served: Running) -> None:
    def counted() -> float:
        _, _, text = call(served, "/metrics", authorization=f"Bearer {ALL}")
        lines = [line for line in text.decode().splitlines() if line.startswith('trtnode_tokens_total{model="embed"')]
        return float(lines[0].rpartition(" ")[2])

    embed(served, "fox")
    before = counted()
    embed(served, ["the red fox", "dog"])
    texts = given("text", np.array(["a dog"], object))
    served.client.infer("embed", [texts], headers={"authorization": f"Bearer {ALL}"})

    assert counted() - before == 8 + 4


scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4)
values = st.recursive(scalars | st.sampled_from(["fox", [1, 2], [[1]], 2]), lambda one: st.lists(one, max_size=3))
FIELDS = (
    *("input", "encoding_format", "dimensions", "input_type", "prompt_name", "query", "documents", "texts", "top_n"),
    *("return_documents", "return_text", "raw_scores", "user"),
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)


@settings(max_examples=60, deadline=None)
@cases(path=st.sampled_from(["/v1/embeddings", "/v1/rerank", "/rerank"]), body=bodies, valid=st.booleans())
def test_whatever_json_comes_the_answer_is_right_or_says_what_is_wrong(
    served: Running, path: str, body: dict[str, Any], valid: bool
) -> None:
    usual = (
        {"model": "embed", "input": "fox"} if "embed" in path else {"model": "rank", "query": "a", "documents": ["fox"]}
    )

    status, answer = post(served, path, {**usual, **body} if valid else body)

    assert status in (200, 400)
    assert status == 200 or answer["error"]["message"]


def test_a_compressed_body_is_read_too(served: Running) -> None:
    body = gzip.compress(b'{"model": "embed", "input": "fox"}')

    status, answer = post(served, "/v1/embeddings", body, content_encoding="gzip")

    assert (status, answer["usage"]["total_tokens"]) == (200, 3)


def test_a_caller_hears_of_its_own_models_alone(served: Running) -> None:
    _, answer = post(served, "/v1/embeddings", {"input": "fox"}, token=ONE)

    assert answer["error"]["message"] == "'model' is missing; the models for embed are none"


class HeldEncoder(FakeExecutable):
    """An encoder that waits for its gate."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = (spec("input_ids", onnx_ir.DataType.INT64, (None, None)),)
        self.outputs = (spec("vectors", onnx_ir.DataType.FLOAT, (None, 1)),)

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        super().run({"x": feeds["input_ids"]})
        return {"vectors": feeds["input_ids"][:, :1].astype(np.float32)}


def test_a_server_with_enough_requests_answers_429(start: Starter, tmp_path: pathlib.Path) -> None:
    save_tokenizer(tmp_path / "tokenizer.json")
    held = HeldEncoder()
    model = "- {name: embed, path: fake.onnx, warmup: 0, preprocess: [{tokenize: {file: tokenizer.json}}]}\n"
    running = start(model, server="limits: {max_requests: 1}", loader=lambda _: held)
    held.gate.clear()

    with ThreadPoolExecutor(1) as others:
        first = others.submit(embed, running, "fox")
        assert held.started.acquire(timeout=60)
        status, answer = embed(running, "dog")
        held.gate.set()

    assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
    assert first.result()[0] == 200
