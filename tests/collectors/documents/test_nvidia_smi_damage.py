"""Damaged and mutated output of nvidia-smi: an answer or a gap, never a traceback."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.documents.reader import parse
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence

FOLDER = Path(__file__).parent / "cases"
NAMES = ("nvidia-*", "lspci", "dcgmi*")
CASES = sorted(path for name in NAMES for path in FOLDER.glob(f"{name}/*.txt"))
_TOKENS = st.sampled_from(
    ["N/A", "ERR!", "[Unknown Error]", "-", "", "GPU is lost", "|", ",", "9" * 40, "-1", "\x00", "²"]
)


def read(text: str) -> Evidence:
    try:
        return parse([Artifact("documents/x", "documents", "x", "x", 1.77e9, text.encode("utf-8", "replace"))])
    except SourceError:
        return Evidence()


def check(found: Evidence) -> None:
    for one in found.readings:
        assert one.signal in catalogue()
        assert isinstance(one.value, str) or math.isfinite(one.value)
    for series in found.series:
        assert list(series.times) == sorted(series.times)
        assert len(series.times) == len(series.values)
    assert {one.signal for one in found.events} <= catalogue().keys()


@given(st.sampled_from(CASES), st.data())
def test_a_truncated_text_does_no_harm(path: Path, data: st.DataObject) -> None:
    text = path.read_text()
    begin = data.draw(st.integers(0, len(text)))
    check(read(text[begin : data.draw(st.integers(begin, len(text)))]))


@given(st.sampled_from(CASES), st.data())
def test_a_mutated_text_does_no_harm(path: Path, data: st.DataObject) -> None:
    words = path.read_text().split(" ")
    for _ in range(data.draw(st.integers(1, 8))):
        words[data.draw(st.integers(0, len(words) - 1))] = data.draw(_TOKENS)
    check(read(" ".join(words)))


@given(st.sampled_from(CASES), st.sampled_from(CASES), st.data())
def test_two_texts_in_one_file_do_no_harm(first: Path, second: Path, data: st.DataObject) -> None:
    lines = first.read_text().splitlines()
    place = data.draw(st.integers(0, len(lines)))
    check(read("\n".join([*lines[:place], *second.read_text().splitlines(), *lines[place:]])))


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_line_ends_quoting_and_colours_change_nothing(path: Path) -> None:
    if path.parent.name in ("nvidia-smi-xml", "nvidia-bug-report"):
        pytest.skip("a document of its own")
    text = path.read_text()
    plain = {(one.subject, one.signal): one.value for one in read(text).readings}
    for other in (
        text.replace("\n", "\r\n"),
        "\n".join(f"> {line}" for line in text.split("\n")),
        text.replace("GPU", "\x1b[32mGPU\x1b[0m"),
        f"it hangs since noon:\n\n```\n{text}\n```\nwhat can I do?\n",
    ):
        assert {(one.subject, one.signal): one.value for one in read(other).readings} == plain


def test_rows_without_names_are_a_gap_with_advice() -> None:
    rows = "".join(f"2026/02/01 10:00:{n:02}.120, 0, NVIDIA L4, 61, 90 %\n" for n in range(9))
    found = read(rows)
    assert not found.readings
    assert any("its columns have no names: run it without noheader" in gap.reason for gap in found.gaps)
