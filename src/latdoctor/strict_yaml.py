"""Strict YAML: no aliases, no tags, no duplicate keys, bounded size and depth; every value knows its file and line.

Reading is apart from meaning: `load` gives a tree of Nodes, and `Fields` takes a mapping apart key by key while it
gathers every problem, so that one run reports all that is wrong in a set of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct

from latdoctor.errors import DefinitionError, Problem
from latdoctor.regular_file import read_regular

MAX_BYTES = 1 << 20
MAX_DEPTH = 24

# The parser in C where PyYAML was built with it: ten times as fast, and every start reads dozens of files.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SURROGATE = re.compile("[\ud800-\udfff]")
# Control characters but tab and line breaks; the marks that order bidirectional text.
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

T = TypeVar("T")


class Node(Struct, frozen=True, gc=False):
    """A YAML value with its place: a str (every scalar is kept as written), a list or a mapping of Nodes."""

    value: str | tuple[Node, ...] | dict[str, Node]
    file: str
    line: int = 0  # from 1; 0 where unknown

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def text(self) -> str | None:
        return self.value if isinstance(self.value, str) else None

    def plain(self, scalar: Callable[[str], object] = str) -> object:
        """The value as plain dicts and lists, with `scalar` applied to every scalar."""
        if isinstance(self.value, dict):
            return {key: child.plain(scalar) for key, child in self.value.items()}
        return [child.plain(scalar) for child in self.value] if isinstance(self.value, tuple) else scalar(self.value)


def load(path: Path) -> Node:
    """The document in `path`. Raises DefinitionError for anything that is not strict YAML in a regular file."""
    return parse(contents(path), str(path))


def contents(path: Path) -> bytes:
    """The bytes of `path`, one more than MAX_BYTES at most. Raises DefinitionError where it cannot be read."""
    try:
        return read_regular(path, MAX_BYTES)
    except OSError as error:
        raise DefinitionError([Problem(str(path), f"cannot be read: {error.strerror}")]) from error


def parse(raw: bytes, name: str) -> Node:
    """The document in `raw`, called `name` in messages. Raises DefinitionError."""
    if len(raw) > MAX_BYTES:
        raise DefinitionError([Problem(name, f"larger than {MAX_BYTES} bytes")])
    problems: list[Problem] = []
    try:
        loader = _LOADER(raw.decode("utf-8"))
        try:
            node = _document(loader.get_event, name, problems)
        finally:
            loader.dispose()
    except UnicodeDecodeError as error:
        raise DefinitionError([Problem(name, f"not UTF-8 at byte {error.start}")]) from error
    except yaml.MarkedYAMLError as error:
        raise DefinitionError(
            [Problem(f"{name}:{_line(error.problem_mark)}", f"not valid YAML: {error.problem}")]
        ) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The last two: PyYAML's Python scanner lets its own slip out, for "\\UFFFFFFFF" or an endless %YAML version.
        raise DefinitionError([Problem(name, f"not valid YAML: {error}")]) from error
    if problems:
        raise DefinitionError(problems)
    return node


def _line(mark: object) -> int:
    """The line of one of PyYAML's marks (it has two kinds, and None where it does not know)."""
    return int(getattr(mark, "line", 0)) + 1


def _check_characters(value: str, where: str, problems: list[Problem]) -> None:
    if not value.isascii() and _SURROGATE.search(value):
        problems.append(Problem(where, "holds half of a surrogate pair"))
    elif not value.isprintable() and _UNSAFE.search(value):
        problems.append(Problem(where, "holds a character that steers a terminal or turns text around"))


# The events of PyYAML are distinguished by type(): isinstance takes half of the time of reading.
_NextEvent = Callable[[], Any]


