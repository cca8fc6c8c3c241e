"""Conditions and evidence for the tests of the condition language."""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.conditions.ast import Condition
from latdoctor.conditions.evaluator import Facts
from latdoctor.conditions.parser import parse_condition
from latdoctor.errors import Problem
from latdoctor.evidence.model import Event, Evidence, Gap, Labels, Origin, Reading, Subject, Value, Window
from latdoctor.strict_yaml import parse

Remembered = Mapping[tuple[str, str], float]


def read(text: str) -> tuple[Condition | None, list[Problem]]:
    """The condition written as YAML in `text`, and what is wrong with it."""
    problems: list[Problem] = []
    return parse_condition(parse(text.encode(), "rule.yaml"), problems), problems


def condition(text: str) -> Condition:
    found, problems = read(text)
    assert not problems, [str(problem) for problem in problems]
    assert found is not None
    return found


def reading(
    signal: str,
    value: Value,
    subject: str = "model/a",
    *,
    labels: Labels = (),
    end: float | None = None,
    bound: str = "",
) -> Reading:
    return Reading(signal, subject, value, Origin("page.txt", signal), Window(None, end), labels, bound=bound)


def xid(code: Value, subject: str = "gpu/0") -> Event:
    return Event("log.xid", subject, Origin("dmesg.log", "line 1"), {"code": code}, text=f"Xid {code}")


def facts(
    *readings: Reading,
    parents: Mapping[str, str] | None = None,
    events: tuple[Event, ...] = (),
    looked: tuple[tuple[str, str], ...] = (),
    clipped: tuple[tuple[str, str], ...] = (),
    gaps: tuple[Gap, ...] = (),
    slo: Mapping[str, float] | None = None,
    baseline: Remembered | None = None,
    before: Remembered | None = None,
) -> Facts:
    subjects = tuple(Subject(child, parent) for child, parent in (parents or {}).items())
    evidence = Evidence(subjects, readings, events=events, looked=looked, gaps=gaps, clipped=clipped)
    return Facts(evidence, slo or {}, baseline or {}, before or {})
