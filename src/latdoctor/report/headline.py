"""The verdict line: what users suffer in numbers and since when, or what was not measured."""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.diagnosis.codes import AnswerKind, CheckStatus, FindingKind, Level, UserImpact
from latdoctor.diagnosis.result import Check, Diagnosis, Vital
from latdoctor.gap_code import GapCode
from latdoctor.report import cluster_signs, diagnosis_text, gpu_signs, log_signs, time_scope
from latdoctor.report.vital_signs import IDLE, P99, RATES, file_noun, headline_latency, phrase
from latdoctor.units import format_value

_FAILURES = frozenset(
    [
        "kube.unschedulable",
        "kube.probe_failed",
        "log.engine_dead",
        "log.engine_timeout",
        "oom.requested",
        "log.memory_refused",
        "log.fatal_error",
        "log.cpu_fallback",
    ]
)
_RESTARTS = frozenset({"pod.restarts", "container.oom_kills", "client.error_ratio", "alloc.ooms"})
_READY = frozenset({"pod.ready", "node.ready", "workload.replicas_ready"})
_MEAN = "latency.mean"
_LATENCY = {*P99, "latency.mean", "client.latency.mean"}
_NAMED = 3  # of the essentials that were not measured


def harm(diagnosis: Diagnosis) -> str:
    """What users suffer, in numbers, and since when; else what is known instead."""
    level = diagnosis.verdict.level
    signs = {one.signal: one for one in diagnosis.vitals}
    outage = _outage(diagnosis)
    numbers = [*outage, *_latency_phrase(diagnosis), *_load_phrases(signs, level)]
    said = ", ".join([*numbers, *filter(None, [time_scope.since(diagnosis)])])
    if level == Level.INCONCLUSIVE:
        return _inconclusive(diagnosis, said)
    if not numbers or not (outage or signs.keys() & _LATENCY):
        impact = next((cause.impact for cause in diagnosis.causes if cause.named), None)
        unmeasured = "user impact not measured" if impact == UserImpact.NOT_MEASURED else ""
        found = "condition found" if diagnosis.answer.kind == AnswerKind.NAMED else ""
        said = "; ".join(part for part in (said, found, unmeasured) if part)
    return said or _symptom(diagnosis)


def _outage(diagnosis: Diagnosis) -> list[str]:
    """Why requests get no answer, where they get none."""
    fired = [check for check in diagnosis.checks if check.outage and check.status == CheckStatus.FIRED]
    return [fired[0].message.partition(": ")[0]] if fired else []


def _latency_phrase(diagnosis: Diagnosis) -> list[str]:
    """The best known latency: P99 with its SLO, else the mean, else the time to the first token."""
    best = headline_latency(diagnosis)
    if best is None:
        return []
    return [phrase(best) + _slo(diagnosis, best.signal)]


def _slo(diagnosis: Diagnosis, signal: str) -> str:
    """The limit behind a latency that it is about; a mean is held against it where nothing better is known."""
    if not diagnosis.slo_p99 or signal not in (*P99, _MEAN):
        return ""
    return f" (SLO {'for P99 ' if signal == _MEAN else ''}{format_value(diagnosis.slo_p99, 'time')})"


def _load_phrases(signs: Mapping[str, Vital], level: Level) -> list[str]:
    """Errors, where there are any or the service is called healthy, and the rates; without them the requests."""
    known = [name for name in ("error.ratio", "client.error_ratio") if name in signs]
    shown = [name for name in known if _is_over(signs[name], 0)]
    if level == Level.HEALTHY and not shown:
        shown = known[:1]
    load = [name for name in RATES if name in signs] or ["request.count"]
    return [phrase(signs[name]) for name in (*shown, *load) if name in signs]


def _inconclusive(diagnosis: Diagnosis, said: str) -> str:
    stale = next((gap for gap in diagnosis.gaps if gap.code == GapCode.STALE), None)
    if stale and not diagnosis.vitals:
        return f"nothing read lies in the judged time: {stale.reason.rpartition(': ')[2]}"
    fired = any(check.status == CheckStatus.FIRED for check in diagnosis.checks)
    busy = next((one for one in diagnosis.vitals if one.signal == "gpu.busy_ratio"), None)
    idle = busy is not None and not _is_over(busy, IDLE)
    reported = gpu_signs.reports(diagnosis) or log_signs.unjudged(diagnosis) or cluster_signs.reports(diagnosis)
    alarming = (
        idle
        or bool(time_scope.since(diagnosis))
        or bool(reported)
        or any(_is_alarming(one) for one in diagnosis.vitals)
        or not _lacking(diagnosis)
    )
    nothing = "no cause found" if fired or alarming else "nothing wrong found"
    noun = file_noun(diagnosis)
    active = any(one.signal.startswith(("trace.kernel", "kernel.")) for one in diagnosis.vitals)
    if noun == "trace" and busy is None and not active and not said:
        return f"{nothing} in this trace, which has no GPU activity"
    if noun and not said:
        why = f": its GPU has work for {busy.shown} of the time" if busy is not None and idle else ""
        return f"{nothing} in this {noun}{why}; latency and load were not in it"
    return "; ".join(part for part in (said, f"{nothing}; {_missing(diagnosis)}") if part)


def _is_alarming(sign: Vital) -> bool:
    """Whether a vital sign by itself says that something is wrong, though no rule names a cause for it."""
    if sign.signal in _FAILURES or gpu_signs.is_alarming(sign):
        return True
    if sign.signal in _RESTARTS:
        return _is_over(sign, 0)
    ready, of, all_of_them = sign.shown.partition(" of ")
    return sign.signal in _READY and bool(of) and ready != all_of_them


def _symptom(diagnosis: Diagnosis) -> str:
    fired = [check for check in diagnosis.checks if check.status == CheckStatus.FIRED and check.severity]
    return fired[0].message if fired else "see -v"


def _is_over(sign: Vital, limit: float) -> bool:
    return not isinstance(sign.value, str) and sign.value > limit


def _lacking(diagnosis: Diagnosis) -> list[Check]:
    """The essentials that were not measured."""
    return [one for one in diagnosis.checks if one.required and one.status == CheckStatus.NOT_EVALUATED]


def _missing(diagnosis: Diagnosis) -> str:
    """The kinds of essentials that were not measured, the harm to users first, in the user's words."""
    lacking = _lacking(diagnosis)
    judged = {one.id for one in diagnosis.checks if one.status in (CheckStatus.FIRED, CheckStatus.CLEAR)}
    if "client-p99-over-slo" in judged:  # the same question, answered where users are
        lacking = [one for one in lacking if one.id != "p99-over-slo"]
    lacking.sort(key=lambda check: check.kind != FindingKind.SYMPTOM)
    nouns = list(
        dict.fromkeys(diagnosis_text.ESSENTIALS.get(one.id, diagnosis_text.tier_noun(one.tier)) for one in lacking)
    )
    if not nouns:
        return next(iter(diagnosis.verdict.reasons), "too little was measured to call it healthy")
    more = f" and {len(nouns) - _NAMED} more" if len(nouns) > _NAMED else ""
    return f"not measured: {', '.join(nouns[:_NAMED])}{more}"
