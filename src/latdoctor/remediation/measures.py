"""What is still not well though a change has proved itself: the SLO is promised to users, a playbook promises less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from latdoctor.conditions.evaluator import show
from latdoctor.remediation.observation import Observation, signals_judged
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.run_result import Measure

_TERMS = (("latency.p99", "slo.p99", "P99"), ("error.ratio", "slo.error_ratio", "error ratio"))


NOTABLE = 0.01  # error ratio that is told of where none was promised: what a hundredth user meets


def unmet(measures: Sequence[Measure], slo: Mapping[str, float]) -> tuple[str, ...]:
    """What the last look shows over `slo` (slo.p99 in seconds, slo.error_ratio), or does not show: that is unknown.

    Without a promise a failing request is told of where there are more of them than before the change.
    """
    found: list[str] = []
    for signal, term, word in _TERMS:
        of_it = [one for one in measures if one.signal == signal]
        if term in slo:
            found += _over(of_it, slo[term], word) if of_it else [f"{word} was not seen: nobody knows of its SLO"]
        elif signal == "error.ratio":
            found += _more(of_it, word)
    return tuple(found)


def _over(measures: Sequence[Measure], limit: float, word: str) -> Iterator[str]:
    for one in measures:
        whose = f"{word}{f' of {one.subject}' if len(measures) > 1 else ''}"
        allowed = show(one.signal, limit)
        if one.after is None:
            yield f"{whose} was not seen in the last look: whether it meets the SLO of {allowed} is unknown"
        elif one.after > limit:
            yield f"{whose} {show(one.signal, one.after)} is still over the SLO of {allowed}"


def _more(measures: Sequence[Measure], word: str) -> Iterator[str]:
    for one in measures:
        if one.after is not None and one.after >= NOTABLE and one.after > one.before:
            whose = f"{word}{f' of {one.subject}' if len(measures) > 1 else ''}"
            yield f"{whose} {show(one.signal, one.after)}, and {show(one.signal, one.before)} before"


ALWAYS = ("latency.p99", "error.ratio", "arrival.rate", "queue.depth")


def measures(playbook: Playbook, before: Observation | None, after: Observation | None = None) -> tuple[Measure, ...]:
    """What the playbook's verification speaks of, and the usual pains, where a number was seen before."""
    if before is None:
        return ()
    verify = playbook.verify
    wanted = (*ALWAYS, *signals_judged([*verify.succeed, *verify.abort]))
    now = after.remembered if after else {}
    return tuple(
        Measure(signal, subject, value, now.get((signal, subject)))
        for name in dict.fromkeys(wanted)
        for (signal, subject), value in before.remembered.items()
        if signal == name
    )