def _document(next_event: _NextEvent, name: str, problems: list[Problem]) -> Node:
    """The one document of the event stream, built in one pass: a bomb is refused before anything grows from it."""
    root: Node | None = None
    while type(event := next_event()) is not yaml.StreamEndEvent:
        if isinstance(event, yaml.NodeEvent):
            if root is not None:
                raise DefinitionError([Problem(f"{name}:{_line(event.start_mark)}", "a second document begins here")])
            root = _node(event, next_event, name, problems, MAX_DEPTH)
    if root is None:
        raise DefinitionError([Problem(name, "the file is empty")])
    return root


def _node(event: Any, next_event: _NextEvent, name: str, problems: list[Problem], depth: int) -> Node:
    """The value that begins with `event`; at most `depth` levels of lists and mappings may open."""
    kind = type(event)
    line = event.start_mark.line + 1
    if kind is yaml.AliasEvent or event.anchor:
        raise DefinitionError([Problem(f"{name}:{line}", "aliases and anchors are not allowed")])
    if event.tag:
        problems.append(Problem(f"{name}:{line}", "tags are not allowed"))
    if kind is yaml.ScalarEvent:
        if not (event.value.isascii() and event.value.isprintable()):
            _check_characters(event.value, f"{name}:{line}", problems)
        return Node(event.value, name, line)
    if depth == 0:
        raise DefinitionError([Problem(f"{name}:{line}", f"nested deeper than {MAX_DEPTH} levels")])
    if kind is yaml.MappingStartEvent:
        return Node(_mapping(next_event, name, problems, depth - 1), name, line)
    items = []
    while type(item := next_event()) is not yaml.SequenceEndEvent:
        items.append(_node(item, next_event, name, problems, depth - 1))
    return Node(tuple(items), name, line)


def _mapping(next_event: _NextEvent, name: str, problems: list[Problem], depth: int) -> dict[str, Node]:
    fields: dict[str, Node] = {}
    while type(event := next_event()) is not yaml.MappingEndEvent:
        key = _node(event, next_event, name, problems, depth)
        value = _node(next_event(), next_event, name, problems, depth)
        if not key.text:
            problems.append(Problem(key.where, "a key must be a plain word"))
        elif key.text in fields:
            problems.append(Problem(key.where, f"the key {key.text!r} stands twice"))
        else:
            fields[key.text] = value
    return fields


def definition(path: Path, what: str, problems: list[Problem]) -> tuple[Fields, bytes] | None:
    """The fields of the file that defines `what` ("an SOP"), with its bytes; None where it is no mapping at all.

    What is wrong is added to `problems`.
    """
    try:
        raw = contents(path)
        root = parse(raw, str(path))
    except DefinitionError as error:
        problems.extend(error.problems)
        return None
    if not isinstance(root.value, dict):
        problems.append(Problem(root.where, f"{what} is a mapping"))
        return None
    return Fields(root, problems, what.partition(" ")[2]), raw


def defined(folders: Iterable[Path], what: str, problems: list[Problem]) -> Iterator[Path]:
    """The files `<id>.yaml` of all `folders` ("of SOPs"), in their order; what is not read is added to `problems`."""
    for base in folders:
        if not base.is_dir():
            problems.append(Problem(str(base), f"is not a folder of {what}"))
        elif not os.access(base, os.R_OK | os.X_OK):
            problems.append(Problem(str(base), "cannot be read: Permission denied"))
        else:
            problems.extend(Problem(str(path), "is not read: call it <id>.yaml") for path in sorted(base.glob("*.yml")))
            yield from sorted(base.glob("*.yaml"))


def add(known: dict[str, T], name: str, value: T, where: str, problems: list[Problem]) -> None:
    """Puts `value` into `known`; that the id `name` is there already is a problem of `where`."""
    if name in known:
        problems.append(Problem(where, f"the id {name!r} is used twice"))
    known[name] = value


