"""Every shipped dialect reads the pages beside it as `expected.txt` says; a new dialect needs only such a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages, recognise_dialects
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence

PAGES = Path(__file__).parent / "pages"


def evidence(dialect: str, which: str) -> Evidence:
    """`lone`: the first page alone. `window`: both pages, ten seconds apart."""
    names = ["first"] if which == "lone" else ["first", "last"]
    files = [PAGES / dialect / f"{name}.prom" for name in names]
    if not all(path.is_file() for path in files):
        pytest.fail(f"{dialect} has no pages: docs/contributing.md, 'Its pages'", pytrace=False)
    scrapes = [
        ScrapedPage(parse(path.read_bytes(), path.name), path.name, 1000.0 + 10 * number)
        for number, path in enumerate(files)
    ]
    spoken = recognise_dialects(shipped(), [scrape.page for scrape in scrapes])
    assert [one.id for one in spoken] == [dialect]
    return read_pages(spoken[0], scrapes, "server/x")


def rows() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for dialect in shipped():
        path = PAGES / dialect.id / "expected.txt"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found += [(dialect.id, *line.split(None, 3)) for line in lines if line and not line.startswith("#")]
    return found


@pytest.mark.parametrize("dialect", [one.id for one in shipped()])
def test_every_dialect_has_its_pages(dialect: str) -> None:
    found = {path.name for path in (PAGES / dialect).glob("*")}
    assert found == {"first.prom", "last.prom", "expected.txt"}, (
        f"{dialect} needs these three in tests/dialects/pages/{dialect}/: docs/contributing.md says what stands in them"
    )


@pytest.mark.parametrize(("dialect", "which", "signal", "subject", "value"), rows(), ids=" ".join)
def test_a_page_is_read_as_expected(dialect: str, which: str, signal: str, subject: str, value: str) -> None:
    seen = evidence(dialect, which)
    readings = [one for one in seen.readings if (one.signal, one.subject) == (signal, subject)]
    spreads = [one for one in seen.distributions if (one.signal, one.subject) == (signal, subject)]
    if value == "none":
        assert not readings
        assert not spreads
    elif catalogue()[signal].kind == "distribution":
        total, counts = value.split("/")
        assert [bucket.count for bucket in spreads[0].buckets] == [float(count) for count in counts.split(",")]
        assert spreads[0].total == pytest.approx(float(total))
    elif catalogue()[signal].kind == "text":
        assert [one.value for one in readings] == [value]
    else:
        assert [one.value for one in readings] == [pytest.approx(float(value), rel=1e-6)]


@pytest.mark.parametrize("which", ["lone", "window"])
@pytest.mark.parametrize("dialect", [one.id for one in shipped()])
def test_what_is_given_is_catalogued_and_placed(dialect: str, which: str) -> None:
    seen = evidence(dialect, which)
    declared = {subject.id for subject in seen.subjects}
    for one in (*seen.readings, *seen.distributions):
        assert one.signal in catalogue()
        assert one.subject in declared
        assert one.origin.artifact in {"first.prom", "last.prom"}
        assert one.origin.place
    known = {(one.signal, one.subject, one.labels) for one in seen.readings}
    assert len(known) == len(seen.readings)


@pytest.mark.parametrize("dialect", [one.id for one in shipped()])
def test_every_signal_of_a_dialect_is_read_or_a_gap(dialect: str) -> None:
    (spoken,) = (one for one in shipped() if one.id == dialect)
    seen = evidence(dialect, "lone")
    given = {one.signal for one in (*seen.readings, *seen.distributions)}
    assert spoken.signals == given | (spoken.signals & set(seen.gaps_by_signal))


def test_the_last_xid_is_marked_as_sticky() -> None:
    notes = {one.subject: one.note for one in evidence("dcgm", "lone").readings if one.signal == "gpu.xid.last"}
    assert "may be old" in notes["gpu/0@x"]
    assert notes["gpu/1@x"] == "the exporter has recorded no Xid"


@pytest.mark.parametrize(
    ("subject", "signal", "said"),
    [
        ("gpu/1@x", "gpu.temperature", "means no value"),
        ("gpu/1@x", "gpu.power", "means no value"),
        ("gpu/1@x", "gpu.sm_clock", "means no value"),
        ("gpu/2@x", "gpu.power", "is nan"),
        ("gpu/3@x", "gpu.utilization", "1 % or all"),
    ],
)
def test_marks_for_no_value_are_gaps(subject: str, signal: str, said: str) -> None:
    gaps = [gap for gap in evidence("dcgm", "lone").gaps if gap.subject == subject and signal in gap.signals]
    assert [said in gap.reason for gap in gaps] == [True]


def test_a_gauge_over_pages_notes_its_highest() -> None:
    (depth,) = (
        one
        for one in evidence("triton", "window").readings
        if (one.signal, one.subject) == ("queue.depth", "model/bert:version=1@x")
    )
    assert depth.note == "mean of 2 pages, highest 40"


def test_a_lone_page_says_so() -> None:
    notes = {one.signal: one.note for one in evidence("triton", "lone").readings}
    assert notes["latency.mean"] == "lifetime average"
    gaps = evidence("triton", "lone").gaps_by_signal["completion.rate"]
    assert "two pages or a live window" in gaps[0].reason


def test_an_unused_model_is_not_a_candidate() -> None:
    seen = evidence("triton", "lone")
    assert "model/unused@x" not in {subject.id for subject in seen.subjects}
    assert [gap.signals for gap in seen.gaps if "model/unused@x" in gap.reason] == [()]
