"""The set of all playbooks: search by id and by cause, and the checks of references between files."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path

from msgspec.structs import replace

from latdoctor.conditions.ast import signals_of
from latdoctor.errors import DefinitionError, Problem, UsageError
from latdoctor.remediation.parameters import allowed_values, parse_value, referenced_parameter
from latdoctor.remediation.playbook import Disruption, Playbook, Risk, Stage, Step, Treatment
from latdoctor.remediation.playbook_loader import read_playbook
from latdoctor.resources import folder
from latdoctor.sanitize import clean
from latdoctor.strict_yaml import add, defined

# Signals that improve with less load, whatever is changed. A playbook needs another proof that it removed the cause.
SYMPTOM_SIGNALS = (
    "latency",
    "router.latency",
    "client.",
    "queue.",
    "error.",
    "arrival.",
    "router.arrival",
    "completion.",
)


@dataclass(frozen=True)
class Library:
    """All playbooks in the order of their ids, including the stages of each."""

    playbooks: tuple[Playbook, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Playbook]:
        return {playbook.id: playbook for playbook in self.playbooks}

    def find(self, name: str) -> Playbook:
        """The playbook with the id `name`. Raises UsageError with similar ids."""
        if name not in self.by_id:
            near = get_close_matches(name, self.by_id, n=3, cutoff=0.4)
            hint = f"did you mean {', '.join(near)}?" if near else "latdoctor playbooks list"
            raise UsageError(f"unknown playbook {clean(name, 80)!r}", next_step=hint)
        return self.by_id[name]

    def stages(self, playbook: Playbook) -> tuple[tuple[Stage, Playbook], ...]:
        """The stages of `playbook`, each with its playbook; none for a playbook with steps."""
        return tuple((stage, self.by_id[stage.playbook]) for stage in playbook.stages)

    def addressing(self, cause: str) -> tuple[Playbook, ...]:
        """The playbooks that address `cause`, those with the lowest risk first."""
        risks, disruptions = list(Risk), list(Disruption)
        found = [playbook for playbook in self.playbooks if cause in playbook.addresses]
        return tuple(sorted(found, key=lambda one: (risks.index(one.risk), disruptions.index(one.disruption), one.id)))


@cache
def shipped() -> Library:
    """The playbooks of latdoctor itself."""
    return read_library([folder("playbooks")])


@cache
def shipped_playbook(name: str) -> Playbook | None:
    """The playbook `name` of `shipped()`, read from its file and those of its stages only; None if there is none.

    Raises DefinitionError.
    """
    paths = {path.stem: path for path in folder("playbooks").glob("*.yaml")}
    problems: list[Problem] = []
    found: dict[str, Playbook] = {}
    names = [name]
    for one in names:
        playbook = read_playbook(paths[one], problems) if one in paths and one not in found else None
        if playbook is not None:
            found[playbook.id] = playbook
            names.extend(stage.playbook for stage in playbook.stages)
    if name in found:
        problems.extend(_check_stages(found[name], found))
    if problems:
        raise DefinitionError(problems)
    return _with_stage_digests(found[name], found) if name in found else None


def read_library(folders: Iterable[Path]) -> Library:
    """Read the playbooks of all `folders` together. Raises DefinitionError with every problem of every file."""
    problems: list[Problem] = []
    found: dict[str, Playbook] = {}
    unreadable: set[str] = set()  # ids of files with problems: references to them are valid
    for path in defined(folders, "playbooks", problems):
        playbook = read_playbook(path, problems)
        if playbook is None:
            unreadable.add(path.stem)
        else:
            add(found, playbook.id, playbook, playbook.where, problems)
    for playbook in found.values():
        problems.extend(_check_stages(playbook, found, unreadable))
    if problems:
        raise DefinitionError(problems, next_step="see docs/contributing.md for the format of playbooks")
    return Library(tuple(_with_stage_digests(found[name], found) for name in sorted(found)))


def _with_stage_digests(playbook: Playbook, found: Mapping[str, Playbook]) -> Playbook:
    """The digest of a playbook of playbooks covers its stages."""
    if not playbook.stages:
        return playbook
    digests = [playbook.digest, *(found[stage.playbook].digest for stage in playbook.stages)]
    return replace(playbook, digest=hashlib.sha256("\n".join(digests).encode()).hexdigest())


def _check_stages(
    playbook: Playbook, found: Mapping[str, Playbook], unreadable: Collection[str] = ()
) -> Iterator[Problem]:
    for stage in playbook.stages:
        if stage.playbook not in unreadable:
            yield from (Problem(stage.where, what) for what in _check_stage(playbook, stage, found))


def _check_stage(playbook: Playbook, stage: Stage, found: Mapping[str, Playbook]) -> Iterator[str]:
    other = found.get(stage.playbook)
    if other is None:
        yield f"unknown playbook {stage.playbook!r}{_suggestion(stage.playbook, found)}"
        return
    if other.stages:
        yield f"{other.id} has stages itself: only one level is allowed"
        return
    unsupported = sorted(set(playbook.targets) - set(other.targets))
    if unsupported:
        yield f"{other.id} does not support {', '.join(unsupported)}"
    if list(Risk).index(other.risk) > list(Risk).index(playbook.risk):
        yield f"{other.id} has the risk {other.risk}, the whole only {playbook.risk}"
    if list(Disruption).index(other.disruption) > list(Disruption).index(playbook.disruption):
        yield f"{other.id} has the disruption {other.disruption}, the whole only {playbook.disruption}"
    yield from _check_stage_arguments(playbook, stage, other)


def _check_stage_arguments(playbook: Playbook, stage: Stage, other: Playbook) -> Iterator[str]:
    own = {parameter.name: parameter for parameter in playbook.parameters}
    known = {parameter.name: parameter for parameter in other.parameters}
    for name, text in stage.arguments.items():
        reference = referenced_parameter(text)
        if name not in known:
            yield f"{other.id} has no parameter {name!r}"
        elif reference in own:
            outer, inner = own[reference], known[name]
            if (outer.type, outer.choices, outer.minimum, outer.maximum) != (
                inner.type,
                inner.choices,
                inner.minimum,
                inner.maximum,
            ):
                yield (
                    f"{outer.name} allows {allowed_values(outer)}, {name} of {other.id} allows {allowed_values(inner)}"
                )
        elif reference is None:
            try:
                parse_value(known[name], text)
            except ValueError as error:
                yield f"{other.id}: {name}: {error}"


def lint(library: Library, causes: Mapping[str, Collection[str]], findings: Collection[str]) -> list[Problem]:
    """Check the references to actions, causes and findings.

    `causes`: by id, the findings that each expects; `findings`: all ids. The caller provides both, because remediation
    does not depend on diagnosis.
    """
    found: list[Problem] = []
    for playbook in library.playbooks:
        found.extend(Problem(playbook.where, what) for what in _check_names(playbook, causes, findings))
        for step in playbook.steps:
            found.extend(Problem(step.where, what) for what in _check_action(step, playbook))
    return found


def _check_names(playbook: Playbook, causes: Mapping[str, Collection[str]], findings: Collection[str]) -> Iterator[str]:
    for name in playbook.addresses:
        if name not in causes:
            yield f"addresses: unknown cause {name!r}{_suggestion(name, causes)}"
    for finding in playbook.verify.cleared_findings:
        if finding not in findings:
            yield f"mechanism: unknown finding {finding!r}{_suggestion(finding, findings)}"
    for one in playbook.verify.repair.findings if playbook.verify.repair else ():
        if one not in findings:
            yield f"repair: unknown finding {one!r}{_suggestion(one, findings)}"
    if playbook.treats is Treatment.CAUSE and all(name in causes for name in playbook.addresses):
        expected = {finding for name in playbook.addresses for finding in causes[name]}
        if not expected & set(playbook.verify.cleared_findings) and not _verifies_mechanism(playbook):
            yield (
                "treats a cause but verifies only symptoms: add a finding that the cause expects (mechanism), or a "
                "signal of what is changed (succeed)"
            )


def _verifies_mechanism(playbook: Playbook) -> bool:
    """Whether its success depends on a signal that is not a mere symptom."""
    verify = playbook.verify
    signals = {signal for one in (*verify.succeed, *verify.mechanism_conditions) for signal in signals_of(one)}
    return any(not signal.startswith(SYMPTOM_SIGNALS) for signal in signals)


def _check_action(step: Step, playbook: Playbook) -> Iterator[str]:
    from latdoctor.remediation.actions import ACTIONS, find_action  # imports the HTTP client

    action = find_action(step.action)
    if action is None:
        yield f"unknown action {step.action!r}{_suggestion(step.action, [one.name for one in ACTIONS])}"
        return
    if step.undo not in action.undos:
        yield f"{action.name} does not support undo: {step.undo} (it supports {', '.join(sorted(action.undos))})"
    unsupported = sorted(set(playbook.targets) - action.kinds)
    if unsupported:
        yield f"{action.name} does not support the targets {', '.join(unsupported)}"
    yield from (f"{action.name}: {problem}" for problem in action.check_arguments(step.arguments))


def _suggestion(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
