"""A configuration from what people write: a YAML file of groups and knobs, and `group.knob=value` beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latdoctor import yamlfile
from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.lab.server.config import ServerConfig, knobs, patched


def configured(file: Path | None, settings: Sequence[str] = ()) -> ServerConfig:
    """The configuration in `file` with `settings` over it; what neither names has its default.

    Raises DefinitionError for the file, UsageError for a setting.
    """
    config = ServerConfig()
    if file is not None:
        texts = _texts(file)
        try:
            config = patched(config, texts, strict=False)
        except UsageError as error:
            raise DefinitionError([Problem(str(file), error.what)]) from error
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in dict(knobs()):
            raise UsageError(f"{setting!r} sets no knob", next_step="write GROUP.KNOB=VALUE, as queue.max_requests=500")
        group, _, knob = name.partition(".")
        written = value.split(",") if _is_list(config, group, knob) else value
        config = patched(config, {group: {knob: written}}, strict=False)
    return config


def _texts(file: Path) -> dict[str, dict[str, Any]]:
    """`{group: {knob: text or texts}}` of a file, with every unknown name reported at its line."""
    problems: list[Problem] = []
    known = dict(knobs())
    groups = {name.partition(".")[0] for name in known}
    root = yamlfile.load(file)
    found: dict[str, dict[str, Any]] = {}
    for group, node in _entries(root, problems):
        if group not in groups:
            problems.append(Problem(node.where, f"there is no group {group!r}; one of {', '.join(sorted(groups))}"))
            continue
        found[group] = {}
        for knob, value in _entries(node, problems):
            if f"{group}.{knob}" not in known:
                problems.append(Problem(value.where, f"there is no knob {group}.{knob}"))
            found[group][knob] = value.text if value.text is not None else _list(value, problems)
    if problems:
        raise DefinitionError(problems)
    return found


def _entries(node: yamlfile.Node, problems: list[Problem]) -> list[tuple[str, yamlfile.Node]]:
    if isinstance(node.value, dict):
        return list(node.value.items())
    problems.append(Problem(node.where, "here a mapping is needed"))
    return []


def _list(node: yamlfile.Node, problems: list[Problem]) -> list[str]:
    if isinstance(node.value, tuple) and all(item.text is not None for item in node.value):
        return [item.text or "" for item in node.value]
    problems.append(Problem(node.where, "here a value or a list of values is needed"))
    return []


def _is_list(config: ServerConfig, group: str, knob: str) -> bool:
    return isinstance(getattr(getattr(config, group), knob), tuple)
