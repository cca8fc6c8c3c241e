"""Untrusted text is safe to print once cleaned."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from latdoctor.sanitize import clean, fitted


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("größe 日本 °C", "größe 日本 °C"),
        ("a\tb\nc\r\nd", "a b c  d"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\done", "done"),
        ("\x9b2Jgone", "gone"),
        ("\x1bcreset", "reset"),
        ("end\x1b", "end"),
        ("half\x1b[", "half"),
        ("back\x08space\x00", "backspace"),
        ("abc\u202egnp.exe", "abcgnp.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("two\u2028lines\u2029", "twolines"),
        ("half\ud800pair", "halfpair"),
        ("", ""),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@pytest.mark.parametrize(
    ("raw", "limit", "shown"),
    [
        ("12345", 5, "12345"),
        ("123456", 5, "1234…"),
        ("\x1b[1m" * 100 + "hidden behind escapes", 5, "…"),
        ("ab" + "\x00" * 100, 5, "ab…"),
    ],
)
def test_a_cut_is_marked(raw: str, limit: int, shown: str) -> None:
    assert clean(raw, limit) == shown


HOSTILE = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b\x9b\x9d\x07[]0;m\\ \n\u202e\u200b")))


@given(HOSTILE, st.integers(min_value=1, max_value=40))
@example("\x1b\x1b[31m[31m", 40)
@example("\x1b[\x1b[0mm", 40)
def test_no_control_sequence_survives(raw: str, limit: int) -> None:
    shown = clean(raw, limit)
    assert len(shown) <= limit
    assert {unicodedata.category(char) for char in shown}.isdisjoint({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
    shown.encode("utf-8")


@given(HOSTILE)
def test_cleaning_twice_changes_nothing(raw: str) -> None:
    assert clean(clean(raw)) == clean(raw)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=200))
def test_harmless_text_is_kept_as_it_is(raw: str) -> None:
    assert clean(raw) == raw


@pytest.mark.parametrize(
    ("raw", "cells", "shown"),
    [
        ("plain", 5, "plain"),
        ("plainer", 5, "plai…"),
        ("日本語", 6, "日本語"),
        ("日本語文字", 6, "日本…"),  # two columns each, and half of one is not shown
        ("日本語文字", 7, "日本語…"),
        ("a b c", 3, "a…"),
        ("\x1b[31mred\x1b[0m\n", 4, "red"),
        ("", 3, ""),
    ],
)
def test_fitted(raw: str, cells: int, shown: str) -> None:
    assert fitted(raw, cells).rstrip() == shown


@given(st.text(), st.integers(2, 20))
def test_it_fits_whatever_it_is(text: str, cells: int) -> None:
    shown = fitted(text, cells)
    assert cell_len(shown) <= cells
    assert clean(shown) == shown
