"""A diagnosis arranged for reading: the pieces that console and Markdown both print, without any markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from latdoctor.conditions.evaluator import HOLDS, Atom
from latdoctor.diagnosis.codes import Level, ReasonCode, UserImpact
from latdoctor.diagnosis.evaluate import FIRED
from latdoctor.diagnosis.recommend import first_playbook, playbooks_for
from latdoctor.diagnosis.result import Check, Diagnosis, RankedCause, RuledOut, Tier
from latdoctor.evidence.model import Origin
from latdoctor.report.playbook import advised
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
    """How many checks lack a source, and what would show most of them; empty where there are none."""
    lacking = [check for check in diagnosis.checks if check.source_missing]
    if not lacking:
        return ""
    counts = Counter(option for check in lacking for option in {o for reason in check.reasons for o in reason.options})
    (first, most), *others = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = "".join(f", {option} {count}" for option, count in others[: _SHOWN - 1])
    return f"no source for {len(lacking)} checks: {first} would show {most} of them{more}"


def unexplained(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What fired and what no named cause expects. Where none is named: what would expect it, but is ruled out."""
    answer = diagnosis.answer
    message = {check.id: check.message for check in diagnosis.checks}
    ruled_out = () if answer.causes else answer.ruled_out
    unfit = {name: row for row in reversed(ruled_out) for name in row.explains}
    return tuple(
        f"{message[name]}{_unfit(unfit[name], message) if name in unfit else ''}" for name in answer.unexplained
    )


def _unfit(ruled_out: RuledOut, message: Mapping[str, str]) -> str:
    return f" (fits {ruled_out.cause}, which is ruled out: {'; '.join(message[name] for name in ruled_out.by)})"


_LISTED = 4  # of the things that one gap says the same of


def gap_lines(diagnosis: Diagnosis, *, every: bool) -> tuple[str, ...]:
    """What could not be seen and what to do about it, the gaps that left most checks unevaluated first.

    One line for several subjects of which the same is said, and for several things with the same hint.
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
    for (source, said, next_step), about in subjects.items():
        head, colon, tail = said.rpartition(": ")
        alike.setdefault((source, _cut(about, ", ", every=every), head + colon, next_step), []).append(tail)
    return tuple(_gap_line(*key, _cut(tails, "; ", every=every)) for key, tails in alike.items())


def _cut(names: Sequence[str], separator: str, *, every: bool) -> str:
    shown = names if every else names[:_LISTED]
    return separator.join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _gap_line(source: str, about: str, head: str, next_step: str, said: str) -> str:
    reader = "" if source == "derived" else f"{source.replace('_', ' ')}: "
    subject = f"{about}: " if about else ""
    return f"{reader}{subject}{head}{said}" + (f" — {next_step}" if next_step else "")


FOR, AGAINST, UNSEEN = "for", "against", "not seen"
_NOWHERE = "not shown by what was read"
NEAR = 0.1  # a cause that is less likely is not worth a tired person's time
_MUCH = 3  # checks hidden for one reason, from which on the compact answer tells of it
_NAME_WIDTH = 44
_LONG_LIST = re.compile(r"\[((?:[^,\]]+, ){3})(?:[^,\]]+, ){2,}[^,\]]+\]")
_TIER_NUMBER = {"infrastructure": 1, "framework": 2, "application": 3}
_SEEN = {"seen": "seen", "partly": "seen in part", "unseen": "not seen", "not-applicable": "does not apply"}


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One finding for, against, or missing for a cause, with the numbers and where they were read."""

    kind: str
    message: str
    details: tuple[str, ...] = ()
    unlooked: bool = False  # missing only because no source was given that shows it


@dataclass(frozen=True, slots=True)
class TierLine:
    heading: str
    counts: str
    fired: tuple[EvidenceLine, ...]
    clear: tuple[EvidenceLine, ...]
    not_evaluated: tuple[str, ...]  # reasons, with what they hide
    not_evaluated_otherwise: tuple[str, ...]  # those of them that no other source would mend, and that hide much


