"""A saved plan beside the one that its playbook and parameters give now: an edited file differs in some field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from latdoctor.remediation.parameters import format_parameter, referenced_parameter
from latdoctor.remediation.planner import Plan, StagePlan
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_library import Library
from latdoctor.sanitize import clean

_LATER = ("made_at", "moment")  # a plan that is made again is made later
_MAX_VALUE = 60  # characters


def saved_settings(plan: Plan, playbook: Playbook, library: Library) -> dict[str, str]:
    """The parameters of `playbook` (`--set`) behind a saved plan; what is not its own is kept, and refused later."""
    if not playbook.stages:
        return _settings(plan.stages[0], playbook) if plan.stages else {}
    found: dict[str, str] = {}
    for saved, (stage, other) in zip(plan.stages, library.stages(playbook), strict=False):
        values = _settings(saved, other)
        for name, text in stage.arguments.items():
            parameter = referenced_parameter(text)
            if parameter and name in values:
                found[parameter] = values[name]
    return found


def _settings(stage: StagePlan, playbook: Playbook) -> dict[str, str]:
    known = {parameter.name: parameter for parameter in playbook.parameters}
    return {
        name: format_parameter(known[name], value) if name in known else str(value)
        for name, value in stage.parameters.items()
    }


def modified_resource(saved: Plan, fresh: Plan) -> str:
    """The first resource whose version has changed since the plan was saved; empty without one."""
    now = {change.resource: change.version for change in fresh.changes}
    return next((one.resource for one in saved.changes if one.version != now.get(one.resource, one.version)), "")


def differences(saved: Plan, fresh: Plan) -> list[str]:
    """Each field in which the plans differ, with both values: `target.admin: a in the file, b now`."""
    return list(_differences("", msgspec.to_builtins(saved), msgspec.to_builtins(fresh)))


def _differences(place: str, saved: Any, fresh: Any) -> Iterator[str]:
    if isinstance(saved, dict) and isinstance(fresh, dict):
        for name in dict.fromkeys((*fresh, *saved)):
            if place or name not in _LATER:
                inner = f"{place}.{name}" if place else name
                yield from _differences(inner, saved.get(name), fresh.get(name))
    elif isinstance(saved, tuple) and isinstance(fresh, tuple) and len(saved) == len(fresh):
        for number, pair in enumerate(zip(saved, fresh, strict=True)):
            yield from _differences(f"{place}[{number}]", *pair)
    elif msgspec.json.encode(saved) != msgspec.json.encode(fresh):  # so that 1 is not true
        yield f"{place}: {_shown(saved)} in the file, {_shown(fresh)} now"


def _shown(value: Any) -> str:
    if isinstance(value, tuple | Mapping):
        return f"{len(value)} entries"
    return clean(value if isinstance(value, str) else msgspec.json.encode(value).decode(), _MAX_VALUE)
