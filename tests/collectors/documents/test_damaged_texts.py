"""Damaged texts of formats: cut, mutated, with lines dropped and repeated. Nothing but evidence or a refusal.

No value may be infinite, no signal undeclared, and a text that is no log never counts as searched.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.documents.reader import parse
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.catalogue import catalogue

FORMATS = (
    "nsight-compute", "nsys-text", "py-spy-json", "python-stacks", "torch-environment", "torch-memory-summary",
    "torch-profile-table", "trtexec",
)  # fmt: skip
CASES = Path(__file__).parent / "cases"
TEXTS = {name: [path.read_text() for path in sorted((CASES / name).glob("*.txt"))] for name in FORMATS}


@st.composite
def damaged(draw: st.DrawFn, name: str) -> str:
    """A text of the format with one to three kinds of damage."""
    text = draw(st.sampled_from(TEXTS[name]))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        kind = draw(st.sampled_from(["cut", "insert", "drop", "repeat", "digits"]))
        if kind == "cut":
            text = text[:end]
        elif kind == "insert":
            text = text[:start] + draw(st.text(max_size=8)) + text[start:]
        elif kind == "drop":
            text = text[:start] + text[end:]
        elif kind == "repeat":
            text = text[:end] + text[start:]
        else:
            text = text[:start] + draw(st.text("0123456789.,-e%", max_size=30)) + text[start:]
    return text


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_damage_yields_evidence_or_a_refusal(name: str, data: st.DataObject) -> None:
    text = data.draw(damaged(name))
    with suppress(SourceError):
        found = parse([Artifact("documents/x.txt", "documents", "x.txt", "x.txt", 1.77e9, text.encode())])
        assert found.looked == ()
        for one in found.readings:
            assert one.signal in catalogue(), one.signal
            assert isinstance(one.value, str) or math.isfinite(one.value), one
