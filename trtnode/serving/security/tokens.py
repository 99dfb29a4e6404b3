"""Bearer tokens: who may call, and what each may do. Their file is followed while the server runs.

The tokens file is read at most once a second and compared by content, because time stamps miss a change within a tick
and a swapped link. A file that can't be used leaves the tokens before it in use. A file without tokens refuses every
caller.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import hmac
import logging
import os
import pathlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Literal

import pydantic
from pydantic import Field
from pydantic_core import ErrorDetails

from trtnode.serving.errors import ConfigError, Problem
from trtnode.serving.schema.fields import ListOf, Section
from trtnode.serving.schema.problems import problem_at, read_text, structure_text
from trtnode.serving.schema.yaml_reader import YamlProblemError, YamlTree, read_yaml
from trtnode.serving.security.exposure_warnings import warn_of_public_file

logger = logging.getLogger(__name__)

MAX_BYTES, KIND = 16 << 20, "file of tokens"

Right = Literal["repository", "shared_memory", "settings"]
"""A part of ``server.admin``."""

RECHECK_S = 1.0
"""The longest time that a change of the file goes unseen."""
_SCHEME = "bearer "


class TokenEntry(Section):
    """One token."""

    name: str = Field(min_length=1)
    """Name of its holder in the log."""
    token: str | None = None
    """The token itself: 16 or more printable ASCII characters without spaces."""
    sha256: str | None = None
    """Instead of the token, its SHA-256 in 64 hexadecimal digits."""
    models: ListOf[str] = ("*",)
    """Globs over the names of the models that it may use."""
    admin: ListOf[Right] = ()
    """Changes of the server that it may ask for, where server.admin allows them."""

    @pydantic.model_validator(mode="after")
    def _check_secret(self) -> TokenEntry:
        if (self.token is None) == (self.sha256 is None):
            raise ValueError("should have either token or sha256")
        if self.token is not None and not re.fullmatch(r"[!-~]{16,}", self.token):
            raise ValueError("should have a token of 16 or more printable ASCII characters without spaces")
        if self.sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise ValueError("should have a sha256 of 64 hexadecimal digits")
        return self

    def grant(self) -> Grant:
        """Return what the token allows; from here on, its text is forgotten."""
        digest = bytes.fromhex(self.sha256) if self.sha256 else _digest(self.token or "")
        return Grant(self.name, digest, self.models, frozenset(self.admin))


class TokensFile(Section):
    """The tree of a tokens file."""

    tokens: ListOf[TokenEntry] | None = None
    """All tokens; without any, nobody may call."""


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """The rights of the holder of a token.

    Attributes:
        name: What the log calls the holder.
        digest: SHA-256 of the token.
        models: Globs over model names.
        rights: Changes of the server.
    """

    name: str
    digest: bytes = dataclasses.field(repr=False)
    models: tuple[str, ...]
    rights: frozenset[Right]

    def covers(self, model: str) -> bool:
        """Return whether a model may be used. The empty name stands for all models, which only ``*`` covers."""
        return any(fnmatch.fnmatchcase(model, glob) for glob in self.models)

    @property
    def memory_owner(self) -> bytes | None:
        """Owner of the regions of shared memory that the holder registers; None without the right."""
        return self.digest if "shared_memory" in self.rights else None


class Tokens:
    """The tokens of a file. A file that can't be used changes nothing; one without tokens lets nobody in."""

    def __init__(self, path: pathlib.Path) -> None:
        """Read the file.

        Raises:
            ConfigError: It can't be used; the text quotes nothing of it.
        """
        self._path = path
        self._lock = threading.Lock()
        text = read_text(path, MAX_BYTES, KIND)
        self._seen = _digest(text)
        self._grants = _parse(path, text)
        self._checked = time.monotonic()
        self._complaint = ""
        warn_of_public_file(path)
        self._report()

    def find(self, authorization: str) -> Grant | None:
        """Return the grant of an ``authorization`` header, or None. Its time does not depend on the tokens' text."""
        self._follow()
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return None
        digest, found = _digest(authorization[len(_SCHEME) :].strip()), None
        for grant in self._grants:
            if hmac.compare_digest(digest, grant.digest):
                found = grant
        return found

    def _follow(self) -> None:
        """Take over the file's tokens if it has changed, looking once in a while."""
        if time.monotonic() - self._checked < RECHECK_S or not self._lock.acquire(blocking=False):
            return
        try:
            self._checked = time.monotonic()
            text = read_text(self._path, MAX_BYTES, KIND)
            seen = _digest(text)
            if seen != self._seen:
                self._grants = _parse(self._path, text)
                self._seen = seen
                self._report()
            self._complaint = ""
        except ConfigError as error:
            if str(error) != self._complaint:
                logger.error("The previous tokens stay valid: %s", error)
                self._complaint = str(error)
        finally:
            self._lock.release()

    def _report(self) -> None:
        if self._grants:
            logger.info("%d tokens in %s", len(self._grants), self._path)
        else:
            logger.warning("%s has no tokens, so nobody may call", self._path)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _parse(path: pathlib.Path, text: str) -> tuple[Grant, ...]:
    """Return the grants of a file.

    Raises:
        ConfigError: It isn't a tokens file. Values and unknown keys, which could be tokens, are not quoted.
    """
    try:
        tree = read_yaml(text, os.environ)
        file = TokensFile.model_validate({} if tree.value is None else tree.value)
    except YamlProblemError as error:
        problem = "can't be read as YAML; put tokens in quotes, and set the variables that they name"
        raise ConfigError(path, [Problem(problem, line=error.line)]) from None
    except pydantic.ValidationError as error:
        raise ConfigError(path, [_problem(fault, tree) for fault in error.errors()]) from None
    grants = tuple(entry.grant() for entry in file.tokens or ())
    problems = list(_repetitions(grants, tree))
    if problems:
        raise ConfigError(path, problems)
    return grants


def _problem(fault: ErrorDetails, tree: YamlTree) -> Problem:
    if fault["type"] == "extra_forbidden":
        place = fault["loc"][:-1]
        known = (TokenEntry if place else TokensFile).model_fields
        return problem_at(tree, place, f"has an unknown key; known here: {', '.join(known)}")
    return problem_at(tree, fault["loc"], structure_text(fault))


def _repetitions(grants: Sequence[Grant], tree: YamlTree) -> Iterator[Problem]:
    names: dict[str, int] = {}
    digests: dict[bytes, int] = {}
    for index, grant in enumerate(grants):
        first = names.setdefault(grant.name, index)
        if first != index:
            yield problem_at(tree, ("tokens", index, "name"), f"is the name of tokens[{first}] too; rename one")
        first = digests.setdefault(grant.digest, index)
        if first != index:
            yield problem_at(tree, ("tokens", index), f"is the token of tokens[{first}] too; remove one")
