"""The JSON document: it keeps to its schema, holds every key, and can be read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from latdoctor.collectors import COLLECTORS
from latdoctor.diagnosis import document
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.report import machine_formats
from tests.cli.running import run

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "fixtures" / "incidents" / "gpu-thermal"


@pytest.fixture(scope="module")
def printed() -> str:
    return run(["diagnose", str(BUNDLE), "-o", "json"]).out


@pytest.fixture(scope="module")
def nothing_seen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The emptiest answer there is: most keys have nothing to tell."""
    log = tmp_path_factory.mktemp("empty") / "some.log"
    log.write_text("hello\n")
    return run(["diagnose", "--log", str(log), "-o", "json"]).out


@pytest.fixture(params=["printed", "nothing_seen"])
def text(request: pytest.FixtureRequest) -> str:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, str)
    return found


def test_it_keeps_to_the_shipped_schema(text: str) -> None:
    schema = json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


def test_the_schema_refuses_what_lacks_a_key(printed: str) -> None:
    for key in json.loads(printed):
        damaged = json.loads(printed)
        del damaged[key]
        with pytest.raises(jsonschema.ValidationError, match=f"'{key}' is a required property"):
            jsonschema.validate(damaged, machine_formats.diagnosis_schema(), jsonschema.Draft202012Validator)


def test_every_key_is_always_there(text: str) -> None:
    diagnosis = document.parse_diagnosis(text.encode())
    assert list(_lacking(diagnosis, json.loads(text), "")) == []


def _lacking(value: object, written: Any, where: str) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            if field not in written:
                yield f"{where}.{field}"
            else:
                yield from _lacking(getattr(value, field), written[field], f"{where}.{field}")
    elif isinstance(value, tuple):
        for n, item in enumerate(value):
            yield from _lacking(item, written[n], f"{where}[{n}]")


def test_it_is_read_back_as_it_was(text: str) -> None:
    diagnosis = document.parse_diagnosis(text.encode())
    assert isinstance(diagnosis, Diagnosis)
    assert machine_formats.render_diagnosis(diagnosis) == text.rstrip("\n")
    assert document.parse_diagnosis(machine_formats.diagnosis_line(diagnosis).encode()) == diagnosis
    assert "\n" not in machine_formats.diagnosis_line(diagnosis)


def test_every_check_is_in_the_document_with_a_status_and_a_reason(text: str) -> None:
    said = json.loads(text)
    assert said["schema_version"] == "2"
    ids = [check["id"] for check in said["checks"]]
    assert len(ids) == len(set(ids)) >= 70
    for check in said["checks"]:
        assert check["status"] in ("fired", "clear", "not-evaluated", "not-applicable")
        assert bool(check["reason"]) == (check["status"] in ("not-evaluated", "not-applicable"))
    assert [row["collector"] for row in said["coverage"]] == [collector.name for collector in COLLECTORS]
