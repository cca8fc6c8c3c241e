"""A diagnosis in words: what the terminal, Markdown and the HTML report print, without markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from latdoctor.conditions.evaluator import HOLDS, Atom
from latdoctor.diagnosis.codes import CheckStatus, FindingKind, Level, ReasonCode, TierCoverage, UserImpact
from latdoctor.diagnosis.next_sources import first_playbook, playbooks_for
from latdoctor.diagnosis.result import Check, Diagnosis, RankedCause, RuledOut, Tier
from latdoctor.evidence.model import Origin
from latdoctor.report.playbook import advised, command_for
from latdoctor.report.subject_names import shortened
from latdoctor.units import percent

_SHOWN = 4
LEVEL_STYLE: Mapping[str, str] = {
    Level.CRITICAL: "bold red",
    Level.WARNING: "bold yellow",
    Level.INFO: "bold cyan",
    Level.HEALTHY: "bold green",
    Level.INCONCLUSIVE: "bold magenta",
}
SOURCE_NOUNS = {
    "prometheus": "the server's metrics page",
    "promql": "Prometheus",
    "nvml": "GPU",
    "host": "the machine and the process",
    "torch_trace": "profiler trace",
    "nsight": "Nsight Systems trace",
    "tensorrt": "TensorRT engine",
    "torch_memory": "PyTorch memory",
    "logs": "driver log",
    "access_log": "access log",
    "changes": "change log",
    "baseline": "healthy baseline",
}
# What a required check is about, for a reader.
ESSENTIALS = {
    "p99-over-slo": "P99 against an SLO",
    "queue-deep": "queue",
    "cpu-pressure": "host CPU",
    "gpu-clocks-cut": "GPU clocks",
    "gpu-xid": "GPU errors",
    "gpu-idle-between-kernels": "a profiler trace",
}
IMPACT = {
    UserImpact.HURTING: "users are affected",
    UserImpact.NOT_HURTING: "users are not affected",
    UserImpact.NOT_MEASURED: "user impact not measured",
}


def summary(diagnosis: Diagnosis) -> str:
    """How many checks lack a source, and which source would evaluate most of them; empty where there are none."""
    lacking = [check for check in diagnosis.checks if check.source_missing]
    if not lacking:
        return ""
    counts = Counter(option for check in lacking for option in {o for reason in check.reasons for o in reason.options})
    (first, most), *others = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = "".join(f", {option} {count}" for option, count in others[: _SHOWN - 1])
    return f"no source for {len(lacking)} checks: {first} would show {most} of them{more}"


def unexplained(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Fired findings that no named cause expects; if none is named, with the ruled-out cause that expects them."""
    answer = diagnosis.answer
    message = {check.id: check.message for check in diagnosis.checks}
    ruled_out = () if answer.causes else answer.ruled_out
    unfit = {name: row for row in reversed(ruled_out) for name in row.explains}
    return tuple(
        f"{message[name]}{_unfit(unfit[name], message) if name in unfit else ''}" for name in answer.unexplained
    )


def _unfit(ruled_out: RuledOut, message: Mapping[str, str]) -> str:
    return f" (fits {ruled_out.cause}, which is ruled out: {'; '.join(message[name] for name in ruled_out.by)})"


_LISTED = 4  # subjects or tails that one line of gaps lists


def gap_lines(diagnosis: Diagnosis, *, every: bool) -> tuple[str, ...]:
    """What was not measured and what to do about it; the gaps that leave most checks unevaluated come first.

    Subjects with the same reason share a line, and so do reasons with the same start and hint.
    """
    hiding = Counter(
        signal
        for check in diagnosis.checks
        for reason in check.reasons
        if reason.code is ReasonCode.GAP
        for signal in reason.signals
    )
    hidden = {gap: sum(hiding[signal] for signal in gap.signals) for gap in diagnosis.gaps}
    subjects: dict[tuple[str, str, str], list[str]] = {}
    for gap in sorted(diagnosis.gaps, key=lambda gap: -hidden[gap]):
        about = subjects.setdefault((gap.source, gap.reason, gap.next_step), [])
        if gap.subject:
            about.append(gap.subject)
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for (source, reason, next_step), about in subjects.items():
        head, colon, tail = reason.rpartition(": ")
        alike.setdefault((source, _cut(about, ", ", every=every), head + colon, next_step), []).append(tail)
    return tuple(_gap_line(*key, _cut(tails, "; ", every=every)) for key, tails in alike.items())


