"""Strict YAML: what is refused and where; every problem of a file is reported."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from latdoctor import strict_yaml
from latdoctor.errors import DefinitionError, Problem
from latdoctor.strict_yaml import MAX_BYTES, MAX_DEPTH, Fields, Node, load, parse

# The parser in C, and the one in Python that stands in where PyYAML was built without it.
LOADERS = [loader for loader in (getattr(yaml, "CSafeLoader", None), yaml.SafeLoader) if loader is not None]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def _each_loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_yaml, "_LOADER", request.param)


def plain(node: Node) -> object:
    """The tree as strings, lists and mappings, without the places."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, tuple):
        return [plain(child) for child in node.value]
    return node.value


def problems_of(raw: bytes) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        parse(raw, "r.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.usefixtures("_each_loader")
def test_scalars_are_kept_as_written_with_their_lines() -> None:
    root = parse(b"on: yes\nlist:\n- 1.0\n- '007'\nnested: {empty: , quoted: \"a: b\"}\n", "r.yaml")
    assert plain(root) == {"on": "yes", "list": ["1.0", "007"], "nested": {"empty": "", "quoted": "a: b"}}
    assert isinstance(root.value, dict)
    assert {key: node.where for key, node in root.value.items()} == {
        "on": "r.yaml:1",
        "list": "r.yaml:3",
        "nested": "r.yaml:5",
    }


@pytest.mark.usefixtures("_each_loader")
@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"a: &x 1\nb: *x\n", "r.yaml:1: aliases and anchors are not allowed"),
        (b"a: 1\nb: *x\n", "r.yaml:2: aliases and anchors are not allowed"),
        (b"a: 1\nb: !!python/name:os.system x\n", "r.yaml:2: tags are not allowed"),
        (b"a: 1\nb: 2\na: 3\n", "r.yaml:3: the key 'a' stands twice"),
        (b"x:\n  [a]: 1\n", "r.yaml:2: a key must be a plain word"),
        (b"'': 1\n", "r.yaml:1: a key must be a plain word"),
        (b"a: 1\n---\nb: 2\n", "r.yaml:3: a second document begins here"),
        (b"", "r.yaml: the file is empty"),
        (b"# only a comment\n", "r.yaml: the file is empty"),
        (b"a: 1\nb: \xff\n", "r.yaml: not UTF-8 at byte 8"),
        (b"\n" + b"[" * (MAX_DEPTH + 1), f"r.yaml:2: nested deeper than {MAX_DEPTH} levels"),
        (b"a" * (MAX_BYTES + 1), f"r.yaml: larger than {MAX_BYTES} bytes"),
    ],
)
def test_refused_with_file_and_line(raw: bytes, problem: str) -> None:
    assert problems_of(raw) == [problem]


@pytest.mark.usefixtures("_each_loader")
@pytest.mark.parametrize(
    "raw",
    [
        b"a: [1",
        b"a: 'open",
        b"a: b: c",
        b"\ta: 1",
        b"a: \x00",
        b'"\\UFFFFFFFF"',
        b"%YAML " + b"9" * 5000 + b".1\n--- a",
        b"!<%ff> a",
    ],
)
def test_broken_yaml_is_a_problem_of_the_file(raw: bytes) -> None:
    (problem,) = problems_of(raw)
    assert problem.startswith("r.yaml")
    assert "not valid YAML" in problem


@pytest.mark.usefixtures("_each_loader")
def test_half_a_surrogate_pair_is_refused() -> None:
    (problem,) = problems_of(b'a: "\\uD800"')
    assert problem.startswith("r.yaml:1")


@pytest.mark.usefixtures("_each_loader")
@pytest.mark.parametrize("escape", ["\\e[31m", "\\x00", "\\x9b2J", "\\u202e", "\\u2066"])
def test_what_steers_a_terminal_is_refused(escape: str) -> None:
    (problem,) = problems_of(f'a: "x{escape}y"'.encode())
    assert problem.startswith("r.yaml:1")
    assert "steers a terminal" in problem
    assert "\x1b" not in problem


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.yaml")
    with pytest.raises(DefinitionError, match="is a pipe"):
        load(tmp_path / "r.yaml")


@pytest.mark.usefixtures("_each_loader")
def test_depth_at_the_limit_is_read() -> None:
    root = parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "r.yaml")
    assert isinstance(root.value, tuple)


@pytest.mark.usefixtures("_each_loader")
def test_every_problem_of_a_file_is_reported() -> None:
    assert problems_of(b"a: 1\na: 2\nb: !t 3\n[k]: 4\nc: {d: 1, d: 2}\n") == [
        "r.yaml:2: the key 'a' stands twice",
        "r.yaml:3: tags are not allowed",
        "r.yaml:4: a key must be a plain word",
        "r.yaml:5: the key 'd' stands twice",
    ]


