"""Tests of rules in the form that CI servers show: JUnit's XML, one suite for each cause."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from latdoctor.diagnosis.rule_tests import Outcome
from latdoctor.sanitize import clean

_LONGEST = 4000  # characters of one text


def render(outcomes: Sequence[Outcome]) -> str:
    """The document; every case names its file and line, so that a CI server can point at them."""
    suites = ElementTree.Element("testsuites", {"name": "latdoctor rules", **_counts(outcomes)})
    causes = dict.fromkeys(outcome.case.cause for outcome in outcomes)
    for cause in causes:
        own = [outcome for outcome in outcomes if outcome.case.cause == cause]
        suite = ElementTree.SubElement(suites, "testsuite", {"name": clean(cause), **_counts(own)})
        for outcome in own:
            _case(suite, outcome)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    return {"tests": str(len(outcomes)), "failures": str(failed), "errors": "0", "skipped": "0"}


def _case(suite: ElementTree.Element, outcome: Outcome) -> None:
    file, _, line = outcome.case.where.rpartition(":")
    place = {"classname": outcome.case.cause, "name": outcome.case.name, "file": file, "line": line}
    case = ElementTree.SubElement(suite, "testcase", {key: clean(text) for key, text in place.items()})
    if outcome.failures:
        first = clean(outcome.failures[0], _LONGEST)
        failure = ElementTree.SubElement(case, "failure", message=first, type="expectation")
        failure.text = "\n".join(clean(text, _LONGEST) for text in outcome.failures)
