"""Tests of rules as files: `cases/<cause>.yaml` gives evidence and says what the diagnosis must make of it.

Every cause has at least the four kinds of KINDS. Evidence is written as quantities per subject:

    fires:
      slo: {p99: 500ms}
      evidence: {trace/a: {gpu.busy_ratio: 8%, kernel.tiny_ratio: 97%}}
      events: [{signal: log.xid, subject: gpu/0, code: 79}]
      looked: {node/a: [log.xid]}
      parents: {gpu/0: node/a}
      baseline: {model/a: {latency.p99: 100ms}}
      expect: {named: [framework.launch.bound], fired: [gpu-idle-between-kernels], verdict: warning}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from latdoctor.diagnosis.codes import ReasonCode
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.result import Check, Diagnosis
from latdoctor.diagnosis.rule_schema import SEVERITIES, RuleSet
from latdoctor.errors import DefinitionError, Problem
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.evidence.model import Event, Evidence, Labels, Origin, Reading, Subject, Value, Window
from latdoctor.strict_yaml import Fields, Node, load
from latdoctor.units import parse_quantity, parse_share, parse_span

KINDS = ("fires", "near-miss", "healthy-but-busy", "evidence-missing")
_OF_CAUSES = ("named", "not_named")
_OF_FINDINGS = ("fired", "clear", "unknown")
_LEVELS = (*SEVERITIES, "healthy", "inconclusive")


@dataclass(frozen=True, slots=True)
class RuleCase:
    """One case: the evidence, and what must come of it."""

    cause: str
    name: str
    case: Case
    expect: Mapping[str, tuple[str, ...]]
    verdict: str
    where: str


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case as it went; `failures` is empty where everything came as expected."""

    case: RuleCase
    failures: tuple[str, ...]


def read_cases(folders: Iterable[Path], rules: RuleSet) -> tuple[RuleCase, ...]:
    """All cases of `folders`. Raises DefinitionError with every problem, a cause without its four cases included."""
    problems: list[Problem] = []
    found: list[RuleCase] = []
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        found.extend(_file(path, problems))
    for cause in rules.causes:
        have = {case.name for case in found if case.cause == cause.id}
        lacking = [kind for kind in KINDS if not any(name.startswith(kind) for name in have)]
        if lacking:
            what = f"{cause.id} has no case {', '.join(lacking)} in cases/{cause.id}.yaml"
            problems.append(Problem(cause.where, what))
    for case in found:
        problems.extend(Problem(case.where, what) for what in _idle(case, rules))
    if problems:
        raise DefinitionError(problems, next_step="see docs/contributing.md for the format of cases")
    return tuple(found)


def _idle(case: RuleCase, rules: RuleSet) -> Iterable[str]:
    """Why the case could not fail: it expects nothing, or speaks of what the rules do not know."""
    if case.cause not in rules.cause:
        yield f"the rules have no cause {case.cause!r}"
    if not case.expect and not case.verdict:
        yield f"case {case.name} expects nothing"
    for kind, names in case.expect.items():
        known = rules.cause if kind in _OF_CAUSES else rules.finding
        for name in names:
            if name not in known:
                yield f"case {case.name}: {kind} speaks of {name!r}, which is not in the rules"


def run(case: RuleCase, rules: RuleSet) -> CaseResult:
    """Diagnose the case's evidence and compare."""
    diagnosis = diagnose(case.case, rules, Stamp("case", ""))
    failures = list(_differences(case, diagnosis))
    return CaseResult(case, tuple(failures))


def _differences(case: RuleCase, diagnosis: Diagnosis) -> Iterable[str]:
    named = {cause.id for cause in diagnosis.causes if cause.named}
    shares = {cause.id: cause.probability for cause in diagnosis.causes}
    # A check that others cover does not hold; that is all a case says with `clear`.
    status = {check.id: "clear" if _is_covered(check) else check.status for check in diagnosis.checks}
    wanted = {"fired": "fired", "clear": "clear", "unknown": "not-evaluated"}
    if "named" in case.expect and named != set(case.expect["named"]):
        shown = ", ".join(f"{name} {share:.2f}" for name, share in list(shares.items())[:4])
        yield f"named {sorted(named)}, expected {sorted(case.expect['named'])} (ranking: {shown})"
    for name in case.expect.get("not_named", ()):
        if name in named:
            yield f"{name} is named at {shares[name]:.2f}"
    for kind, expected in wanted.items():
        for name in case.expect.get(kind, ()):
            if status.get(name) != expected:
                yield f"{name} is {status.get(name, 'not a finding')}, expected {expected}"
    if case.verdict and diagnosis.verdict.level != case.verdict:
        yield f"verdict {diagnosis.verdict.level} ({diagnosis.verdict.message}), expected {case.verdict}"


def _is_covered(check: Check) -> bool:
    return any(reason.code == ReasonCode.COVERED for reason in check.reasons)