class Fields:
    """Takes a mapping apart. Wrong or missing values are added to `problems` and stand in as the default."""

    def __init__(self, node: Node, problems: list[Problem], what: str) -> None:
        self._what = what
        self.problems = problems
        self._taken: set[str] = set()
        self.where = node.where
        self._fields: dict[str, Node] = node.value if isinstance(node.value, dict) else {}
        if not isinstance(node.value, dict):
            self.problem(node.where, f"{what} must be a mapping")

    def problem(self, where: str, what: str) -> None:
        self.problems.append(Problem(where, what))

    def node(self, key: str, *, required: bool = False) -> Node | None:
        """The value of `key` as it stands, or None."""
        self._taken.add(key)
        found = self._fields.get(key)
        if found is None and required:
            self.problem(self.where, f"{self._what} lacks {key!r}")
        return found

    def scalar(self, key: str, convert: Callable[[str], T], default: T, *, required: bool = False) -> T:
        """The scalar `key` through `convert`, whose ValueError becomes a problem at the value's line."""
        found = self.node(key, required=required)
        if found is None:
            return default
        if found.text is None:
            self.problem(found.where, f"{key!r} must be a single value")
            return default
        try:
            return convert(found.text)
        except ValueError as error:
            self.problem(found.where, f"{key}: {error}")
            return default

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        return self.scalar(key, str, default, required=required)

    def choice(self, key: str, allowed: tuple[str, ...], default: str, *, required: bool = False) -> str:
        return self.scalar(key, lambda text: one_of(text, allowed), default, required=required)

    def flag(self, key: str) -> bool:
        return self.scalar(key, lambda text: one_of(text, ("true", "false")) == "true", False)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of scalars; empty where absent."""
        found = self.node(key)
        if found is None:
            return ()
        if not isinstance(found.value, tuple) or any(item.text is None for item in found.value):
            self.problem(found.where, f"{key!r} must be a list of single values")
            return ()
        return tuple(item.text or "" for item in found.value)

    def items(self, key: str) -> Iterator[tuple[str, Node]]:
        """The entries of the mapping `key`; none where absent."""
        found = self.node(key)
        if found is None:
            return
        if not isinstance(found.value, dict):
            self.problem(found.where, f"{key!r} must be a mapping")
            return
        yield from found.value.items()

    def must_be_named(self, name: str, path: Path) -> None:
        """Reports a file that is called otherwise than what it defines."""
        if name and name != path.stem:
            self.problem(self.where, f"the id {name!r} differs from the file's name")

    def finish(self) -> None:
        """Reports every unknown key."""
        for key, node in self._fields.items():
            if key not in self._taken:
                self.problem(node.where, f"{self._what} has an unknown key {key!r}")


def one_of(text: str, allowed: tuple[str, ...]) -> str:
    """`text` if it is among `allowed`. Raises ValueError naming them."""
    if text not in allowed:
        raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
    return text


_FAILED = object()
StructType = TypeVar("StructType", bound=msgspec.Struct)


class StructReader:
    """Converts nodes to msgspec Structs and adds every problem, with its line, to `problems`.

    A field is read by its type: Structs, tuples, mappings with text keys, enumerations and literals are built in, other
    scalars are converted by msgspec. `scalars` and `nodes` extend this by type: functions that convert a text (and may
    raise ValueError), or a whole node. A wrong item of a list or mapping is left out; a wrong field has its default.
    A field called `where` receives the place of its Struct. A Struct may have a method `check` that yields the problems
    of its fields in combination; it is called if no field is wrong.
    """

    def __init__(self, problems: list[Problem], *, renamed_keys: Mapping[str, str] | None = None) -> None:
        self.problems = problems
        self.scalars: dict[object, Callable[[str], object]] = {str: str}
        self.nodes: dict[object, Callable[[Node, str], object]] = {}
        self._renamed_keys = renamed_keys or {}

    def add(self, where: str, what: str) -> None:
        self.problems.append(Problem(where, what))

    def read(self, node: Node, kind: type[StructType], label: str) -> StructType | None:
        """The Struct in `node`, called `label` in messages; None if a field without default is missing or wrong."""
        if not isinstance(node.value, dict):
            self.add(node.where, f"{label} must be a mapping")
            return None
        return self.read_struct(node, kind, label)

    def read_struct(self, node: Node, kind: type[StructType], label: str) -> StructType | None:
        children = dict(self.entries(node, label))
        values: dict[str, Any] = {}
        failed: list[bool] = []  # of each wrong field: whether it has no default
        for field in msgspec.structs.fields(kind):
            child = children.pop(field.encode_name, None) if field.name != "where" else None
            if field.name == "where":
                values["where"] = node.where
            elif child is not None:
                values[field.name] = self._value(child, field.type, field.encode_name)
                if values[field.name] is _FAILED:
                    failed.append(field.required)
                    del values[field.name]
            elif field.required:
                self.add(node.where, f"{label} lacks {field.encode_name!r}")
                failed.append(True)
        for key, child in children.items():
            now = f": it is now called {self._renamed_keys[key]!r}" if key in self._renamed_keys else ""
            self.add(child.where, f"{label} has an unknown key {key!r}{now}")
        if any(failed):
            return None
        struct = kind(**values)
        if not failed:
            for problem in getattr(struct, "check", tuple)():
                self.add(node.where, problem)
        return struct

    def entries(self, node: Node, label: str) -> Iterator[tuple[str, Node]]:
        """The entries of a mapping; none, and a problem, for anything else."""
        if isinstance(node.value, dict):
            yield from node.value.items()
        else:
            self.add(node.where, f"{label!r} must be a mapping")

    def _value(self, node: Node, kind: Any, label: str) -> object:
        """The value of type `kind`, or _FAILED once its problem was added."""
        if get_origin(kind) is Annotated and get_origin(get_args(kind)[0]) is tuple:
            inner, *metas = get_args(kind)
            value = self._value(node, inner, label)
            if any(getattr(meta, "min_length", 0) for meta in metas) and node.value == ():
                self.add(node.where, f"{label!r} must not be empty")
            return value
        optional = get_args(kind)
        if get_origin(kind) in (UnionType, Union) and NoneType in optional:
            kind = reduce(or_, (one for one in optional if one is not NoneType))
        if kind in self.nodes:
            value = self.nodes[kind](node, label)
            return _FAILED if value is None else value
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.read(node, kind, label) or _FAILED
        if get_origin(kind) is tuple:
            return self._items(node, get_args(kind)[0], label)
        if isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
            found = {key: self._value(child, get_args(kind)[1], key) for key, child in self.entries(node, label)}
            return {key: value for key, value in found.items() if value is not _FAILED}
        return self._scalar(node, kind, label)

    def _items(self, node: Node, kind: Any, label: str) -> object:
        if not isinstance(node.value, tuple):
            self.add(node.where, f"{label!r} must be a list")
            return _FAILED
        texts = [item.text for item in node.value if item.text is not None]
        for text in dict.fromkeys(text for text in texts if texts.count(text) > 1):
            self.add(node.where, f"{label}: {text} is listed twice")
        values = (self._value(item, kind, label) for item in node.value)
        return tuple(value for value in values if value is not _FAILED)

    def _scalar(self, node: Node, kind: Any, label: str) -> object:
        if node.text is None:
            self.add(node.where, f"{label!r} must be a single value")
            return _FAILED
        try:
            if kind in self.scalars:
                return self.scalars[kind](node.text)
            if isinstance(kind, type) and issubclass(kind, Enum):
                return kind(one_of(node.text, tuple(member.value for member in kind)))
            if get_origin(kind) is Literal:
                return one_of(node.text, get_args(kind))
            return msgspec.convert(node.text, kind, strict=False)
        except ValueError as error:  # msgspec.ValidationError is one
            self.add(node.where, f"{label}: {error}")
            return _FAILED
