"""What is kept of a look, and which time it speaks of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import UsageError
from latdoctor.evidence.bundle import Artifact, Bundle, Context, Redaction
from latdoctor.evidence.model import Gap, Window
from latdoctor.incident.events import DiagnosisRecord
from latdoctor.incident.evidence_store import diagnosis_record, load_diagnosis, store_evidence
from tests.diagnosis.small_rules import small_rules, told

BUNDLE = Bundle(
    Context("shop"), Window(100.0, 110.0), (Artifact("log/a.log", "logs", "a", "a.log", 1.0, b"from 10.1.2.3\n"),)
)


@pytest.fixture
def diagnosis(tmp_path: Path) -> Diagnosis:
    return told(small_rules(tmp_path / "rules"), hot=True, power=True, slow=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


def test_numbers_follow_each_other_and_nothing_is_written_over(place: Path, diagnosis: Diagnosis) -> None:
    looks = place / "incidents" / "inc-1" / "looks"
    first = store_evidence(place, "inc-1", BUNDLE, diagnosis).diagnosed
    assert (first.document, first.bundle) == ("incidents/inc-1/looks/1.json", "incidents/inc-1/looks/1.tar.zst")
    (looks / "7.json").write_text("of one that was killed")
    second = store_evidence(place, "inc-1", BUNDLE, diagnosis).diagnosed
    assert second.document == "incidents/inc-1/looks/8.json"
    assert load_diagnosis(place, first) == load_diagnosis(place, second) == diagnosis
    assert b"10.1.2.3" not in (looks / "1.tar.zst").read_bytes()


def test_read_pages_are_recorded_by_address(place: Path, diagnosis: Diagnosis) -> None:
    pages = tuple(
        Artifact(f"prometheus/{number}.prom", "prometheus", group, group, 100.0, b"up 1\n")
        for number, group in enumerate(["http://10.1.2.3:8000/metrics"] * 2 + ["page.prom", "http://b:1/metrics"])
    )
    live = replace(BUNDLE, artifacts=(*BUNDLE.artifacts, *pages))
    found = store_evidence(place, "inc-1", live, diagnosis).diagnosed
    assert found.servers == ("http://10.1.2.3:8000/metrics", "http://b:1/metrics")
    replayed = replace(live, redaction=Redaction())
    assert store_evidence(place, "inc-1", replayed, diagnosis).diagnosed.servers == ()


def test_storage_error_is_reported_and_the_rest_journaled(place: Path, diagnosis: Diagnosis) -> None:
    looks = place / "incidents" / "inc-1" / "looks"
    looks.mkdir(parents=True, mode=0o700)
    (looks / "1.tar.zst").write_text("in the way")
    found = store_evidence(place, "inc-1", BUNDLE, diagnosis)
    assert (found.diagnosed.document, found.diagnosed.bundle) == ("incidents/inc-1/looks/1.json", "")
    assert found.troubles == ("the evidence could not be stored: already exists",)
    with pytest.raises(UsageError):
        store_evidence(place, "../inc", BUNDLE, diagnosis)


def test_a_document_that_is_gone_or_no_diagnosis_is_none(place: Path) -> None:
    (place / "x.json").write_text("{}")
    for name in ("", "gone.json", "x.json"):
        assert load_diagnosis(place, DiagnosisRecord("r", "t", "critical", "s", "none", (), (), document=name)) is None


@pytest.mark.parametrize(
    ("looked", "evidence", "expected"),
    [
        (Window(100, 110), Window(), (100, 110)),
        (Window(100, 110), Window(99, 109), (100, 109)),  # a reading that reaches back a little
        (Window(100, 110), Window(-3500, 110), (-3500, 110)),  # a history
        (Window(1000, 1010), Window(100, 200), (100, 200)),  # a log of earlier
        (Window(), Window(), (None, None)),
    ],
)
def test_of_which_time_it_speaks(
    diagnosis: Diagnosis, looked: Window, evidence: Window, expected: tuple[float | None, float | None]
) -> None:
    found = diagnosis_record(structs.replace(diagnosis, window=looked, evidence_window=evidence))
    assert (found.seen_from, found.seen_until) == expected


def test_in_short_it_is_short_and_clean(diagnosis: Diagnosis) -> None:
    gaps = tuple(Gap("log", f"{number} \x1b[2J{'x' * 9000}", ("queue.depth",) * number) for number in range(90))
    found = diagnosis_record(structs.replace(diagnosis, gaps=gaps))
    assert len(found.unseen) <= 12
    assert max(map(len, found.unseen)) < 500
    assert not any("\x1b" in text for text in found.unseen)
    assert any(text.startswith("log: 89 ") for text in found.unseen)  # what hides most comes first
    assert [cause.id for cause in found.causes if cause.named] == [c.id for c in diagnosis.causes if c.named]
    assert set(found.fired) == {c.id for c in diagnosis.checks if c.status == "fired" and c.kind == "specific"}