class Endless:
    """Counts how many events are taken from a document that never ends."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, _text: str) -> Endless:
        return self

    def dispose(self) -> None: ...

    def get_event(self) -> yaml.Event:
        self.taken += 1
        mark = yaml.Mark("", 0, 0, 0, None, None)
        return yaml.SequenceStartEvent(None, None, True, mark, mark)


def test_a_bomb_is_refused_before_it_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless()
    monkeypatch.setattr(strict_yaml, "_LOADER", endless)
    assert problems_of(b"x") == [f"r.yaml:1: nested deeper than {MAX_DEPTH} levels"]
    assert endless.taken == MAX_DEPTH + 1


def test_a_huge_file_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it whole would need a tebibyte
    with pytest.raises(DefinitionError, match="larger than"):
        strict_yaml.load(path)


def test_a_missing_file_is_a_problem_too(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"absent\.yaml: cannot be read: No such file"):
        strict_yaml.load(tmp_path / "absent.yaml")


YAML_LIKE = st.lists(
    st.sampled_from(
        [*"[]{},:-?!&*|>%@'\"#\\ \n\t", "a", "9", "- ", ": ", "---", "...", "\\U", "\\u", "!!", "é", "\x85", "\u2028"]
    )
).map("".join)


@pytest.mark.parametrize("loader", LOADERS)
@given(raw=st.one_of(st.binary(), YAML_LIKE.map(str.encode)))
@example(raw=b'"\\U99999999')
@example(raw=b"? ? ? a")
def test_any_bytes_give_a_node_or_a_definition_error(loader: type[yaml.SafeLoader], raw: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_yaml, "_LOADER", loader)
        problems: tuple[Problem, ...] | None = None
        try:
            json.dumps(plain(parse(raw, "r.yaml")), ensure_ascii=False).encode("utf-8")
        except DefinitionError as error:
            problems = error.problems
    assert problems != ()
    assert all(problem.where.startswith("r.yaml") for problem in problems or ())


WORDS = st.text(alphabet=string.printable.rstrip("\x0b\x0c") + "äöü€", min_size=1, max_size=12)
TREES = st.recursive(
    WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("loader", LOADERS)
@given(tree=TREES)
def test_what_is_dumped_is_read_back(loader: type[yaml.SafeLoader], tree: object) -> None:
    raw = yaml.safe_dump(tree, allow_unicode=True, default_style='"').encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_yaml, "_LOADER", loader)
        assert plain(parse(raw, "r.yaml")) == tree


def fields(raw: bytes) -> tuple[Fields, list[Problem]]:
    problems: list[Problem] = []
    return Fields(parse(raw, "r.yaml"), problems, "row"), problems


def test_fields_of_every_kind() -> None:
    row, problems = fields(b"n: 3\nname: x\nkind: b\non: true\nlist: [p, q]\nmap: {k: v}\n")
    assert row.scalar("n", int, 0, required=True) == 3
    assert row.text("name") == "x"
    assert row.choice("kind", ("a", "b"), "a") == "b"
    assert row.flag("on") is True
    assert row.texts("list") == ("p", "q")
    assert [(key, node.text) for key, node in row.items("map")] == [("k", "v")]
    row.finish()
    assert problems == []


def test_absent_fields_stand_in_as_their_defaults() -> None:
    row, problems = fields(b"other: 1\n")
    assert row.scalar("n", int, 7) == 7
    assert row.text("name", "none") == "none"
    assert row.choice("kind", ("a", "b"), "a") == "a"
    assert row.flag("on") is False
    assert row.texts("list") == ()
    assert list(row.items("map")) == []
    assert row.node("other") is not None
    row.finish()
    assert problems == []


def test_every_wrong_field_is_reported_at_its_line() -> None:
    row, problems = fields(b"n: three\nname: [x]\nkind: c\non: yes\nlist: [p, [q]]\nmap: 1\nnobody: 1\n")
    assert row.scalar("n", int, 7) == 7
    assert row.text("name", "none") == "none"
    assert row.choice("kind", ("a", "b"), "a") == "a"
    assert row.flag("on") is False
    assert row.texts("list") == ()
    assert list(row.items("map")) == []
    row.text("must", required=True)
    row.finish()
    assert [str(problem) for problem in problems] == [
        "r.yaml:1: n: invalid literal for int() with base 10: 'three'",
        "r.yaml:2: 'name' must be a single value",
        "r.yaml:3: kind: 'c' is not one of a, b",
        "r.yaml:4: on: 'yes' is not one of true, false",
        "r.yaml:5: 'list' must be a list of single values",
        "r.yaml:6: 'map' must be a mapping",
        "r.yaml:1: row lacks 'must'",
        "r.yaml:7: row has an unknown key 'nobody'",
    ]


@pytest.mark.parametrize("raw", [b"just text", b"[a, list]"])
def test_what_is_no_mapping_is_one_problem(raw: bytes) -> None:
    row, problems = fields(raw)
    row.finish()
    assert [str(problem) for problem in problems] == ["r.yaml:1: row must be a mapping"]
