"""DCGM's health and diagnostic errors as data (`dcgm_errors.yaml`): what one says, and what is to be done for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from latdoctor.collect.logs.xid import NEEDS
from latdoctor.errors import DefinitionError, Problem
from latdoctor.yamlfile import Fields, Node, load, one_of

PREFIX = "DCGM_FR_"
_FILE = Path(__file__).parent / "dcgm_errors.yaml"


@dataclass(frozen=True, slots=True)
class Action:
    """What is done at once, what must be restarted for it, and what follows."""

    name: str
    does: str
    needs: str  # one of NEEDS
    follow_up: str


@dataclass(frozen=True, slots=True)
class DcgmError:
    """One row. `name` is without its prefix."""

    name: str
    means: str
    action: Action
    secondary: bool  # a consequence of another error, or a remark about the test


_NO_ACTION = Action("", "NVIDIA names no action", "none", "")


@cache
def errors() -> Mapping[str, DcgmError]:
    """Every known error by its name without the prefix. Raises DefinitionError with all problems of the table."""
    problems: list[Problem] = []
    root = Fields(load(_FILE), problems, "the table of DCGM errors")
    actions = {name: _action(name, node, problems) for name, node in root.items("actions")}
    found = {name: _error(name, Fields(node, problems, name), actions) for name, node in root.items("errors")}
    root.finish()
    if problems:
        raise DefinitionError(problems)
    return found


def lookup(name: str) -> DcgmError:
    """The row of `name`, with or without its prefix; for one that is not known, a row that says so."""
    bare = name.removeprefix(PREFIX)
    return errors().get(bare, DcgmError(bare, "an error that this version does not know", _NO_ACTION, False))


def _action(name: str, node: Node, problems: list[Problem]) -> Action:
    fields = Fields(node, problems, f"action {name}")
    made = Action(
        name,
        fields.text("does", required=True),
        fields.choice("needs", NEEDS, "none", required=True),
        fields.text("follow_up", required=True),
    )
    fields.finish()
    return made


def _error(name: str, fields: Fields, actions: Mapping[str, Action]) -> DcgmError:
    names = tuple(actions)
    action = fields.scalar("action", lambda text: one_of(text, names), "", required=True)
    made = DcgmError(
        name, fields.text("means", required=True), actions.get(action, _NO_ACTION), fields.flag("secondary")
    )
    fields.finish()
    return made
