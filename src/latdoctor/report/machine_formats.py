"""Documents for other programs: JSON with its JSON Schema, and JUnit XML of the tests of rules.

Every JSON key is present, null or empty rather than omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec
from msgspec import Struct

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_tests import CaseResult
from latdoctor.incident.timeline_model import Timeline
from latdoctor.sanitize import clean

_MAX_TEXT = 4000  # characters of one text in JUnit XML


def render_diagnosis(diagnosis: Diagnosis) -> str:
    """Indented JSON, keys in the order of the types."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode()


def diagnosis_line(diagnosis: Diagnosis) -> str:
    """The same on one line, for streams of diagnoses."""
    return msgspec.json.encode(diagnosis).decode()


def diagnosis_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document, generated from the types."""
    return schema_of(Diagnosis, "latdoctor diagnosis")


def render_timeline(timeline: Timeline) -> str:
    """Indented JSON, keys in the order of the types; all keys are present."""
    return msgspec.json.format(msgspec.json.encode(timeline), indent=2).decode() + "\n"


def parse_timeline(raw: bytes) -> Timeline:
    """A saved timeline. Raises msgspec.ValidationError or msgspec.DecodeError."""
    return msgspec.json.decode(raw, type=Timeline)


def timeline_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document, generated from the types."""
    return schema_of(Timeline, "latdoctor timeline")


def schema_of(document: type[Struct], title: str) -> dict[str, Any]:
    schema = msgspec.json.schema(document)
    for defined in schema["$defs"].values():
        if "properties" in defined:  # keys with a default are written too
            defined["required"] = list(defined["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def render_junit(outcomes: Sequence[CaseResult]) -> str:
    """Tests of rules as JUnit XML, one suite for each cause; every case has its file and line."""
    suites = ElementTree.Element("testsuites", {"name": "latdoctor rules", **_junit_counts(outcomes)})
    causes = dict.fromkeys(outcome.case.cause for outcome in outcomes)
    for cause in causes:
        own = [outcome for outcome in outcomes if outcome.case.cause == cause]
        suite = ElementTree.SubElement(suites, "testsuite", {"name": clean(cause), **_junit_counts(own)})
        for outcome in own:
            _junit_case(suite, outcome)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _junit_counts(outcomes: Sequence[CaseResult]) -> dict[str, str]:
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    return {"tests": str(len(outcomes)), "failures": str(failed), "errors": "0", "skipped": "0"}


def _junit_case(suite: ElementTree.Element, outcome: CaseResult) -> None:
    file, _, line = outcome.case.where.rpartition(":")
    place = {"classname": outcome.case.cause, "name": outcome.case.name, "file": file, "line": line}
    case = ElementTree.SubElement(suite, "testcase", {key: clean(text) for key, text in place.items()})
    if outcome.failures:
        first = clean(outcome.failures[0], _MAX_TEXT)
        failure = ElementTree.SubElement(case, "failure", message=first, type="expectation")
        failure.text = "\n".join(clean(text, _MAX_TEXT) for text in outcome.failures)