def _cut(names: Sequence[str], separator: str, *, every: bool) -> str:
    shown = names if every else names[:_LISTED]
    return separator.join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _gap_line(source: str, about: str, head: str, next_step: str, tails: str) -> str:
    reader = "" if source == "derived" else f"{source.replace('_', ' ')}: "
    subject = f"{about}: " if about else ""
    return f"{reader}{subject}{head}{tails}" + (f" — {next_step}" if next_step else "")


_NOWHERE = "not shown by the sources that were read"
NEAR = 0.1  # a cause that is less likely is not printed
_MANY = 3  # checks hidden for one reason: from here on the compact form has the reason
_LONG_LIST = re.compile(r"\[((?:[^,\]]+, ){3})(?:[^,\]]+, ){2,}[^,\]]+\]")
_TIER_NUMBER = {"infrastructure": 1, "framework": 2, "application": 3}
_COVERAGE: Mapping[TierCoverage, str] = {
    TierCoverage.SEEN: "checked",
    TierCoverage.PARTLY: "checked in part",
    TierCoverage.UNSEEN: "not measured",
    TierCoverage.NOT_APPLICABLE: "does not apply",
}


class EvidenceKind(StrEnum):
    """What a finding means for a cause."""

    FOR = "for"
    AGAINST = "against"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """A finding for or against a cause, or one that was not measured; `details`: numbers and where they were read."""

    kind: EvidenceKind
    message: str
    details: tuple[str, ...] = ()
    no_source: bool = False  # not measured only because no source that shows it was given


@dataclass(frozen=True, slots=True)
class TierLine:
    """A tier with its checks; `not_evaluated` are the reasons with the checks that they hide."""

    heading: str
    counts: str
    fired: tuple[EvidenceLine, ...]
    clear: tuple[EvidenceLine, ...]
    not_evaluated: tuple[str, ...]
    not_evaluated_with_sources: tuple[str, ...]  # those that no further source resolves, and that hide many checks


def headline(diagnosis: Diagnosis) -> str:
    """The verdict in one line."""
    level, message = diagnosis.verdict.level, diagnosis.verdict.message
    # Every message but this one begins with its level.
    return f"{level.upper()}: {message}" if level is Level.INCONCLUSIVE else level.upper() + message[len(level) :]


def site_line(diagnosis: Diagnosis) -> str:
    """Findings judged by the site's thresholds or disabled by the site; empty where all is as shipped."""
    limited = sum(check.site and bool(check.atoms) for check in diagnosis.checks)
    disabled = sum(reason.code == ReasonCode.DISABLED for check in diagnosis.checks for reason in check.reasons)
    known = [f"{limited} judged by site thresholds"] if limited else []
    known += [f"{disabled} disabled by the site"] if disabled else []
    findings = [f"of the findings, {' and '.join(known)} (-v)"] if known else []
    causes = diagnosis.disabled_causes
    left_out = [f"not ranked, disabled by the site: {', '.join(causes)}"] if causes else []
    return "; ".join((*findings, *left_out))


def answer_line(diagnosis: Diagnosis) -> str:
    """The answer in a line, unless causes are named."""
    answer = diagnosis.answer
    if answer.kind == "one-of":
        return f"one of: {', '.join(answer.causes)}"
    if answer.kind == "unexplained":
        return f"no cause of the catalogue explains the findings{_nearest(diagnosis)}"
    return "no cause found" if answer.kind == "none" else ""


def _nearest(diagnosis: Diagnosis) -> str:
    """The likeliest cause that is not likely enough to be named."""
    first = next(iter(diagnosis.causes), None)
    return f" (nearest: {first.id}, {percent(first.probability)})" if first and first.probability >= NEAR else ""


def shown_causes(diagnosis: Diagnosis, *, every: bool) -> tuple[RankedCause, ...]:
    """The named causes, or the candidates of a one-of answer; all that were listed where `every`."""
    if every:
        return diagnosis.causes
    chosen = set(diagnosis.answer.causes)
    return tuple(cause for cause in diagnosis.causes if cause.id in chosen)


