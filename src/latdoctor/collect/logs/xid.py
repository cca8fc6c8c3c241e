"""NVIDIA's Xid codes as data (`xid.yaml`): what a code says, and what NVIDIA advises for it in plain English."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from latdoctor.errors import DefinitionError, Problem
from latdoctor.yamlfile import Fields, Node, load, one_of

NEEDS = ("none", "application", "gpu", "node", "decide")
NO_ACTION = "NVIDIA names no action"

_FILE = Path(__file__).parent / "xid.yaml"


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of NVIDIA's resolution buckets: its name, the advice in plain words, and what must be restarted for it."""

    name: str
    does: str
    needs: str  # one of NEEDS


@dataclass(frozen=True, slots=True)
class XidCode:
    """One row of the catalogue. `action` is for at once, `follow_up` for finding the reason afterwards."""

    code: int
    means: str
    action: Bucket
    follow_up: Bucket
    secondary: bool  # the consequence of another fault, never the root where another Xid is near

    @property
    def fatal(self) -> bool:
        """The GPU (or its machine) must be reset or restarted before it serves again."""
        return self.action.needs in ("gpu", "node")


_NO_BUCKET = Bucket("", NO_ACTION, "none")


@cache
def catalogue() -> Mapping[int, XidCode]:
    """Every known code. Raises DefinitionError with all problems of the table."""
    problems: list[Problem] = []
    root = Fields(load(_FILE), problems, "the Xid table")
    buckets = {"": _NO_BUCKET, **{name: bucket(name, node, problems) for name, node in root.items("buckets")}}
    found: dict[int, XidCode] = {}
    support = buckets.get("CONTACT_SUPPORT", _NO_BUCKET)
    for text in root.texts("unused"):
        found[int(text)] = XidCode(int(text), "not used on current GPUs", support, _NO_BUCKET, False)
    for text, node in root.items("codes"):
        if int(text) in found:
            problems.append(Problem(node.where, f"the code {text} stands twice"))
        found[int(text)] = _code(int(text), Fields(node, problems, f"Xid {text}"), buckets)
    root.finish()
    if problems:
        raise DefinitionError(problems)
    return found


def lookup(code: int) -> XidCode:
    """The row of `code`; for a code that NVIDIA's catalogue does not hold, a row that says so."""
    unknown = XidCode(code, "a code that NVIDIA's catalogue does not hold", _NO_BUCKET, _NO_BUCKET, False)
    return catalogue().get(code, unknown)


def bucket(name: str, node: Node, problems: list[Problem]) -> Bucket:
    """A row of `buckets` in a table; what is wrong with it goes to `problems`."""
    fields = Fields(node, problems, f"bucket {name}")
    made = Bucket(name, fields.text("does", required=True), fields.choice("needs", NEEDS, "none", required=True))
    fields.finish()
    return made


def _code(code: int, fields: Fields, buckets: Mapping[str, Bucket]) -> XidCode:
    names = tuple(buckets)
    row = XidCode(
        code=code,
        means=fields.text("means", required=True),
        action=buckets[fields.scalar("action", lambda text: one_of(text, names), "")],
        follow_up=buckets[fields.scalar("follow_up", lambda text: one_of(text, names), "")],
        secondary=fields.flag("secondary"),
    )
    fields.finish()
    return row