def _file(path: Path, problems: list[Problem]) -> Iterable[RuleCase]:
    try:
        fields = Fields(load(path), problems, "cases file")
    except DefinitionError as error:
        problems.extend(error.problems)
        return
    cause = fields.text("cause", required=True)
    if cause != path.stem:
        fields.problem(fields.where, f"the cause {cause!r} differs from the file's name")
    for name, node in fields.items("cases"):
        yield _case(cause, name, Fields(node, problems, f"case {name}"))
    fields.finish()


def _case(cause: str, name: str, fields: Fields) -> RuleCase:
    slo = dict(fields.items("slo"))
    for key in slo.keys() - {"p99", "error_ratio"}:
        fields.problem(slo[key].where, f"slo has an unknown key {key!r}")
    context = Context(
        target="case",
        slo_p99=_slo(fields, slo, "p99", parse_span),
        slo_error_ratio=_slo(fields, slo, "error_ratio", parse_share),
    )
    readings = tuple(_readings(fields, "evidence"))
    baseline = {(r.signal, r.subject): r.value for r in _readings(fields, "baseline") if not isinstance(r.value, str)}
    events = tuple(_events(fields))
    evidence = Evidence(
        subjects=tuple(Subject(child, node.text) for child, node in fields.items("parents")),
        readings=readings,
        events=events,
        # Where one was found was searched, and to the end.
        looked=(*_searched(fields), *((event.signal, event.subject) for event in events)),
    )
    expect_node = fields.node("expect", required=True)
    expect = Fields(expect_node or Node({}, fields.where), fields.problems, "expect")
    wanted = {kind: expect.texts(kind) for kind in (*_OF_CAUSES, *_OF_FINDINGS) if expect.node(kind) is not None}
    verdict = expect.choice("verdict", _LEVELS, "")
    expect.finish()
    fields.finish()
    case = Case(context, Window(), evidence, baseline)
    return RuleCase(cause, name, case, wanted, verdict, fields.where)


def _slo(fields: Fields, slo: Mapping[str, Node], key: str, convert: Callable[[str], float]) -> float | None:
    node = slo.get(key)
    if node is None:
        return None
    try:
        return convert(node.text or "")
    except ValueError as error:
        fields.problem(node.where, str(error))
        return None


def _readings(fields: Fields, key: str) -> Iterable[Reading]:
    for subject, node in fields.items(key):
        if not isinstance(node.value, dict):
            fields.problem(node.where, f"{subject}: signals and their values are expected")
            continue
        for signal, value in node.value.items():
            try:
                name, labels = _labelled(signal)
                read, origin = _value(name, value.text or ""), Origin("case", value.where)
                yield Reading(name, subject, read, origin, labels=labels)
            except ValueError as error:
                fields.problem(value.where, f"{signal}: {error}")


def _labelled(text: str) -> tuple[str, Labels]:
    """`batch.released{reason=timeout}` → the signal and its labels. Raises ValueError."""
    signal, brace, rest = text.partition("{")
    if not brace:
        return signal, ()
    pairs = [pair.partition("=") for pair in rest.removesuffix("}").split(",")]
    if not rest.endswith("}") or not all(key and equals and value for key, equals, value in pairs):
        raise ValueError("labels are written {name=value}")
    return signal, tuple((key.strip(), value.strip()) for key, _, value in pairs)


def _value(signal: str, text: str) -> Value:
    known = catalogue().get(signal)
    if known is None:
        raise ValueError("is not in the signal catalogue")
    if known.kind == SignalKind.TEXT:
        return text
    quantity = parse_quantity(text)
    if quantity.dimension not in (known.dimension, "count"):
        raise ValueError(f"{text!r} is a {quantity.dimension}, expected a {known.dimension}")
    return quantity.value


def _events(fields: Fields) -> Iterable[Event]:
    node = fields.node("events")
    if node and not isinstance(node.value, tuple):
        fields.problem(node.where, "'events' must be a list")
    for item in node.value if node and isinstance(node.value, tuple) else ():
        entries = item.value if isinstance(item.value, dict) else {}
        parts = {key: _number_or_text(entry.text or "") for key, entry in entries.items()}
        signal, subject = str(parts.pop("signal", "")), str(parts.pop("subject", ""))
        if signal not in catalogue() or not subject:
            fields.problem(item.where, "an event needs a catalogued signal and a subject")
        yield Event(signal, subject, Origin("case", item.where), fields=parts, text=str(parts.get("text", "")))


def _number_or_text(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text


def _searched(fields: Fields) -> Iterable[tuple[str, str]]:
    for subject, node in fields.items("looked"):
        if not isinstance(node.value, tuple):
            fields.problem(node.where, f"looked {subject}: a list of event signals is expected")
            continue
        for item in node.value:
            known = catalogue().get(item.text or "")
            if known is None or known.kind != SignalKind.EVENT:
                fields.problem(item.where, f"looked {subject}: {item.text!r} is not an event signal of the catalogue")
            yield (item.text or "", subject)
