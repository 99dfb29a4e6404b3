"""The tokens file: followed, checked, and never quoted."""

from __future__ import annotations

import hashlib
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serving.conftest import Running, StartFake, refusal
from tests.serving.security.conftest import ADMIN, ALL, FILE, ONE, infer
from trtnode.serving.errors import ConfigError
from trtnode.serving.security import tokens
from trtnode.serving.security.tokens import Tokens


def test_a_changed_file_holds_from_the_next_call(running: Running, file: pathlib.Path) -> None:
    file.write_text(FILE.replace(ALL, "another-token-0123456789"))

    assert refusal(lambda: infer(running, ALL))[0] == "UNAUTHENTICATED"
    assert infer(running, "another-token-0123456789") == [1]
    assert infer(running, ONE) == [1]


def test_a_change_that_keeps_size_and_time_is_seen(running: Running, file: pathlib.Path) -> None:
    before = file.stat()
    file.write_text(FILE.replace(ALL, ALL[::-1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert refusal(lambda: infer(running, ALL))[0] == "UNAUTHENTICATED"
    assert infer(running, ALL[::-1]) == [1]


def test_the_file_is_not_read_more_often_than_it_should(
    running: Running, file: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer(running, ALL)
    monkeypatch.setattr(tokens, "RECHECK_S", 3600)

    file.write_text("")

    assert infer(running, ALL) == [1]


@pytest.mark.parametrize("content", ["", "\n# none\n", "{}", "tokens:\n", "tokens: []\n"])
def test_an_emptied_file_lets_nobody_in(
    running: Running, file: pathlib.Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    assert infer(running, ALL) == [1]

    file.write_text(content)

    assert refusal(lambda: infer(running, ALL))[0] == "UNAUTHENTICATED"
    assert refusal(lambda: infer(running))[0] == "UNAUTHENTICATED"
    assert "tokens.yaml has no tokens, so nobody may call" in caplog.text
    file.write_text(FILE)
    assert infer(running, ALL) == [1]


@pytest.mark.parametrize("content", ["tokens: [", "tokens: [{name: all}]", "[1]", "\0", None])
def test_a_bad_new_file_keeps_the_old_tokens_and_is_told_once(
    running: Running, file: pathlib.Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    file.write_text(content) if content is not None else file.unlink()

    assert [infer(running, ALL), infer(running, ALL)] == [[1], [1]]
    assert refusal(lambda: infer(running, "wrong"))[0] == "UNAUTHENTICATED"
    assert caplog.text.count("The previous tokens stay valid") == 1
    file.write_text(FILE.replace(ALL, ALL[::-1]))
    assert infer(running, ALL[::-1]) == [1]


SECRET = "s3cret-0123456789abcdef"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(f"[{SECRET}", "tokens.yaml:1: can't be read as YAML; put tokens in quotes", id="no-yaml"),
        pytest.param(f"tokens:\n- name: a\n  token: !{SECRET} x", "tokens.yaml:3: can't be read as YAML", id="tag"),
        pytest.param(SECRET, "tokens.yaml:1: should be a mapping", id="only-text"),
        pytest.param(f"{SECRET}: x", "tokens.yaml:1: has an unknown key; known here: tokens", id="unknown-key"),
        pytest.param(f"tokens: {{{SECRET}: a}}", "tokens.yaml:1: tokens: should be a list", id="no-list"),
        pytest.param(
            f"tokens:\n- name: a\n  {SECRET}: x",
            "tokens.yaml:2: tokens[0]: has an unknown key; known here: name, token, sha256, models, admin",
            id="unknown-key-of-a-token",
        ),
        pytest.param(
            f"tokens:\n- token: {SECRET}", "tokens.yaml:2: tokens[0].name: is missing; add it", id="without-a-name"
        ),
        pytest.param(
            "tokens:\n- name: a", "tokens.yaml:2: tokens[0]: should have either token or sha256", id="without-a-token"
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: {SECRET}, sha256: {64 * 'a'}}}",
            "tokens.yaml:2: tokens[0]: should have either token or sha256",
            id="both",
        ),
        pytest.param(
            "tokens:\n- {name: a, token: short}",
            "tokens.yaml:2: tokens[0]: should have a token of 16 or more printable ASCII characters without spaces",
            id="too-short",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: '{SECRET} {SECRET}'}}",
            "tokens.yaml:2: tokens[0]: should have a token of 16 or more printable ASCII characters without spaces",
            id="spaces",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, sha256: {SECRET}}}",
            "tokens.yaml:2: tokens[0]: should have a sha256 of 64 hexadecimal digits",
            id="no-hash",
        ),
        pytest.param(
            "tokens:\n- {name: a, token: 12345678901234567890}",
            "tokens.yaml:2: tokens[0].token: should be a valid string",
            id="a-number",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: {SECRET}, admin: [everything]}}",
            "tokens.yaml:2: tokens[0].admin[0]: should be 'repository', 'shared_memory' or 'settings'",
            id="no-such-right",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: {SECRET}}}\n- {{name: b, token: {SECRET}}}",
            "tokens.yaml:3: tokens[1]: is the token of tokens[0] too; remove one",
            id="one-token-twice",
        ),
        pytest.param(
            f"tokens:\n- {{name: a, token: {SECRET}}}\n- {{name: a, token: {SECRET}2}}",
            "tokens.yaml:3: tokens[1].name: is the name of tokens[0] too; rename one",
            id="one-name-twice",
        ),
    ],
)
def test_faults_of_the_file_name_line_and_field_and_quote_no_secret(
    file: pathlib.Path, content: str, expected: str
) -> None:
    file.write_text(content)

    with pytest.raises(ConfigError) as caught:
        Tokens(file)

    assert str(caught.value).replace(f"{file.parent}/", "").startswith(expected)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_utf_8_is_refused(file: pathlib.Path) -> None:
    file.write_bytes(b"tokens: \xff")

    with pytest.raises(ConfigError, match="not UTF-8; save the file as UTF-8"):
        Tokens(file)


