"""Folders of playbooks, `<id>.yaml` each, read into one library: all problems of all files at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path

from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.packaged import folder
from latdoctor.remedy import parameters, playbook_file
from latdoctor.remedy.playbook import DISRUPTIONS, RISKS, Playbook, StageOf
from latdoctor.text import clean
from latdoctor.yamlfile import add, defined


@dataclass(frozen=True)
class Library:
    """Every playbook there is, in the order of their ids. The stages that one names are in it."""

    playbooks: tuple[Playbook, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Playbook]:
        return {playbook.id: playbook for playbook in self.playbooks}

    def find(self, name: str) -> Playbook:
        """The playbook called `name`. Raises UsageError with near names."""
        if name not in self.by_id:
            near = get_close_matches(name, self.by_id, n=3, cutoff=0.4)
            hint = f"did you mean {', '.join(near)}?" if near else "latdoctor playbooks list shows all of them"
            raise UsageError(f"there is no playbook {clean(name, 80)!r}", next_step=hint)
        return self.by_id[name]

    def stages(self, playbook: Playbook) -> tuple[tuple[StageOf, Playbook], ...]:
        """The stages of `playbook`, each with the playbook that it is; none where it has steps of its own."""
        return tuple((stage, self.by_id[stage.playbook]) for stage in playbook.stages)

    def addressing(self, cause: str) -> tuple[Playbook, ...]:
        """The playbooks that mend `cause`: the ones of least risk first."""
        found = [playbook for playbook in self.playbooks if cause in playbook.addresses]
        return tuple(sorted(found, key=lambda one: (RISKS.index(one.risk), DISRUPTIONS.index(one.disruption), one.id)))


@cache
def shipped() -> Library:
    """The playbooks that come with latdoctor."""
    return read([folder("playbooks")])


def read(folders: Iterable[Path]) -> Library:
    """The playbooks of all `folders` together. Raises DefinitionError with every problem of every file."""
    problems: list[Problem] = []
    found: dict[str, Playbook] = {}
    for path in defined(folders, "playbooks", problems):
        playbook = playbook_file.read(path, problems)
        if playbook is not None:
            add(found, playbook.id, playbook, playbook.where, problems)
    for playbook in found.values():
        _check_stages(playbook, found, problems)
    if problems:
        raise DefinitionError(problems, next_step="see docs/contributing.md for the format of playbooks")
    return Library(tuple(_with_stages(found[name], found) for name in sorted(found)))


def _with_stages(playbook: Playbook, found: Mapping[str, Playbook]) -> Playbook:
    """With a digest that changes when one of its stages does."""
    if not playbook.stages:
        return playbook
    digests = [playbook.digest, *(found[stage.playbook].digest for stage in playbook.stages)]
    return replace(playbook, digest=hashlib.sha256("\n".join(digests).encode()).hexdigest())


def _check_stages(playbook: Playbook, found: Mapping[str, Playbook], problems: list[Problem]) -> None:
    for stage in playbook.stages:
        other = found.get(stage.playbook)
        if other is None:
            near = get_close_matches(stage.playbook, found, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            problems.append(Problem(stage.where, f"there is no playbook {stage.playbook!r}{hint}"))
        elif other.stages:
            problems.append(Problem(stage.where, f"{other.id} has stages itself: there is one level of them"))
        else:
            problems.extend(Problem(stage.where, what) for what in _misfits(playbook, stage, other))


def _misfits(playbook: Playbook, stage: StageOf, other: Playbook) -> Iterable[str]:
    """What does not go together of a playbook and one of its stages."""
    lacking = sorted(set(playbook.targets) - set(other.targets))
    if lacking:
        yield f"{other.id} is not for {', '.join(lacking)}"
    for what, order in (("risk", RISKS), ("disruption", DISRUPTIONS)):
        mine, theirs = getattr(playbook, what), getattr(other, what)
        if order.index(theirs) > order.index(mine):
            yield f"{other.id} has the {what} {theirs}, and the whole only {mine}"
    known = {parameter.name: parameter for parameter in other.parameters}
    mine_by_name = {parameter.name: parameter for parameter in playbook.parameters}
    for name, text in stage.given.items():
        own = mine_by_name.get(parameters.named(text) or "")
        if name not in known:
            yield f"{other.id} has no parameter {name!r}"
        elif own is not None:
            wider = (own.type, own.choices) != (known[name].type, known[name].choices)
            wider = wider or (own.minimum, own.maximum) != (known[name].minimum, known[name].maximum)
            if wider:
                yield f"{own.name} is {parameters.allowed(own)}, {name} of {other.id} {parameters.allowed(known[name])}"
        elif parameters.named(text) is None:
            try:
                parameters.value_of(known[name], text)
            except ValueError as error:
                yield f"{other.id}: {name}: {error}"