def headline(diagnosis: Diagnosis) -> str:
    """The verdict in one line."""
    level, message = diagnosis.verdict.level, diagnosis.verdict.message
    # Every message but this one begins with its level.
    return f"{level.upper()}: {message}" if level is Level.INCONCLUSIVE else level.upper() + message[len(level) :]


def site_line(diagnosis: Diagnosis) -> str:
    """What was judged by limits of the site, or not judged as it wishes; empty where all is as shipped."""
    limited = sum(check.site and bool(check.atoms) for check in diagnosis.checks)
    disabled = sum(reason.code == ReasonCode.DISABLED for check in diagnosis.checks for reason in check.reasons)
    known = [f"{limited} judged by site thresholds"] if limited else []
    known += [f"{disabled} disabled by the site"] if disabled else []
    findings = [f"of the findings, {' and '.join(known)} (-v)"] if known else []
    causes = diagnosis.disabled_causes
    left_out = [f"not ranked, disabled by the site: {', '.join(causes)}"] if causes else []
    return "; ".join((*findings, *left_out))


def shortened(name: str, width: int = _NAME_WIDTH) -> str:
    """A long name by its two ends, which tell it from others, in `width` columns or one more."""
    if cell_len(name) <= width:
        return name
    half = width // 2
    end = next(name[place:] for place in range(len(name) + 1) if cell_len(name[place:]) <= half)
    return f"{set_cell_size(name, half).rstrip()}…{end}"


def answer_line(diagnosis: Diagnosis) -> str:
    """What the answer is, where no single line about a cause says it."""
    answer = diagnosis.answer
    if answer.kind == "one-of":
        return f"one of: {', '.join(answer.causes)}"
    if answer.kind == "unexplained":
        return f"no cause of the catalogue explains what was seen{_nearest(diagnosis)}"
    return "no cause found" if answer.kind == "none" else ""


def _nearest(diagnosis: Diagnosis) -> str:
    """The likeliest cause, where it is not likely enough to be named and still worth a look."""
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
    """The findings for, against and missing, each with its numbers."""
    checks = {check.id: check for check in diagnosis.checks}
    lines = [EvidenceLine(FOR, checks[name].message, details(checks[name])) for name in cause.evidence_for]
    for name in cause.evidence_against:
        check = checks[name]
        lines.append(EvidenceLine(AGAINST, check.message, details(check)))
    lines += [
        EvidenceLine(UNSEEN, f"{name} ({checks[name].reason})", unlooked=checks[name].source_missing)
        for name in cause.unseen
    ]
    return tuple(lines)


def details(check: Check) -> tuple[str, ...]:
    """Each comparison with its value, limit, subject, and place: what a person needs to go and look.

    Of what fired for one of several reasons, those that hold: a number within its limit is no reason. Only where none
    holds, as in a "not", all are shown.
    """
    several = len(check.subjects) > 1
    holding = [atom for atom in check.atoms if atom.status == HOLDS] if check.status == FIRED else []
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
    """Where it was read; a long artifact name keeps its two ends."""
    return str(Origin(shortened(origin.artifact), origin.place)) if origin.artifact else origin.place


def advice(cause: RankedCause) -> tuple[tuple[str, str], ...]:
    """What to do, by which playbook, whom to wake, and what not to do yet."""
    rows = [("do", cause.remediation)]
    if playbook := first_playbook(cause):
        rows.append(("mend", advised(playbook)))
    if cause.owner:
        rows.append(("wake", cause.owner))
    if cause.keep_evidence:
        rows.append(("keep", "do not restart yet: the evidence would be lost (latdoctor collect first)"))
    return tuple(rows)


def account_rows(cause: RankedCause) -> tuple[tuple[str, str], ...]:
    """The account of the probability; the rows add up to the total as printed."""
    rows = [(f"{row.points:+d}", row.message) for row in cause.contributions]
    total = sum(row.points for row in cause.contributions)
    return (*rows, (f"{total:+d}", "total: 10 points = ten times likelier"))


