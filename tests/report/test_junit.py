"""The outcome of rule tests as CI servers read it."""

from __future__ import annotations

from xml.etree import ElementTree

from latdoctor.diagnosis.diagnose import Case
from latdoctor.diagnosis.rule_tests import CaseResult, RuleCase
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.model import Evidence, Window
from latdoctor.report import machine_formats


def parsed(document: str) -> ElementTree.Element:
    return ElementTree.fromstring(document)  # noqa: S314 — written by ourselves just now


EMPTY = Case(Context("case"), Window(), Evidence(), {})


def outcome(cause: str, name: str, *failures: str) -> CaseResult:
    return CaseResult(RuleCase(cause, name, EMPTY, {}, "", f"own/cases/{cause}.yaml:7"), failures)


def test_each_cause_is_a_suite_and_each_case_has_its_place() -> None:
    outcomes = [
        outcome("a.b", "fires"),
        outcome("c.d", "fires", "named [], expected ['c.d']", "more"),
        outcome("a.b", "x"),
    ]
    root = parsed(machine_formats.render_junit(outcomes))
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("errors")) == ("testsuites", "3", "1", "0")
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in root] == [
        ("a.b", "2", "0"),
        ("c.d", "1", "1"),
    ]
    case = root[1][0]
    assert case.attrib == {"classname": "c.d", "name": "fires", "file": "own/cases/c.d.yaml", "line": "7"}
    (failure,) = case
    assert failure.get("message") == "named [], expected ['c.d']"
    assert failure.text == "named [], expected ['c.d']\nmore"
    assert [list(case) for case in root[0]] == [[], []]


def test_nothing_breaks_the_document() -> None:
    nasty = "]]> <failure/> & \x1b[31m\x00 \u202e \ud800"
    root = parsed(machine_formats.render_junit([outcome("a.b", nasty, nasty)]))
    name = root[0][0].get("name") or ""
    assert name.startswith("]]> <failure/> & ")
    assert "\x1b" not in name
    assert "\x00" not in name


def test_no_case_is_a_document_too() -> None:
    assert parsed(machine_formats.render_junit([])).get("tests") == "0"