def test_a_missing_file_is_refused_with_its_line_at_start(
    file: pathlib.Path, start_fake: StartFake, tmp_path: pathlib.Path
) -> None:
    file.unlink()

    with pytest.raises(ConfigError) as caught:
        start_fake(server=f"auth: {{tokens_file: {file}}}")

    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "servable0.yaml:1: server.auth.tokens_file: there is no file tokens.yaml; correct the path"
    )


def test_a_token_may_come_from_the_environment(file: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_TOKEN", SECRET)
    file.write_text("tokens: [{name: ci, token: '${CI_TOKEN}'}]")

    assert Tokens(file).find(f"Bearer {SECRET}").name == "ci"


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, True)])
def test_a_file_that_others_can_read_is_warned_of(
    file: pathlib.Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    file.chmod(mode)

    Tokens(file)

    assert ("tokens.yaml; run `chmod o-rw` on it" in caplog.text) is warned


def test_no_log_line_quotes_a_token(running: Running, file: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    infer(running, ALL)
    for token in (f"{ALL}x", SECRET):
        refusal(lambda token=token: infer(running, token))
    refusal(lambda: infer(running, ONE, "other"))
    for content in (f"tokens: {SECRET}", f"{SECRET}: [", FILE.replace("name", SECRET), FILE + " "):
        file.write_text(content)
        infer(running, ALL)

    assert "Refused ModelInfer of ipv4:127.0.0.1:" in caplog.text
    assert "The previous tokens stay valid" in caplog.text
    for secret in (ALL, ONE, ADMIN, SECRET, hashlib.sha256(ONE.encode()).hexdigest()):
        assert secret not in caplog.text


def test_many_callers_at_once_are_told_apart_while_the_file_changes(running: Running, file: pathlib.Path) -> None:
    def outcome(number: int) -> bool:
        if number % 10 == 0:
            new = file.with_suffix(f".{number}")
            new.write_text(FILE + f"# {number}\n")
            new.replace(file)
        if number % 2:
            return infer(running, ALL) == [1]
        return refusal(lambda: infer(running, f"wrong-{number}"))[0] == "UNAUTHENTICATED"

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(outcome, range(200)))
