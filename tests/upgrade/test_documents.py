"""Documents that an earlier version wrote are still read."""

from __future__ import annotations

import json
from pathlib import Path

import zstandard

from latdoctor.diagnosis.document import parse_diagnosis

V1 = Path(__file__).parent / "v1"


def test_a_diagnosis_of_schema_version_1_is_read_with_its_answer() -> None:
    """Made by version 0.1.0: `latdoctor diagnose fixtures/incidents/promo-rush.tar.zst -o json`."""
    raw = zstandard.ZstdDecompressor().decompress((V1 / "diagnosis.json.zst").read_bytes())
    old, read = json.loads(raw), parse_diagnosis(raw)
    assert old["schema_version"] == "1"
    assert read.verdict.level == old["verdict"]["level"]
    assert [(one.id, one.named, one.probability) for one in read.causes] == [
        (one["id"], one["named"], one["probability"]) for one in old["causes"]
    ]
    assert [(one.id, one.status, one.message) for one in read.checks] == [
        (one["id"], one["status"], one["says"]) for one in old["checks"]
    ]
    assert [one.remediation for one in read.causes] == [one["mend"] for one in old["causes"]]
