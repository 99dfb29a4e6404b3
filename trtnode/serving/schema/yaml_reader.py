"""Reads YAML into plain values that remember their lines, with environment variables filled in."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import yaml

Location = tuple[str | int, ...]
"""Keys and list positions from the root to a value."""

MAX_VALUES = 20_000
MAX_DEPTH = 32
LONGEST_NUMBER = 100
SYNTAX_ADVICE = "look at the indentation, quotes and brackets there and in the line before"
_VARIABLE = re.compile(r"\$(?P<literal>\$)\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")
_PLAIN_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_MERGE_TAG = "tag:yaml.org,2002:merge"


class YamlProblemError(Exception):
    """The text can't be read.

    Attributes:
        line: Where, from 1; None where YAML doesn't say.
        location: The value at fault, if it has a place in the tree.
    """

    def __init__(self, text: str, line: int | None, location: Location = ()) -> None:
        super().__init__(text)
        self.line = line
        self.location = location


class Expanded(str):
    """Text that held a variable. It has no type of its own yet: the key that it stands for decides."""

    __slots__ = ()

    def resolved(self) -> object:
        """The text read as a YAML scalar, so that ``8001`` is a number and nothing is null."""
        loader: Any = yaml.SafeLoader("")
        node = yaml.ScalarNode(loader.resolve(yaml.ScalarNode, str(self), (True, False)), str(self))
        return loader.construct_object(node)


@dataclasses.dataclass(frozen=True, slots=True)
class YamlTree:
    """A document.

    Attributes:
        value: Its mappings, lists and scalars.
        lines: Line of each value, from 1, by location; of the key where it has one.
    """

    value: object
    lines: Mapping[Location, int]


def read_yaml(text: str, environment: Mapping[str, str]) -> YamlTree:
    """Read one document.

    ``${NAME}`` and ``${NAME:-default}`` in values are replaced from ``environment``; the default stands in for a
    variable that is not set or empty; ``$${`` writes ``${``. Keys are taken as they are.

    Raises:
        YamlProblemError: No YAML, a repeated key, a tag or merge key, a variable that is not set, or a document that
            grows beyond any sensible size through its aliases.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise YamlProblemError(f"not valid YAML: {error.problem}; {SYNTAX_ADVICE}", line) from None
    except yaml.YAMLError as error:
        raise YamlProblemError(f"not valid YAML: {' '.join(str(error).split())}; take it out", None) from None
    except RecursionError:
        raise YamlProblemError(f"nested more than {MAX_DEPTH} levels deep", None) from None
    if root is None:
        return YamlTree(None, {})
    reader = _Reader(environment)
    return YamlTree(reader.read(root, ()), reader.lines)


class _Reader:
    """Turns composed nodes into values. An alias is read again at each place it stands in, hence the limits."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.lines: dict[Location, int] = {}
        self._environment = environment
        self._count = 0
        self._scalars = yaml.SafeLoader("")

    def read(self, node: yaml.Node, location: Location) -> object:
        self._check_size(node, location)
        self.lines.setdefault(location, _line(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        if node.tag not in _PLAIN_TAGS:
            raise YamlProblemError(f"the tag {node.tag!r} is not supported; leave it out", _line(node), location)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*location, index)) for index, item in enumerate(node.value)]
        return self._mapping(node, location)

    def _mapping(self, node: yaml.Node, location: Location) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, location)
            place = (*location, key)
            if key in result:
                first = self.lines[place]
                raise YamlProblemError(f"set twice, first in line {first}; remove one", _line(key_node), place)
            self.lines[place] = _line(key_node)
            result[key] = self.read(value_node, place)
        return result

    def _key(self, node: yaml.Node, location: Location) -> str:
        if node.tag == _MERGE_TAG:
            raise YamlProblemError("merge keys (<<) are not supported; write the keys out", _line(node), location)
        key = self._construct(node, location) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(key, str):
            raise YamlProblemError("a key is not text; use the name of a setting", _line(node), location)
        return key

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> object:
        if "${" not in node.value:
            return self._construct(node, location)
        return Expanded(_VARIABLE.sub(lambda match: self._variable(match, node, location), node.value))

    def _variable(self, match: re.Match[str], node: yaml.Node, location: Location) -> str:
        if match["literal"]:
            return "${"
        if match["name"] is None:
            text = "has '${' without a variable; write ${NAME}, ${NAME:-default}, or $${ for the characters themselves"
            raise YamlProblemError(text, _line(node), location)
        value = self._environment.get(match["name"], "") or match["default"]
        if value is None and match["name"] not in self._environment:
            text = f"the environment variable {match['name']} is not set; set it or write ${{{match['name']}:-default}}"
            raise YamlProblemError(text, _line(node), location)
        return value or ""

    def _construct(self, node: yaml.ScalarNode, location: Location) -> object:
        try:
            return self._scalars.construct_object(node)
        except yaml.constructor.ConstructorError as error:
            raise YamlProblemError(f"{error.problem}; leave the tag out", _line(node), location) from None
        except ValueError as error:
            problem = f"{node.value!r} is not valid: {error}"
            if len(node.value) > LONGEST_NUMBER:
                problem = f"a number of {len(node.value)} digits is too large; write a smaller one"
            raise YamlProblemError(problem, _line(node), location) from None

    def _check_size(self, node: yaml.Node, location: Location) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise YamlProblemError(f"more than {MAX_VALUES} values; write fewer aliases (*name)", _line(node))
        if len(location) > MAX_DEPTH:
            raise YamlProblemError(f"nested more than {MAX_DEPTH} levels deep", _line(node))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