def tier_lines(diagnosis: Diagnosis) -> tuple[TierLine, ...]:
    """The walk over the three tiers."""
    checks = {check.id: check for check in diagnosis.checks}
    known = {name for cause in diagnosis.causes for name in cause.evidence_for}
    known |= {check.id for check in diagnosis.checks if check.kind != "specific"}  # they have a section of their own
    return tuple(_tier_line(tier, checks, known) for tier in diagnosis.tiers)


def _tier_line(tier: Tier, checks: Mapping[str, Check], told: Set[str]) -> TierLine:
    """One tier; the numbers of a finding that is `told` of stand with its cause already."""
    counts = {
        "fired": len(tier.fired),
        "clear": len(tier.clear),
        "not evaluated": len(tier.not_evaluated),
        "not applicable": len(tier.not_applicable),
    }
    unseen = [checks[name] for name in tier.not_evaluated]
    return TierLine(
        heading=f"{_TIER_NUMBER.get(tier.name, 0)} {tier.name}: {_SEEN[tier.seen]}",
        counts=" · ".join(f"{count} {name}" for name, count in counts.items() if count),
        fired=tuple(
            EvidenceLine(FOR, checks[name].message, () if name in told else details(checks[name]))
            for name in tier.fired
        ),
        clear=tuple(EvidenceLine(AGAINST, checks[name].message, details(checks[name])) for name in tier.clear),
        not_evaluated=_grouped(unseen),
        not_evaluated_otherwise=_grouped(
            (one for one in unseen if not (one.source_missing or _is_nowhere(one))), _MUCH
        ),
    )


def _grouped(checks: Iterable[Check], least: int = 1) -> tuple[str, ...]:
    """Checks that were not evaluated, one line a reason: what can be done something about first, then the commonest.

    Reasons that hide fewer than `least` are left out.
    """
    reasons: dict[str, list[str]] = {}
    for check in checks:
        reason = _NOWHERE if _is_nowhere(check) else check.reason
        reasons.setdefault(reason, []).append(check.id)
    ordered = sorted(reasons.items(), key=lambda item: (item[0] == _NOWHERE, -len(item[1])))
    return tuple(f"{reason} — hides {_some(names)}" for reason, names in ordered if len(names) >= least)


def _is_nowhere(check: Check) -> bool:
    return bool(check.reasons) and all(reason.code == ReasonCode.NOT_SHOWN for reason in check.reasons)


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def symptoms(diagnosis: Diagnosis) -> tuple[EvidenceLine, ...]:
    """The symptoms that fired, and the required ones that could not be judged."""
    lines = []
    for check in diagnosis.checks:
        if check.kind == "specific":
            continue
        if check.status == "fired":
            lines.append(EvidenceLine(FOR, check.message, details(check)))
        elif check.required and check.status == "not-evaluated":
            lines.append(EvidenceLine(UNSEEN, f"{check.id}: {check.reason}"))
    return tuple(lines)


def next_steps(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What to type or do next: the answer always ends in one."""
    named = [cause for cause in diagnosis.causes if cause.id in diagnosis.answer.causes]
    steps = [
        f"latdoctor remediate --playbook {playbook} --server URL (shows what it would change; --apply does it)"
        for playbook in playbooks_for(named)[:2]
    ]
    steps += [f"latdoctor explain {cause.id}" for cause in named[:2]]
    for look in diagnosis.next_looks[:2]:
        steps.append(f"look with {look.ask}: it {look.cost} and would show {', '.join(look.checks)}")
    if diagnosis.answer.causes and not diagnosis.next_looks:
        steps.append("no other source would change this ranking")
    lacking = [reason for check in diagnosis.checks if check.required for reason in check.reasons]
    if any(one.code == ReasonCode.NOT_SHOWN and "latency.p99" in one.signals for one in lacking):
        steps.append("watch the server's own metrics page (--server URL): nothing that was read tells its P99")
    if any(one.code == ReasonCode.NO_SLO for one in lacking):
        steps.append("give the SLO, such as --slo 500ms: without an SLO nobody can say whether this is slow")
    return tuple(steps) or ("latdoctor preflight",)


def tier_noun(tier: str) -> str:
    """What a tier is about, for a reader."""
    return {"infrastructure": "the GPU and the host", "framework": "the framework"}.get(tier, "the application")