def facts_of(cause: RankedCause) -> str:
    """The line under a cause's title."""
    subjects = f" · on {', '.join(shortened(subject) for subject in cause.subjects[:4])}" if cause.subjects else ""
    more = f" and {len(cause.subjects) - 4} more" if len(cause.subjects) > 4 else ""
    standing = "" if cause.impact == UserImpact.HURTING else f" · {IMPACT[cause.impact]}"
    return f"{cause.id} · {cause.tier} · {cause.severity}{standing}{subjects}{more}"


def evidence_lines(cause: RankedCause, diagnosis: Diagnosis) -> tuple[EvidenceLine, ...]:
    """The findings for and against a cause and those that were not measured, each with its numbers."""
    checks = {check.id: check for check in diagnosis.checks}
    findings = [(EvidenceKind.FOR, checks[name]) for name in cause.evidence_for]
    findings += [(EvidenceKind.AGAINST, checks[name]) for name in cause.evidence_against]
    lines = [EvidenceLine(kind, check.message, details(check)) for kind, check in findings]
    lines += [
        EvidenceLine(
            EvidenceKind.NOT_MEASURED, f"{name} ({checks[name].reason})", no_source=checks[name].source_missing
        )
        for name in cause.unseen
    ]
    return tuple(lines)


def details(check: Check) -> tuple[str, ...]:
    """Each comparison with its value, limit, subject and place.

    Of a fired finding only the comparisons that hold; all of them where none holds, as in a "not".
    """
    several = len(check.subjects) > 1
    holding = [atom for atom in check.atoms if atom.status == HOLDS] if check.status == CheckStatus.FIRED else []
    return tuple(dict.fromkeys(_atom(atom, with_subject=several) for atom in holding or check.atoms))


def _atom(atom: Atom, *, with_subject: bool) -> str:
    subject = f" on {atom.subject}" if with_subject else ""
    place = "; ".join(part for part in (_place(atom.origin) if atom.origin else "", atom.note) if part)
    where = f" [{place}]" if place else ""
    equals = "is" if atom.bound else "="
    return f"{listed(atom.signal)}{subject} {equals} {atom.shown} (limit {atom.operator} {listed(atom.limit)}){where}"


def listed(condition: str) -> str:
    """A condition whose long list of codes is cut after the first three."""
    return _LONG_LIST.sub(lambda match: f"[{match[1]}… {match[0].count(',') - 2} more]", condition)


def _place(origin: Origin) -> str:
    """Where a value was read; the middle of a long artifact name is left out."""
    return str(Origin(shortened(origin.artifact), origin.place)) if origin.artifact else origin.place


