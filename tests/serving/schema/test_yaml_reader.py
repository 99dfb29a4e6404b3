from __future__ import annotations

import pytest

from trtnode.serving.schema.yaml_reader import YamlProblemError, read_yaml


def test_values_remember_the_lines_of_their_keys() -> None:
    tree = read_yaml("a:\n  b: [1,\n    2]\n  c:\n  - x: 1\n", {})

    assert tree.value == {"a": {"b": [1, 2], "c": [{"x": 1}]}}
    assert tree.lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "b", 0): 2,
        ("a", "b", 1): 3,
        ("a", "c"): 4,
        ("a", "c", 0): 5,
        ("a", "c", 0, "x"): 5,
    }


def test_an_alias_stands_for_its_value() -> None:
    assert read_yaml("a: &v {x: 1}\nb: *v", {}).value == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("${A}", "one", id="set"),
        pytest.param("x-${A}-${B}", "x-one-two", id="several-in-one-value"),
        pytest.param("${C:-three}", "three", id="default"),
        pytest.param("${A:-three}", "one", id="set-wins-over-default"),
        pytest.param("${EMPTY:-three}", "three", id="empty-takes-the-default"),
        pytest.param("${EMPTY}", "", id="empty-without-default"),
        pytest.param("${C:-}", "", id="empty-default"),
        pytest.param("$${A}", "${A}", id="escaped"),
        pytest.param("$A $ {A}", "$A $ {A}", id="other-dollars-are-text"),
    ],
)
def test_variables_are_filled_in(text: str, expected: str) -> None:
    environment = {"A": "one", "B": "two", "EMPTY": ""}

    assert read_yaml(f"'{text}'", environment).value == expected


def test_variables_in_keys_are_text() -> None:
    assert read_yaml("'${A}': 1", {"A": "b"}).value == {"${A}": 1}


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        pytest.param("a: [", 1, "not valid YAML: expected the node content", id="syntax"),
        pytest.param("a: 1\nb: 2\na: 3", 3, "set twice, first in line 1; remove one", id="repeated-key"),
        pytest.param("a: 1\n---\nb: 1", 2, "not valid YAML: but found another document", id="two-documents"),
        pytest.param("a: *b", 1, "not valid YAML: found undefined alias", id="unknown-alias"),
        pytest.param("a:\n\t- 1", 2, "not valid YAML: found character", id="tab"),
        pytest.param("a: \x00", None, "not valid YAML: unacceptable character #x0000", id="control-character"),
        pytest.param("a: !!python/name:os.system x", 1, "could not determine a constructor", id="python-tag"),
        pytest.param("a: !mine {x: 1}", 1, "the tag '!mine' is not supported", id="tag-on-a-mapping"),
        pytest.param("a: {<<: {b: 1}}", 1, "merge keys (<<) are not supported", id="merge-key"),
        pytest.param("1: a", 1, "a key is not text", id="number-as-key"),
        pytest.param("? [a]\n: b", 1, "a key is not text", id="list-as-key"),
        pytest.param("a: 2024-13-01", 1, "'2024-13-01' is not valid", id="impossible-date"),
        pytest.param("x: 1\na: ${NONE}", 2, "the environment variable NONE is not set", id="variable-not-set"),
        pytest.param("a: ${1x}", 1, "has '${' without a variable", id="malformed-variable"),
        pytest.param("a: &a [*a]", 1, "nested more than 32 levels deep", id="alias-of-itself"),
        pytest.param("[" * 1200, None, "nested more than 32 levels deep", id="deep-nesting"),
    ],
)
def test_faults_name_their_line(text: str, line: int | None, expected: str) -> None:
    with pytest.raises(YamlProblemError) as caught:
        read_yaml(text, {})

    assert expected in str(caught.value)
    assert caught.value.line == line


def test_aliases_that_multiply_are_refused_quickly() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]

    with pytest.raises(YamlProblemError, match="more than 20000 values; write fewer aliases"):
        read_yaml("\n".join(["a0: &a0 x", *levels]), {})


def test_a_wrong_indentation_says_where_to_look() -> None:
    with pytest.raises(YamlProblemError, match="; look at the indentation, quotes and brackets there") as caught:
        read_yaml("models:\n  - name: m\n   path: model.onnx\n", {})

    assert caught.value.line == 3
