"""Texts over HTTP as clients of OpenAI, Cohere, Jina and text-embeddings-inference send them, and their answers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import grpc
import numpy as np
import pydantic
from starlette.requests import Request

from trtnode.serving.errors import BusyError, InvalidParameterError
from trtnode.serving.protocol.request_cache import ParsedRequest, RequestCache
from trtnode.serving.protocol.shared_memory import SharedMemory
from trtnode.serving.rest.body import Body, check_json
from trtnode.serving.rest.inference import Answer, peer_of, unless_gone
from trtnode.serving.schema.text import Task
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.call import Call, FutureWriter
from trtnode.serving.service.inference import Inference
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.service.status import HTTP_STATUSES
from trtnode.serving.text.text_model import TextModel, count_tokens

EMBEDDINGS, RERANK, MODELS = "/v1/embeddings", ("/v1/rerank", "/rerank"), "/v1/models"

PROMPTS_OF = {
    "query": ("query",),
    "search_query": ("query",),
    "document": ("document", "passage", "corpus"),
    "passage": ("passage", "document", "corpus"),
    "search_document": ("document", "passage", "corpus"),
}
"""Names of the prompts for each value of ``input_type``; the first that a model has counts."""

EXPECTED = {
    "input": "should be text, a list of texts, a list of token ids, or a list of such lists",
    "documents": "should be a list of texts, or of objects with a text",
}
"""Fields of several types, and what they should be."""

KINDS = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
"""OpenAI's ``type`` and ``code`` of errors, by their status."""

Facts = dict[str, Any]
Asked = TypeVar("Asked", "Embeddings", "Rerank")


class _Request(pydantic.BaseModel):
    """The JSON of a request. Keys that are not in it are ignored."""

    model_config = pydantic.ConfigDict(strict=True)

    model: str = ""


class Embeddings(_Request):
    """A request for vectors, as OpenAI has it."""

    task: ClassVar[Task] = "embed"
    path: ClassVar[str] = EMBEDDINGS
    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    input_type: str | None = None
    prompt_name: str | None = None

    def tokenized(self, text: TextModel) -> Mapping[str, np.ndarray]:
        """Return the inputs of a model.

        Raises:
            InvalidRequestError: A field is at fault.
        """
        most = text.dimensions
        if self.dimensions is not None and not 1 <= self.dimensions <= (most or 0):
            can = f"from 1 to {most}" if most else "nothing else than null: text.dimensions of the model is off"
            raise InvalidParameterError("dimensions", f"is {self.dimensions}, and can be {can}")
        rows: Sequence[Any] = [self.input] if isinstance(self.input, str) else self.input
        if rows and not isinstance(rows[0], str):
            if self.prompt_name or self.input_type:
                raise InvalidParameterError("prompt_name", "is for texts; send the prompt's token ids with the others")
            return text.tokenizer.encode_ids("'input'", [rows] if isinstance(rows[0], int) else rows)
        return text.tokenizer.encode("'input'", rows, prompt=text.prompt(self._prompt_name(text)))

    def _prompt_name(self, text: TextModel) -> str | None:
        kind = self.input_type
        if self.prompt_name or kind is None:
            return self.prompt_name
        names = PROMPTS_OF.get(kind, (kind,))
        return next((name for name in names if name in text.prompts), None if kind in PROMPTS_OF else kind)

    def answer(self, results: np.ndarray, model: str, tokens: int) -> Facts:
        """Return the vectors, in order."""
        vectors = results.astype("<f4")
        if self.dimensions is not None:
            vectors = vectors[:, : self.dimensions]
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        packed = self.encoding_format == "base64"
        given = [base64.b64encode(row.tobytes()).decode() for row in vectors] if packed else vectors.tolist()
        data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(given)]
        return {"object": "list", "data": data, "model": model, "usage": _usage(tokens)}


class _Document(pydantic.BaseModel):
    text: str


class Rerank(_Request):
    """A request for scores of documents, as Cohere and Jina have it; with ``texts``, as text-embeddings-inference."""

    task: ClassVar[Task] = "rerank"
    path: ClassVar[str] = RERANK[0]
    query: str
    documents: list[str | _Document] = []
    texts: list[str] | None = None
    top_n: Annotated[int, pydantic.Field(ge=1)] | None = None
    return_documents: bool = False
    return_text: bool = False
    raw_scores: Literal[False] = False

    def _documents(self) -> list[str]:
        return self.texts or [one if isinstance(one, str) else one.text for one in self.documents]

    def tokenized(self, text: TextModel) -> Mapping[str, np.ndarray]:
        """Return the inputs of a model.

        Raises:
            InvalidRequestError: A text is at fault.
        """
        pairs = [(self.query, document) for document in self._documents()]
        return text.tokenizer.encode("'documents'", pairs, prompt=text.prompt())

    def answer(self, results: np.ndarray, model: str, tokens: int) -> Any:
        """Return the scores, the highest first."""
        scores, documents = results[:, 0].astype(np.float64), self._documents()
        places = np.argsort(-scores, kind="stable")[: self.top_n].tolist()
        if self.texts is not None:
            return [
                {"index": place, "score": scores[place], **({"text": documents[place]} if self.return_text else {})}
                for place in places
            ]
        found = [{"index": place, "relevance_score": scores[place]} for place in places]
        if self.return_documents:
            found = [{**one, "document": {"text": documents[one["index"]]}} for one in found]
        return {"model": model, "results": found, "usage": _usage(tokens)}