def advice(cause: RankedCause, diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    """What to do, the playbook, the owner to page, and what not to do yet."""
    rows = [("Do", cause.remediation)]
    if playbook := first_playbook(cause, diagnosis):
        rows.append(("Fix", advised(playbook)))
    if cause.owner:
        rows.append(("Page", cause.owner))
    if cause.keep_evidence:
        rows.append(("Caution", "do not restart yet: the evidence would be lost (latdoctor collect first)"))
    return tuple(rows)


def score_rows(cause: RankedCause) -> tuple[tuple[str, str], ...]:
    """The points behind the probability; the rows add up to the total as printed."""
    rows = [(f"{row.points:+d}", row.message) for row in cause.contributions]
    total = sum(row.points for row in cause.contributions)
    return (*rows, (f"{total:+d}", "total: 10 points = ten times the odds"))


def tier_lines(diagnosis: Diagnosis) -> tuple[TierLine, ...]:
    """The three tiers."""
    checks = {check.id: check for check in diagnosis.checks}
    known = {name for cause in diagnosis.causes for name in cause.evidence_for}
    known |= {check.id for check in diagnosis.checks if check.kind != FindingKind.SPECIFIC}  # in a section of their own
    return tuple(_tier_line(tier, checks, known) for tier in diagnosis.tiers)


def _tier_line(tier: Tier, checks: Mapping[str, Check], detailed: Set[str]) -> TierLine:
    """One tier; the details of `detailed` findings are printed elsewhere."""
    counts = {
        "fired": len(tier.fired),
        "clear": len(tier.clear),
        "not evaluated": len(tier.not_evaluated),
        "not applicable": len(tier.not_applicable),
    }
    unseen = [checks[name] for name in tier.not_evaluated]
    return TierLine(
        heading=f"{_TIER_NUMBER.get(tier.name, 0)} {tier.name}: {_COVERAGE[tier.seen]}",
        counts=" · ".join(f"{count} {name}" for name, count in counts.items() if count),
        fired=tuple(
            EvidenceLine(EvidenceKind.FOR, checks[name].message, () if name in detailed else details(checks[name]))
            for name in tier.fired
        ),
        clear=tuple(
            EvidenceLine(EvidenceKind.AGAINST, checks[name].message, details(checks[name])) for name in tier.clear
        ),
        not_evaluated=(*_grouped(unseen), *_covered(checks[name] for name in tier.not_applicable)),
        not_evaluated_with_sources=_grouped(
            (one for one in unseen if not (one.source_missing or _is_nowhere(one))), _MANY
        ),
    )


def _grouped(checks: Iterable[Check], least: int = 1) -> tuple[str, ...]:
    """Checks that were not evaluated, one line per reason: actionable reasons first, then the most frequent.

    Reasons that hide fewer than `least` are left out.
    """
    reasons: dict[str, list[str]] = {}
    for check in checks:
        reason = _NOWHERE if _is_nowhere(check) else check.reason
        reasons.setdefault(reason, []).append(check.id)
    ordered = sorted(reasons.items(), key=lambda item: (item[0] == _NOWHERE, -len(item[1])))
    return tuple(f"{reason} — hides {_some(names)}" for reason, names in ordered if len(names) >= least)


def _covered(checks: Iterable[Check]) -> Iterator[str]:
    """Checks whose search found what other checks judge, one line per reason."""
    reasons: dict[str, list[str]] = {}
    for check in checks:
        if any(reason.code == ReasonCode.COVERED for reason in check.reasons):
            reasons.setdefault(check.reason, []).append(check.id)
    yield from (f"{reason} — not applicable: {_some(names)}" for reason, names in reasons.items())


def _is_nowhere(check: Check) -> bool:
    return bool(check.reasons) and all(reason.code == ReasonCode.NOT_SHOWN for reason in check.reasons)


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def symptoms(diagnosis: Diagnosis) -> tuple[EvidenceLine, ...]:
    """The symptoms that fired, and the required ones that could not be judged."""
    lines = []
    for check in diagnosis.checks:
        if check.kind == FindingKind.SPECIFIC:
            continue
        if check.status == CheckStatus.FIRED:
            lines.append(EvidenceLine(EvidenceKind.FOR, check.message, details(check)))
        elif check.required and check.status == CheckStatus.NOT_EVALUATED:
            lines.append(EvidenceLine(EvidenceKind.NOT_MEASURED, f"{check.id}: {check.reason}"))
    return tuple(lines)


def next_steps(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Commands to run next; never empty."""
    named = [cause for cause in diagnosis.causes if cause.id in diagnosis.answer.causes]
    steps = [
        f"{command_for(playbook)} (shows what it would change; --apply does it)"
        for playbook in playbooks_for(named, diagnosis)[:2]
    ]
    steps += [f"latdoctor explain {cause.id}" for cause in named[:2]]
    steps += [
        f"collect with {source.ask}: it {source.cost} and would evaluate {', '.join(source.checks)}"
        for source in diagnosis.next_looks[:2]
    ]
    if diagnosis.answer.causes and not diagnosis.next_looks:
        steps.append("no other source would change this ranking")
    lacking = [reason for check in diagnosis.checks if check.required for reason in check.reasons]
    if any(one.code == ReasonCode.NOT_SHOWN and "latency.p99" in one.signals for one in lacking):
        steps.append("read the server's metrics page (--server URL): no source that was read has its P99")
    if any(one.code == ReasonCode.NO_SLO for one in lacking):
        steps.append("add --slo LIMIT, the P99 that users may expect: it decides what counts as slow")
    return tuple(steps) or ("latdoctor preflight",)


def tier_noun(tier: str) -> str:
    """A tier as a noun phrase."""
    return {"infrastructure": "the GPU and the host", "framework": "the framework"}.get(tier, "the application")
