"""A playbook for people, section by section, and as the JSON document of `playbooks show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from latdoctor.conditions.ast import in_words
from latdoctor.remediation.parameters import allowed_values, format_parameter
from latdoctor.remediation.playbook import OnFailure, Parameter, Playbook, Step
from latdoctor.remediation.playbook_library import Library, shipped_playbook
from latdoctor.units import format_value

if TYPE_CHECKING:
    from latdoctor.remediation.planner import Plan

SCHEMA_VERSION = "1"

_DISRUPTION = {
    "none": "no disruption",
    "degrades": "degrades answers",
    "drops-requests": "refuses requests",
    "restarts": "restarts",
}
_UNDO = {
    "restore": "set back to what it was before, unless somebody else has changed it since",
    "none-needed": "nothing is left behind that would have to be taken back",
    "irreversible": "cannot be taken back",
}


class PlaybookSection(NamedTuple):
    """A heading and what stands under it, one entry a paragraph."""

    heading: str
    lines: tuple[str, ...]


class Words(NamedTuple):
    """What the rules say of what a playbook names, by id: titles of causes, sentences of findings."""

    causes: Mapping[str, str]
    findings: Mapping[str, str]


def facts(playbook: Playbook | Plan) -> str:
    """The line under the title: what it may cost."""
    return f"{playbook.risk} risk, {_DISRUPTION[playbook.disruption]}"


def mended(playbook: Playbook) -> str:
    """What it mends, or of what it takes a symptom away only."""
    what = "mends" if playbook.treats == "cause" else "treats a symptom of"
    return f"{what} {', '.join(playbook.addresses)}"


def advised(name: str) -> str:
    """A playbook that a cause names, in one line; by its name alone where it is not one of the shipped."""
    playbook = shipped_playbook(name)
    if playbook is None:
        return name
    return f"{name}: {playbook.title} ({facts(playbook)}; for a {' or '.join(playbook.targets)} server)"


def sections(playbook: Playbook, library: Library, words: Words) -> Iterator[PlaybookSection]:
    """Everything that a tired person asks, in the order in which they ask it."""
    mends = "What it mends" if playbook.treats == "cause" else "Whose symptoms it treats"
    yield PlaybookSection(mends, tuple(_named(name, words.causes) for name in playbook.addresses))
    yield PlaybookSection("What happens", (playbook.explanation,))
    yield PlaybookSection("What it changes", tuple(_changes(playbook, library)))
    yield PlaybookSection("What can be set (--set NAME=VALUE)", tuple(_parameter(one) for one in playbook.parameters))
    yield PlaybookSection(
        "What must hold before", (*(in_words(one) for one in playbook.preconditions), *_guards(playbook))
    )
    yield PlaybookSection("How it proves itself", tuple(_proof(playbook, words)))
    yield PlaybookSection("How it is taken back", tuple(_undone(playbook, library)))
    yield PlaybookSection("What to expect", (f"{playbook.effect} (measured by {playbook.effect.measured_by})",))
    yield PlaybookSection("Read more", playbook.references)


def next_step(playbook: Playbook) -> str:
    """What to type next."""
    needed = "".join(f" --set {one.name}=VALUE" for one in playbook.parameters if one.default is None)
    return f"latdoctor remediate --playbook {playbook.id} --server URL{needed}"


def _named(name: str, words: Mapping[str, str]) -> str:
    return f"{name}: {words[name]}" if name in words else name


def _changes(playbook: Playbook, library: Library) -> Iterator[str]:
    for stage, other in library.stages(playbook):
        given = ", ".join(f"{name} = {_value(text, playbook)}" for name, text in stage.arguments.items())
        yield f"{other.id}: {other.title}" + (f" ({given})" if given else "")
    for step in playbook.steps:
        yield f"{step.id} ({step.action})"
        yield from (f"  {name} = {_value(text, playbook)}" for name, text in step.arguments.items())


def _value(text: str, playbook: Playbook) -> str:
    """As written; for a parameter its name with its default."""
    for parameter in playbook.parameters:
        if text == f"${parameter.name}":
            return text if parameter.default is None else f"{text} [{format_parameter(parameter, parameter.default)}]"
    return text


def _parameter(parameter: Parameter) -> str:
    usual = "must be given" if parameter.default is None else format_parameter(parameter, parameter.default)
    return f"{parameter.name} = {usual}: {parameter.description}; {allowed_values(parameter)}"


def _guards(playbook: Playbook) -> Iterator[str]:
    guards = playbook.guards
    yield f"no other run on the target, and {_span(guards.cooldown)} since the last one of this playbook"
    limit = guards.attempts
    yield f"fewer than {limit.count} runs of it there in {_span(limit.per)}: after that it treats a symptom"


def _proof(playbook: Playbook, words: Words) -> Iterator[str]:
    verify = playbook.verify
    before = _span(playbook.before.window)
    yield f"{before} are observed before anything is changed, window by window; it has to beat each of them"
    if playbook.settle.until is not None:
        yield f"then it waits until {in_words(playbook.settle.until)}, {_span(playbook.settle.at_most)} at most"
    if verify.load is not None:
        yield f"only what is seen at the same load counts: {in_words(verify.load)}"
    yield from (f"better: {in_words(one)}" for one in verify.succeed)
    yield from (f"gone: {_named(name, words.findings)}" for name in verify.mechanism)
    yield f"all of that for {_span(verify.hold)} without a break, within {_span(verify.within)}"
    yield from (f"given up at once where {in_words(one)}" for one in verify.abort)


def _undone(playbook: Playbook, library: Library) -> Iterator[str]:
    steps: list[Step] = [*playbook.steps, *(step for _, other in library.stages(playbook) for step in other.steps)]
    for undo in dict.fromkeys(step.undo for step in steps):
        names = ", ".join(step.id for step in steps if step.undo == undo)
        yield f"{names}: {_UNDO[undo]}"
    if playbook.stages:
        kept = "those verified before it stay" if playbook.on_failure != OnFailure.UNDO_ALL else "so are all before it"
        yield f"a stage that fails is taken back; {kept}"
    yield "by itself where it does not prove itself; later by latdoctor rollback RUN"


def _span(seconds: float) -> str:
    return format_value(seconds, "time")


class ParameterPage(Struct, frozen=True):
    name: str
    type: str
    default: str | None  # null: must be given
    allowed: str
    message: str


class StepPage(Struct, frozen=True):
    id: str
    action: str
    given: dict[str, str]
    undo: str


class StagePage(Struct, frozen=True):
    playbook: str
    given: dict[str, str]


class PlaybookPage(Struct, frozen=True):
    """A playbook as JSON. Conditions as they are written, times in seconds."""

    id: str
    title: str
    digest: str
    addresses: tuple[str, ...]
    treats: str
    targets: tuple[str, ...]
    risk: str
    disruption: str
    parameters: tuple[ParameterPage, ...]
    preconditions: tuple[str, ...]
    steps: tuple[StepPage, ...]
    stages: tuple[StagePage, ...]
    before: float
    settle_until: str | None
    settle_at_most: float
    load: str | None
    succeed: tuple[str, ...]
    mechanism: tuple[str, ...]
    abort: tuple[str, ...]
    hold: float
    within: float
    effect: str
    measured_by: str
    explanation: str
    references: tuple[str, ...]
    schema_version: str = SCHEMA_VERSION


class PlaybooksPage(Struct, frozen=True):
    """All of them."""

    playbooks: tuple[PlaybookPage, ...]
    schema_version: str = SCHEMA_VERSION


def as_json(value: PlaybookPage | PlaybooksPage) -> str:
    """Indented, keys in the order of the types."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def pages(library: Library) -> PlaybooksPage:
    return PlaybooksPage(tuple(page(playbook) for playbook in library.playbooks))