class TextInference(Inference):
    """A request for vectors or scores and its response as HTTP bodies; see ``Inference``."""

    __slots__ = ("_asked", "_error", "_tokens")

    def __init__(self, call: Call, model: str, asked: Embeddings | Rerank) -> None:
        super().__init__(call, model, "")
        self._asked = asked
        self._tokens = 0
        self._error: BaseException | None = None

    def read(self, cache: RequestCache, _memory: SharedMemory) -> ParsedRequest:
        """Return the request as arrays of token ids."""
        text, asked = self._servable.loaded.text, self._asked
        if text is None or text.task != asked.task:
            does = "takes no texts" if text is None else f"is for {text.task}"
            raise InvalidParameterError("model", f"{self.model_name!r} {does}, and {asked.path} for {asked.task}")
        feeds = asked.tokenized(text)
        self._tokens = count_tokens(feeds)
        return ParsedRequest(feeds, cache.signature.select([text.output]), {}, 0, 0)

    def write(self, _cache: RequestCache, _request: ParsedRequest, arrays: Sequence[np.ndarray]) -> Answer:
        """Return the response."""
        (results,), asked = arrays, self._asked
        if results.ndim != 2 or (asked.task == "rerank" and results.shape[1] != 1):
            wanted = "one score a pair" if asked.task == "rerank" else "one vector a text; add `pool` behind the model"
            problem = f"{self.model_name!r} gives {list(results.shape)}, and {asked.path} needs {wanted}"
            raise InvalidParameterError("model", problem)
        return Answer(200, json.dumps(asked.answer(results, self.model_name, self._tokens)).encode())

    def _answer(self, error: BaseException | None, response: Any = None) -> None:
        self._error = error
        super()._answer(error, response)

    def described(self, code: grpc.StatusCode, details: str) -> Answer:
        """Return the answer that tells a client of an error."""
        busy = isinstance(self._error, BusyError)
        return openai_error(429 if busy else HTTP_STATUSES[code], details, getattr(self._error, "parameter", None))


async def infer_texts(
    service: InferenceService, model: str, asked: Embeddings | Rerank, request: Request, grant: Grant
) -> Answer:
    """Return the answer to a request for vectors or scores; what goes wrong stands in it.

    Raises:
        ClientDisconnect: The client left before its answer.
    """
    writer = FutureWriter(lambda code, details: inference.described(code, details))
    call = Call(writer, peer_of(request), request.headers.items())
    call.grant = grant
    inference = TextInference(call, model, asked)
    service.accept(inference)
    return await unless_gone(asyncio.wrap_future(writer.answer), request.receive, call.leave)


def has_openai_errors(path: str) -> bool:
    """Return whether errors of a path have OpenAI's form."""
    return path.startswith("/v1/") or path in RERANK


def openai_error(status: int, message: str, parameter: str | None = None) -> Answer:
    """Return an error in OpenAI's form.

    Args:
        status: Of HTTP.
        message: What is wrong.
        parameter: The field of the request that is at fault; None if it isn't known.
    """
    kind, code = KINDS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    facts = {"message": message, "type": kind, "param": parameter, "code": code}
    return Answer(status, json.dumps({"error": facts}).encode())


def parse(kind: type[Asked], body: Body) -> Asked:
    """Return what the JSON of a request says.

    Raises:
        InvalidRequestError: It is no JSON, or lacks a field, or has one of another type, or too many values.
        TooLargeError: It has more bytes than it may, once it is unpacked.
    """
    text = body.unpacked()
    check_json(text)
    try:
        return kind.model_validate_json(text)
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = str(next(iter(fault["loc"]), "body"))
        raise InvalidParameterError(field, EXPECTED.get(field, f"can't be read: {fault['msg']}")) from None


def model_of(service: InferenceService, asked: Embeddings | Rerank, grant: Grant) -> str:
    """Return the model of a request. One that names none is for the only model of its task that the caller may use.

    Raises:
        InvalidRequestError: There is none, or several.
    """
    if asked.model:
        return asked.model
    names = [name for name, text in text_models(service, grant) if text.task == asked.task]
    if len(names) != 1:
        raise InvalidParameterError(
            "model", f"is missing; the models for {asked.task} are {', '.join(names) or 'none'}"
        )
    return names[0]


def text_models(service: InferenceService, grant: Grant) -> Iterator[tuple[str, TextModel]]:
    """Yield name and facts of each model of text that can answer, and that a caller may use."""
    for servable in (model.preferred for model in service.models() if grant.covers(model.config.name)):
        if servable is not None and servable.is_ready and (text := servable.loaded.text) is not None:
            yield servable.name, text


def described_model(name: str) -> Facts:
    """Return a model as OpenAI describes it; nobody knows when it was made."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "trtnode"}


def _usage(tokens: int) -> Facts:
    return {"prompt_tokens": tokens, "total_tokens": tokens}
