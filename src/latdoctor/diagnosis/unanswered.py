"""Requests that arrive and are not answered: those that were answered may be fast, and the service is not healthy."""

from __future__ import annotations

import math

from latdoctor.diagnosis.codes import Level
from latdoctor.diagnosis.result import Verdict
from latdoctor.evidence.model import Evidence, Reading, is_unknown

_ANSWERED = 0.75  # share of the requests that is answered within the window, at least
_CHANCE = 3.0  # standard deviations by which two counts of the same rate differ, at most


def verdict_by_answers(found: Verdict, evidence: Evidence) -> Verdict:
    """`found`, but healthy only where about as many requests are answered as arrive."""
    if found.level is not Level.HEALTHY:
        return found
    doubts = tuple(_doubts(evidence))
    if not doubts:
        return found
    return Verdict(Level.INCONCLUSIVE, "nothing is slow, but many requests are not answered", doubts)


def _doubts(evidence: Evidence) -> list[str]:
    arrivals, answers = _rates(evidence, "arrival.rate"), _rates(evidence, "completion.rate")
    return [
        f"{100 * (1 - float(answers[subject].value) / float(arrivals[subject].value)):.0f} % of the requests that "
        f"arrive at {subject} are not answered"
        for subject in arrivals
        if subject in answers and _fewer(arrivals[subject], answers[subject])
    ]


def _rates(evidence: Evidence, signal: str) -> dict[str, Reading]:
    """By subject, where it is known exactly."""
    return {
        one.subject: one
        for one in evidence.readings
        if one.signal == signal and not one.labels and not one.bound and not is_unknown(one.value)
    }


def _fewer(arriving: Reading, answered: Reading) -> bool:
    """Whether the answers of a window lag behind by more than counts do by chance."""
    window, came, went = arriving.window, arriving.value, answered.value
    if window is None or window.start is None or window.end is None or isinstance(came, str) or isinstance(went, str):
        return False
    seconds = window.end - window.start
    return went < _ANSWERED * came and (came - went) * seconds > _CHANCE * math.sqrt(2 * came * seconds)