def page(playbook: Playbook) -> PlaybookPage:
    verify, settle = playbook.verify, playbook.settle
    return PlaybookPage(
        id=playbook.id,
        title=playbook.title,
        digest=playbook.digest,
        addresses=playbook.addresses,
        treats=playbook.treats,
        targets=playbook.targets,
        risk=playbook.risk,
        disruption=playbook.disruption,
        parameters=tuple(_parameter_page(one) for one in playbook.parameters),
        preconditions=tuple(in_words(one) for one in playbook.preconditions),
        steps=tuple(StepPage(one.id, one.action, dict(one.arguments), one.undo) for one in playbook.steps),
        stages=tuple(StagePage(one.playbook, dict(one.arguments)) for one in playbook.stages),
        before=playbook.before.window,
        settle_until=None if settle.until is None else in_words(settle.until),
        settle_at_most=settle.at_most,
        load=None if verify.load is None else in_words(verify.load),
        succeed=tuple(in_words(one) for one in verify.succeed),
        mechanism=verify.mechanism,
        abort=tuple(in_words(one) for one in verify.abort),
        hold=verify.hold,
        within=verify.within,
        effect=str(playbook.effect),
        measured_by=playbook.effect.measured_by,
        explanation=playbook.explanation,
        references=playbook.references,
    )


def _parameter_page(one: Parameter) -> ParameterPage:
    default = None if one.default is None else format_parameter(one, one.default)
    return ParameterPage(one.name, one.type, default, allowed_values(one), one.description)
