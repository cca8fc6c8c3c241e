"""Redaction is idempotent, never raises, does not mind where pieces end, and leaves harmless texts alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from latdoctor.evidence.redaction.documents import field_without_secrets, without_secrets_in
from latdoctor.evidence.redaction.redactor import Redactor, Stream, pieces, without_secrets
from tests.evidence.redaction.samples import samples

SAMPLES = [sample.text for sample in samples()]
HARMLESS: list[str] = json.loads(Path(__file__).with_name("harmless.json").read_text(encoding="utf-8"))
PARTS = st.sampled_from(SAMPLES) | st.sampled_from(HARMLESS) | st.text(max_size=12)
TEXTS = st.lists(st.lists(PARTS, max_size=3).map(" ".join), max_size=5).map("\n".join)


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_harmless_stays(line: str) -> None:
    redactor = Redactor(b"key")
    redactor.text(line)
    assert {kind: redactor.counts[kind] for kind in ("secrets", "prompts")} == {"secrets": 0, "prompts": 0}
    assert without_secrets(line) == line
    assert field_without_secrets("value", line) == line


def test_enough_that_is_harmless_is_looked_at() -> None:
    assert len(set(HARMLESS)) >= 200


@settings(deadline=None, max_examples=200)
@given(TEXTS)
def test_redacting_again_changes_nothing(text: str) -> None:
    once = Redactor(b"key").text(text)
    assert Redactor(b"key").text(once) == once
    shown = without_secrets(text)
    assert without_secrets(shown) == shown


@settings(deadline=None, max_examples=200)
@given(TEXTS, st.integers(1, 60))
def test_it_does_not_matter_where_a_block_of_a_file_ends(text: str, size: int) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    blocks = (raw[at : at + size] for at in range(0, len(raw), size))
    stream = Stream(Redactor(b"key"))
    made = b"".join(stream.content(piece) for piece in pieces(blocks, len(raw) + 1))
    assert made == Redactor(b"key").content(raw)


@settings(deadline=None, max_examples=200)
@example(b"Prompt:\x1f\x00\x0b\x00")
@given(st.binary(max_size=400) | st.lists(st.binary(max_size=20) | PARTS.map(str.encode), max_size=4).map(b" ".join))
def test_any_bytes_are_redacted(raw: bytes) -> None:
    once = Redactor(b"key").content(raw)
    assert Redactor(b"key").content(once) == once


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=200))
def test_any_text_is_shown(text: str) -> None:
    assert without_secrets_in({"a": [text]}).keys() == {"a"}


@pytest.mark.parametrize(
    "unit",
    ["token=", "key='", 'key="', 'key=\\"', "A1b", "aB3dE5", "hooks/", "name: X_KEY\n", "prompt: a\n", "text='",
     "-----BEGIN PRIVATE KEY-----", "auth ", "adobe ", "a.", "cookie: {", "is ", "--a-key ", "('key', '", "eyJ", "sk-a",
     "//hooks.", "messages=[", "curl -u a:", "Bearer ", '["a",'],
)  # fmt: skip
def test_the_effort_is_bounded(unit: str) -> None:
    text = unit * (40_000 // len(unit))
    Redactor(b"key").content(text.encode())
    without_secrets(text)
