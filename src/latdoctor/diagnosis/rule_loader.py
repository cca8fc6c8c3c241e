"""Reading rules: `findings/<area>.yaml` and `causes/<id>.yaml` of each given folder, all problems at once.

What a site changes in rules of others stands in `overlays/<name>.yaml`, see `overlays.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from latdoctor.conditions.ast import SLO_TERMS, AllOf, Condition
from latdoctor.conditions.parser import parse_condition
from latdoctor.diagnosis.codes import CauseStatus, FindingKind
from latdoctor.diagnosis.evaluate import PLACE
from latdoctor.diagnosis.overlays import apply, overlay_files
from latdoctor.diagnosis.rule_schema import SEVERITIES, Cause, Finding, RuleSet
from latdoctor.errors import DefinitionError, Problem
from latdoctor.evidence.catalogue import TIERS, catalogue
from latdoctor.resources import folder
from latdoctor.strict_yaml import Fields, Node, add, load
from latdoctor.units import parse_duration, parse_share

_FOLDERS = ("findings", "causes", "overlays", "cases")
_ALIKE = 0.8  # `cause` and `causes` are alike by 0.9
_TWICE = 5  # ids in two places; more of them are a copy of a whole folder
RESERVED = ("other",)  # what network calls an incident outside the catalogue

_ID = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")


@cache
def shipped() -> RuleSet:
    """The rules that come with latdoctor."""
    return read([folder("rules")])


def read(folders: Iterable[Path], *, overlaid: bool = True) -> RuleSet:
    """The rules of all `folders` together, with their overlays or (not `overlaid`) as they were shipped.

    Raises DefinitionError with every problem of every file.
    """
    problems: list[Problem] = []
    twice: list[Problem] = []
    overlays: list[Path] = []
    findings: dict[str, Finding] = {}
    causes: dict[str, Cause] = {}
    for base in folders:
        if not base.is_dir():
            problems.append(Problem(str(base), "is not a folder of rules (findings/ and causes/)"))
        elif not os.access(base, os.R_OK | os.X_OK):
            problems.append(Problem(str(base), "cannot be read: Permission denied"))
            continue
        else:
            problems.extend(_not_read(base))
        for path in sorted((base / "findings").glob("*.yaml")):
            for finding in _findings(path, problems):
                add(findings, finding.id, finding, finding.where, twice)
        for path in sorted((base / "causes").glob("*.yaml")):
            cause = _cause(path, problems)
            if cause:
                add(causes, cause.id, cause, cause.where, twice)
        overlays.extend(overlay_files(base, problems))
    problems.extend(twice if len(twice) <= _TWICE else _copied(twice))
    _check_references(findings, causes, problems)
    changed = apply(overlays, findings, causes, problems)
    if problems:
        raise DefinitionError(problems, next_step="see docs/contributing.md for the format of rules")
    if overlaid:
        findings, causes = changed
    return RuleSet(tuple(findings[name] for name in sorted(findings)), tuple(causes[name] for name in sorted(causes)))


def _copied(twice: Sequence[Problem]) -> Iterator[Problem]:
    """One problem for many: what else is wrong would be lost among them."""
    what = f"{len(twice)} ids are used twice, this one first: leave out what is a copy, and change rules by an overlay"
    yield Problem(twice[0].where, what)


def _not_read(base: Path) -> Iterator[Problem]:
    """Files that look like rules and are not read: reported, so that they are not taken for checked."""
    for path in sorted(path for kind in ("findings", "causes") for path in (base / kind).glob("*.yml")):
        yield Problem(str(path), "is not read: the name of a file of rules ends in .yaml")
    for path in sorted(path for path in base.iterdir() if path.is_dir() and path.name not in _FOLDERS):
        for meant in get_close_matches(path.name, _FOLDERS, n=1, cutoff=_ALIKE):
            yield Problem(str(path), f"is not read: did you mean {meant}/?")
    if not any((base / kind).is_dir() for kind in _FOLDERS):
        yield Problem(str(base), f"holds no rules: they stand in {', '.join(f'{kind}/' for kind in _FOLDERS)}")


def _root(path: Path, problems: list[Problem]) -> Node | None:
    try:
        return load(path)
    except DefinitionError as error:
        problems.extend(error.problems)
        return None


def _findings(path: Path, problems: list[Problem]) -> Iterable[Finding]:
    root = _root(path, problems)
    if root is None:
        return
    if not isinstance(root.value, tuple):
        problems.append(Problem(root.where, "a findings file is a list of findings"))
        return
    for node in root.value:
        finding = _finding(Fields(node, problems, "finding"), path.stem, problems)
        if finding:
            yield finding


def _finding(fields: Fields, area: str, problems: list[Problem]) -> Finding | None:
    kind = FindingKind(fields.choice("kind", tuple(FindingKind), FindingKind.SPECIFIC))
    when = _condition(fields, "when", problems, required=True)
    finding_id = fields.scalar("id", _identifier, "", required=True)
    made = Finding(
        id=finding_id,
        message=fields.scalar("message", _template, "", required=True),
        when=when or AllOf(()),
        leak=fields.scalar("leak", _leak, 0.02, required=True),
        area=area,
        where=fields.where,
        tier=fields.choice("tier", TIERS, "", required=kind == FindingKind.SPECIFIC),
        kind=kind,
        required=fields.flag("required"),
        outage=fields.flag("outage"),
        severity=fields.choice("severity", SEVERITIES, ""),
        usual=fields.scalar("usual", parse_share, 0.0, required=kind != FindingKind.SPECIFIC),
        group=fields.text("group"),
        not_applicable_when=_condition(fields, "not_applicable_when", problems),
        rationale=fields.text("rationale"),
        rationale_from=fields.text("rationale_from"),
    )
    if kind == FindingKind.SPECIFIC and made.usual:
        fields.problem(fields.where, "only symptoms have a usual share")
    fields.finish()
    return made if finding_id else None  # even with a problem: those who name it did nothing wrong


def _condition(fields: Fields, key: str, problems: list[Problem], *, required: bool = False) -> Condition | None:
    node = fields.node(key, required=required)
    return parse_condition(node, problems) if node else None


def _cause(path: Path, problems: list[Problem]) -> Cause | None:
    root = _root(path, problems)
    if root is None:
        return None
    fields = Fields(root, problems, "cause")
    cause_id = fields.scalar("id", _identifier, "", required=True)
    if cause_id in RESERVED:
        fields.problem(fields.where, f"the id {cause_id!r} is taken: the ranking itself uses it")
    if cause_id and cause_id != path.stem:
        fields.problem(fields.where, f"the id {cause_id!r} differs from the file's name")
    made = Cause(
        id=cause_id,
        title=fields.text("title", required=True),
        tier=fields.choice("tier", TIERS, TIERS[0], required=True),
        severity=fields.choice("severity", SEVERITIES, SEVERITIES[0], required=True),
        prior=fields.scalar("prior", _odds, 1.0, required=True),
        expects=_expects(fields),
        where=fields.where,
        stage=fields.text("stage"),
        status=CauseStatus(fields.choice("status", tuple(CauseStatus), CauseStatus.STABLE)),
        excluded_by=fields.texts("excluded_by"),
        leads_to=fields.texts("leads_to"),
        playbooks=fields.texts("playbooks"),
        playbooks_when={name: node.text or "" for name, node in fields.items("playbooks_when")},
        owner=fields.text("owner"),
        escalate_after=fields.scalar("escalate_after", parse_duration, None),
        explanation=fields.text("explanation", required=True),
        confirm=fields.text("confirm", required=True),
        remediation=fields.text("remediation", required=True),
        remediation_when={name: node.text or "" for name, node in fields.items("remediation_when")},
        next_look=fields.text("next_look"),
        keep_evidence=fields.flag("keep_evidence"),
        false_positives=fields.texts("false_positives"),
        references=fields.texts("references"),
    )
    fields.finish()
    if made.status == CauseStatus.STABLE and not (made.false_positives and made.references):
        fields.problem(fields.where, f"stable cause {cause_id!r} needs false_positives and references")
    return made if cause_id else None


def _expects(fields: Fields) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, node in fields.items("expects"):
        try:
            weight = parse_share(node.text or "")
        except ValueError as error:
            fields.problem(node.where, f"expects {name}: {error}")
            continue
        if not 0.5 <= weight <= 0.95 and weight != 0.99:
            fields.problem(node.where, f"expects {name}: a weight lies within 50–95 %, or is 99 %")
        found[name] = weight
    if not found:
        fields.problem(fields.where, "a cause expects at least one finding")
    return found


def _check_references(findings: Mapping[str, Finding], causes: Mapping[str, Cause], problems: list[Problem]) -> None:
    for finding in findings.values():
        if finding.rationale_from and (finding.rationale_from not in findings or finding.rationale_from == finding.id):
            what = f"the finding {finding.id} takes its rationale from {finding.rationale_from!r}: no other finding"
            problems.append(Problem(finding.where, what))
    for cause in causes.values():
        for what in _reference_problems(cause, findings, causes):
            problems.append(Problem(cause.where, what))


def _reference_problems(cause: Cause, findings: Mapping[str, Finding], causes: Mapping[str, Cause]) -> Iterator[str]:
    for name in cause.expects.keys() & cause.excluded_by:
        yield f"{cause.id} expects {name!r} and is ruled out by it"
    for name in (*cause.expects, *cause.excluded_by, *cause.remediation_when, *cause.playbooks_when):
        if name not in findings:
            yield f"the cause {cause.id} names an unknown finding {name!r}"
    for name in cause.playbooks_when.values():
        if name not in cause.playbooks:
            yield f"playbooks_when of {cause.id} names {name!r}: not of its playbooks"
    for name in cause.leads_to:
        if name not in causes or name == cause.id:
            yield f"the cause {cause.id} leads to {name!r}: no other cause"
    if not any(findings[name].specific for name in cause.expects if name in findings):
        yield f"the cause {cause.id} expects no specific finding"


def _identifier(text: str) -> str:
    if not _ID.fullmatch(text):
        raise ValueError(f"{text!r} is not an id (lower-case words joined by - or .)")
    return text


def _template(text: str) -> str:
    for name, _ in PLACE.findall(text):
        if name not in catalogue() and name not in SLO_TERMS:
            raise ValueError(f"{{{name}}} is not a signal of the catalogue")
    return text


def _leak(text: str) -> float:
    value = parse_share(text)
    if not 0.0001 <= value <= 0.1:
        raise ValueError("a leak lies between 0.01 % and 10 %")
    return value


def _odds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 100:
        raise ValueError("relative odds lie between 0 and 100")
    return value
