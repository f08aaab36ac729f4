"""YAML as plain values that know their line: the YAML 1.2 core schema, no anchors, no repeated keys.

Import it where a file is read: PyYAML costs 15 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tensor_cast.errors import ModelingError

SIZE_LIMIT = 2**20
"""Bytes of the largest file that is read; the longest packaged family has 20 thousand."""

_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
# YAML 1.1, which PyYAML reads, takes 1.6e12 without a sign in the exponent for text; YAML 1.2 (10.3.2) does not.
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# What PyYAML resolves untagged values to.
_TAGS = {"map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value"}
_WORDS: dict[str, object] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
    ".nan": float("nan"),
    ".inf": float("inf"),
    "-.inf": float("-inf"),
}


@dataclass(frozen=True)
class YamlDocument:
    """The values of one file, and the line (from 1) of each by its path, ``$.interconnect[0].bandwidth``."""

    path: Path
    value: object
    lines: dict[str, int]

    def place(self, path: str) -> str:
        """``file:line`` of a path, or of the nearest one around it that the file has."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["))] if path != "$" else ""
        return f"{self.path}:{self.lines.get(path, 1)}"

    def lookup(self, path: str) -> object:
        """The value at a path that the file has."""
        value = self.value
        for step in re.split(r"[.\[]", path)[1:]:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list):
                value = value[int(step.rstrip("]"))]
        return value


def read_yaml(path: Path) -> YamlDocument:
    """Read a file of one YAML document.

    Raises:
        ModelingError: it cannot be read, is too long, or is no such document; syntax errors carry their line.
    """
    text = _read_text(path)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ModelingError(f"{path}:{line}: this is not YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", "a character that YAML does not allow")
        raise ModelingError(f"{path}: this is not YAML: {reason}.") from None
    except RecursionError:
        raise ModelingError(f"{path}: the values are nested too deeply; a device profile has four levels.") from None
    if root is None:
        raise ModelingError(f"{path}: the file is empty; write a device profile, see docs/devices.md.")
    lines: dict[str, int] = {}
    seen: set[int] = set()
    return YamlDocument(path, _value(path, root, "$", lines, seen), lines)


def _read_text(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > SIZE_LIMIT:
            raise ModelingError(
                f"{path} has {size / 1e6:.1f} MB; a device file has at most {SIZE_LIMIT / 1e6:.1f} MB, "
                "so this is another kind of file."
            )
        with path.open("rb") as file:
            # A pipe or a growing file has no honest size before it is read.
            content = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise ModelingError(f"Cannot read the device file {path}: {error.strerror}.") from None
    if len(content) > SIZE_LIMIT:
        raise ModelingError(f"{path} is longer than {SIZE_LIMIT / 1e6:.1f} MB, so it is no device file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ModelingError(f"{path}:{line}: a device file is UTF-8 text; this line is not.") from None


def _value(path: Path, node: Node, at: str, lines: dict[str, int], seen: set[int]) -> object:
    line = node.start_mark.line + 1
    lines.setdefault(at, line)
    if id(node) in seen:
        raise ModelingError(
            f"{path}:{line}: {at[2:]}: anchors and aliases are not read; write the values out, or under `defaults`."
        )
    seen.add(id(node))
    if node.tag.removeprefix("tag:yaml.org,2002:") not in _TAGS:
        raise ModelingError(f"{path}:{line}: the tag {node.tag} is not read; write a plain value.")
    if isinstance(node, ScalarNode):
        return _scalar(node)
    if isinstance(node, SequenceNode):
        return [_value(path, item, f"{at}[{index}]", lines, seen) for index, item in enumerate(node.value)]
    assert isinstance(node, MappingNode)
    return {key: _value(path, child, f"{at}.{key}", lines, seen) for key, child in _items(path, node, at, lines)}


def _items(path: Path, node: MappingNode, at: str, lines: dict[str, int]) -> Iterator[tuple[str, Node]]:
    keys: set[str] = set()
    for key_node, child in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, ScalarNode):
            raise ModelingError(f"{path}:{line}: a key is a word, not a list or a mapping.")
        key = key_node.value
        if key in keys:
            raise ModelingError(f"{path}:{line}: {key} is given twice here; keep one.")
        keys.add(key)
        lines[f"{at}.{key}"] = line
        yield key, child


def _scalar(node: ScalarNode) -> object:
    text: str = node.value
    if node.style in ('"', "'", "|", ">"):
        return text
    if text.casefold() in _WORDS:
        return _WORDS[text.casefold()]
    if _INTEGER.fullmatch(text):
        # int() of thousands of digits raises; as a float it becomes infinite and is refused with its path.
        return int(text) if len(text) < 100 else float(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
