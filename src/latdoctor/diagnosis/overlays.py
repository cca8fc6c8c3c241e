"""What a site changes in rules of others: `overlays/<name>.yaml`, a list of changes, each with its reason.

    - finding: gpu-hot
      limits: {gpu.temperature: {limit: 80C, ramp: [72C, 85C]}}
      rationale: the boards of this hall throttle at 83 °C
    - finding: queue-grows
      disable: true
      rationale: a nightly job fills the queue on purpose
    - cause: app.load.burst
      disable: true
      rationale: bursts are what this service is for

A limit is named by the signal that is compared, with its operator behind it where a finding compares that more than
once. What does not fit the rules as they are is a problem: an overlay that no longer changes anything is never silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from latdoctor.conditions.ast import Comparison, SignalTerm, comparisons, mapped
from latdoctor.conditions.parser import right_of, with_limit
from latdoctor.diagnosis.rule_schema import Cause, Finding, SiteLimit
from latdoctor.errors import DefinitionError, Problem
from latdoctor.strict_yaml import Fields, Node, load
from latdoctor.units import spaced

T = TypeVar("T")
Findings = dict[str, Finding]
Causes = dict[str, Cause]

# How the report shows what an overlay did: in the remark of a comparison, and as the reason of a finding.
SITE_THRESHOLD, DISABLED = "site threshold", "disabled by the site"

_MISTAKEN = ("overlay.yaml", "overlays.yaml", "overlay.yml", "overlays.yml")


@dataclass(frozen=True, slots=True)
class _Limit:
    """The new right side of one comparison."""

    of: str  # the signal, or the signal and its operator
    limit: str
    ramp: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True)
class _Change:
    """One entry of an overlay: limits of a finding, or a finding or cause that is not wanted."""

    finding: str
    cause: str
    disable: bool
    limits: tuple[_Limit, ...]
    rationale: str
    where: str


def overlay_files(base: Path, problems: list[Problem]) -> tuple[Path, ...]:
    """The overlays of the folder `base`; what looks like one and would not be read is a problem."""
    for name in _MISTAKEN:
        if (base / name).exists():
            problems.append(Problem(str(base / name), "is not read: overlays stand in overlays/NAME.yaml"))
    problems.extend(
        Problem(str(path), "is not read: the name of an overlay ends in .yaml")
        for path in sorted((base / "overlays").glob("*.yml"))
    )
    return tuple(sorted((base / "overlays").glob("*.yaml")))


def apply(
    paths: Iterable[Path], findings: Findings, causes: Causes, problems: list[Problem]
) -> tuple[Findings, Causes]:
    """Findings and causes as the overlays at `paths` change them; what is wrong is added to `problems`."""
    findings, causes = dict(findings), dict(causes)
    for change in [change for path in paths for change in _read(path, problems)]:
        if change.finding:
            _change(findings, change.finding, "finding", change, _changed_finding, problems)
        elif change.cause:
            _change(causes, change.cause, "cause", change, _changed_cause, problems)
    return findings, causes


def _change(
    known: dict[str, T],
    name: str,
    what: str,
    change: _Change,
    changed: Callable[[T, _Change, list[Problem]], T],
    problems: list[Problem],
) -> None:
    if name in known:
        known[name] = changed(known[name], change, problems)
    else:
        problems.append(Problem(change.where, f"the overlay changes an unknown {what} {name!r}"))


def _read(path: Path, problems: list[Problem]) -> Iterable[_Change]:
    try:
        root = load(path)
    except DefinitionError as error:
        problems.extend(error.problems)
        return
    if not isinstance(root.value, tuple):
        problems.append(Problem(root.where, "an overlay is a list of changes"))
        return
    for node in root.value:
        yield _entry(Fields(node, problems, "overlay"))


def _entry(fields: Fields) -> _Change:
    made = _Change(
        finding=fields.text("finding"),
        cause=fields.text("cause"),
        disable=fields.flag("disable"),
        limits=tuple(_limit(fields, name, node) for name, node in fields.items("limits")),
        rationale=fields.text("rationale", required=True),
        where=fields.where,
    )
    fields.finish()
    if bool(made.finding) == bool(made.cause):
        fields.problem(fields.where, "an overlay names either a finding or a cause")
    elif made.cause and not (made.disable and not made.limits):
        fields.problem(fields.where, "a cause can only be disabled (disable: true); limits are those of findings")
    elif made.finding and made.disable == bool(made.limits):
        fields.problem(fields.where, "an overlay of a finding gives either limits or disable: true")
    return made


def _limit(fields: Fields, name: str, node: Node) -> _Limit:
    if node.text is not None:
        return _Limit(name, node.text, (), node.where)
    inner = Fields(node, fields.problems, f"the limit of {name}")
    made = _Limit(name, inner.text("limit", required=True), inner.texts("ramp"), node.where)
    inner.finish()
    return made


def _changed_cause(cause: Cause, change: _Change, problems: list[Problem]) -> Cause:
    if cause.disabled:
        problems.append(Problem(change.where, f"the cause {cause.id} is disabled twice"))
    return replace(cause, disabled=_says_why(change)) if change.disable else cause


def _says_why(change: _Change) -> str:
    return f"{DISABLED}: {change.rationale or 'no reason given'}"


def _changed_finding(finding: Finding, change: _Change, problems: list[Problem]) -> Finding:
    if change.disable:
        if finding.required:
            what = f"{finding.id} is required: without it nothing may be called healthy, so it cannot be disabled"
            problems.append(Problem(change.where, what))
        if finding.disabled:
            problems.append(Problem(change.where, f"the finding {finding.id} is disabled twice"))
        if finding.site:
            problems.append(Problem(change.where, _both(finding)))
        return replace(finding, disabled=_says_why(change))
    if finding.disabled and change.limits:
        problems.append(Problem(change.where, _both(finding)))
    for limit in change.limits:
        finding = _limited(finding, limit, change, problems)
    return finding


def _both(finding: Finding) -> str:
    return f"the finding {finding.id} is disabled and given another limit: which of the two?"


def _limited(finding: Finding, limit: _Limit, change: _Change, problems: list[Problem]) -> Finding:
    """`finding` with the one comparison changed that `limit` names, wherever it stands in it."""
    named = {comparison.text: comparison for comparison in comparisons(finding.when) if _is(comparison, limit.of)}
    if len(named) != 1:
        problems.append(Problem(limit.where, _not_one(finding, limit.of, named)))
        return finding
    ((text, shipped),) = named.items()
    if shipped.remark:
        problems.append(Problem(limit.where, f"the limit of {limit.of} in {finding.id} is changed twice"))
        return finding
    remark = f"{SITE_THRESHOLD}, shipped {shipped.operator} {spaced(right_of(shipped))}"

    def changed(comparison: Comparison) -> Comparison:
        if comparison.text != text:
            return comparison
        return replace(with_limit(comparison, limit.limit, limit.ramp), remark=remark)

    try:
        when = mapped(finding.when, changed)
    except ValueError as error:
        problems.append(Problem(limit.where, f"limit of {limit.of}: {error}"))
        return finding
    note = SiteLimit(changed(shipped).text, text, change.rationale, limit.where)
    return replace(finding, when=when, site=(*finding.site, note), shipped=finding.shipped or finding.when)


def _is(comparison: Comparison, name: str) -> bool:
    """Whether an author may mean `comparison` by `name`: its signal, that with its operator, or all of it."""
    signal = comparison.left.signal if isinstance(comparison.left, SignalTerm) else str(comparison.left)
    left = {signal, str(comparison.left)}
    return name in {comparison.text, *left, *(f"{one} {comparison.operator}" for one in left)}


def _not_one(finding: Finding, name: str, named: Mapping[str, Comparison]) -> str:
    if named:
        choice = " or ".join(repr(text) for text in named)
        return f"{finding.id} compares {name} more than once: name one of them, {choice}"
    compared = dict.fromkeys(str(comparison.left) for comparison in comparisons(finding.when))
    return f"{finding.id} compares no {name!r}, but {', '.join(compared)}"
