"""A playbook in full, section by section, and as the JSON document of `playbooks show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from latdoctor.conditions.ast import in_words
from latdoctor.remediation.parameters import allowed_values, format_parameter
from latdoctor.remediation.playbook import OnFailure, Parameter, Playbook, Repair, Step, Trigger
from latdoctor.remediation.playbook_library import Library, shipped_playbook
from latdoctor.remediation.target import TargetKind
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
    "restore": "the old values are restored, unless another client has changed them since",
    "none-needed": "nothing is left behind that would have to be undone",
    "irreversible": "cannot be undone",
}


class PlaybookSection(NamedTuple):
    """A heading and its paragraphs."""

    heading: str
    lines: tuple[str, ...]


class PlaybookTexts(NamedTuple):
    """Texts of the rules for the ids in a playbook: titles of causes, sentences of findings."""

    causes: Mapping[str, str]
    findings: Mapping[str, str]


# What a playbook is for that answers no incident.
OCCASIONS = {
    Trigger.FORECAST: "ahead of a peak that latdoctor forecast expects (--from FILE)",
    Trigger.PEAK_PASSED: "after such a peak",
}


def facts(playbook: Playbook | Plan) -> str:
    """Its risk and its disruption, for the line under the title."""
    return f"{playbook.risk} risk, {_DISRUPTION[playbook.disruption]}"


def purpose(playbook: Playbook) -> str:
    """The causes that it fixes, or whose symptom it eases."""
    if playbook.trigger in OCCASIONS:
        return OCCASIONS[playbook.trigger]
    what = "fixes" if playbook.treats == "cause" else "eases a symptom of"
    return f"{what} {', '.join(playbook.addresses)}"


def advised(name: str) -> str:
    """A playbook of a cause in one line; only its id where it is not shipped."""
    playbook = shipped_playbook(name)
    if playbook is None:
        return name
    return f"{name}: {playbook.title} ({facts(playbook)}; for a {' or '.join(playbook.targets)} server)"


def sections(playbook: Playbook, library: Library, texts: PlaybookTexts) -> Iterator[PlaybookSection]:
    """All sections, in the order of reading."""
    fixes = "Fixes" if playbook.treats == "cause" else "Eases the symptoms of"
    if playbook.trigger in OCCASIONS:
        yield PlaybookSection("Used", (OCCASIONS[playbook.trigger],))
    else:
        yield PlaybookSection(fixes, tuple(_named(name, texts.causes) for name in playbook.addresses))
    yield PlaybookSection("Explanation", (playbook.explanation,))
    yield PlaybookSection("Changes", tuple(_changes(playbook, library)))
    yield PlaybookSection("Parameters (--set NAME=VALUE)", tuple(_parameter(one) for one in playbook.parameters))
    yield PlaybookSection(
        "Preconditions and guards", (*(in_words(one) for one in playbook.preconditions), *_guards(playbook))
    )
    yield PlaybookSection("Verification", tuple(_proof(playbook, texts)))
    yield PlaybookSection("Undo", tuple(_undo(playbook, library)))
    yield PlaybookSection("Expected effect", (f"{playbook.effect} (measured by {playbook.effect.measured_by})",))
    yield PlaybookSection("References", playbook.references)


def next_step(playbook: Playbook) -> str:
    """The next command."""
    if playbook.trigger in OCCASIONS:
        needed = " --from forecast.json" if playbook.trigger is Trigger.FORECAST else ""
    else:
        needed = "".join(f" --set {one.name}=VALUE" for one in playbook.parameters if one.default is None)
    return f"{_command(playbook.id, workload=TargetKind.KUBERNETES in playbook.targets)}{needed}"


def changes_workload(name: str) -> bool:
    """Whether a playbook is for a workload on Kubernetes; not where it is not one of the shipped."""
    playbook = shipped_playbook(name)
    return playbook is not None and TargetKind.KUBERNETES in playbook.targets


def command_for(name: str) -> str:
    """The command that plans a playbook, with the kind of its target."""
    return _command(name, workload=changes_workload(name))


def _command(name: str, *, workload: bool) -> str:
    return f"latdoctor remediate --playbook {name}{' --kube NAMESPACE/NAME' if workload else ''} --server URL"


def _named(name: str, words: Mapping[str, str]) -> str:
    return f"{name}: {words[name]}" if name in words else name


def _changes(playbook: Playbook, library: Library) -> Iterator[str]:
    for stage, other in library.stages(playbook):
        given = ", ".join(f"{name} = {_value(text, playbook)}" for name, text in stage.arguments.items())
        yield f"{other.id}: {other.title}" + (f" ({given})" if given else "")
    for step in playbook.steps:
        yield f"{step.id} ({step.action})"
        yield from (f"  {name} = {_value(text, playbook)}" for name, text in step.arguments.items())


def default_of(parameter: Parameter) -> str:
    """The default of a parameter as written; empty where it is required."""
    return "" if parameter.default is None else format_parameter(parameter, parameter.default)


def settings_of(playbook: Playbook) -> Iterator[str]:
    """Each setting of its own steps: `batching.scheduler = token-budget`."""
    for step in playbook.steps:
        yield from (f"{name} = {_value(text, playbook)}" for name, text in step.arguments.items())


def _value(text: str, playbook: Playbook) -> str:
    """The text as written; a parameter with its default."""
    for parameter in playbook.parameters:
        if text == f"${parameter.name}":
            return text if parameter.default is None else f"{text} [{format_parameter(parameter, parameter.default)}]"
    return text


def _parameter(parameter: Parameter) -> str:
    usual = "required" if parameter.default is None else format_parameter(parameter, parameter.default)
    return f"{parameter.name} = {usual}: {parameter.description}; {allowed_values(parameter)}"


def _guards(playbook: Playbook) -> Iterator[str]:
    guards = playbook.guards
    yield f"no other run on the target, and {_span(guards.cooldown)} since the last run of this playbook"
    limit = guards.attempts
    yield f"fewer than {limit.count} runs of it there in {_span(limit.per)}: more often, it treats a symptom"


def _proof(playbook: Playbook, texts: PlaybookTexts) -> Iterator[str]:
    verify = playbook.verify
    before = _span(playbook.before.window)
    yield f"the level before the change: {before} in windows, or the last ten minutes of a history"
    if playbook.settle.until is not None:
        yield f"then wait until {in_words(playbook.settle.until)}, at most {_span(playbook.settle.at_most)}"
    if verify.load is not None:
        yield f"only windows at the same load count: {in_words(verify.load)}"
    yield from (f"must hold: {in_words(one)}" for one in verify.succeed)
    if verify.repair is not None:
        yield from repair_lines(verify.repair, texts.findings)
    yield from (f"must be clear: {_named(name, texts.findings)}" for name in verify.cleared_findings)
    yield from (f"must show the effect: {in_words(one)}" for one in verify.mechanism_conditions)
    yield f"all of it beyond chance, for at least {_span(verify.hold)}, within {_span(verify.within)}"
    yield from (f"rolled back at once if {in_words(one)}" for one in verify.abort)


def repair_lines(repair: Repair, findings: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """The other way to succeed; `findings`: their sentences."""
    lacking = "".join(f", and {in_words(one)}" for one in repair.incomplete)
    yield f"or, where one of these fired all the time before: {', '.join(repair.broken)}{lacking}"
    for one in repair.whole:
        whole = f"{_named(one, findings)} is clear" if isinstance(one, str) else in_words(one)
        yield f"  in each window: {whole}"
    yield from (f"  and no worse: {in_words(one)}" for one in repair.not_worse)


def _undo(playbook: Playbook, library: Library) -> Iterator[str]:
    steps: list[Step] = [*playbook.steps, *(step for _, other in library.stages(playbook) for step in other.steps)]
    for undo in dict.fromkeys(step.undo for step in steps):
        names = ", ".join(step.id for step in steps if step.undo == undo)
        yield f"{names}: {_UNDO[undo]}"
    if playbook.stages:
        kept = "verified stages before it stay" if playbook.on_failure != OnFailure.UNDO_ALL else "so are all before it"
        yield f"a failed stage is rolled back; {kept}"
    yield "automatic if not verified; later: latdoctor rollback RUN"


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
    trigger: str
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
    repair: tuple[str, ...] | None
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
        trigger=playbook.trigger,
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
        repair=None if verify.repair is None else tuple(repair_lines(verify.repair)),
        mechanism=tuple(one if isinstance(one, str) else in_words(one) for one in verify.mechanism),
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
