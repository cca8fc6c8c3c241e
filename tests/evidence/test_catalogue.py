"""The catalogue of signals: the shipped files are valid, and an invalid file reports all its problems."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from latdoctor.errors import DefinitionError
from latdoctor.evidence.catalogue import TIERS, SignalKind, catalogue, read_catalogue


def test_every_signal_says_what_it_is() -> None:
    silent = [signal.id for signal in catalogue().values() if not signal.description.strip()]
    assert silent == []


def test_names_are_dotted_words() -> None:
    odd = [name for name in catalogue() if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", name)]
    assert odd == []


def test_units_fit_their_kinds() -> None:
    for signal in catalogue().values():
        assert signal.tier in TIERS
        assert signal.kind in SignalKind
        assert (signal.dimension == "text") == (signal.kind == "text"), signal.id
        if signal.kind in {"flag", "event"}:
            assert signal.dimension == "count", signal.id
        if signal.kind == "p-value":
            assert signal.dimension == "ratio", signal.id


def test_a_row_is_read_in_full(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "a.b: {unit: ms, kind: distribution, tier: framework, description: x}\nc: {tier: application, description: y}\n"
        "t: {kind: text, tier: application, description: z}\n"
    )
    found = read_catalogue(tmp_path)
    assert list(found) == ["a.b", "c", "t"]
    assert (found["a.b"].dimension, found["a.b"].kind, found["a.b"].tier) == ("time", "distribution", "framework")
    assert (found["c"].unit.name, found["c"].kind) == ("count", "value")
    assert found["t"].dimension == "text"


def test_all_problems_of_all_files_are_reported(tmp_path: Path) -> None:
    text = "a: {unit: furlong, tier: application, description: x}\nb: {tier: cloud, kind: odd}\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(
        "a: {tier: application, description: again}\nc: {tier: application, description: x, hue: 1}\n"
    )
    (tmp_path / "c.yaml").write_text("[not, a, mapping]\n")
    (tmp_path / "d.yaml").write_text("d: [broken\n")
    with pytest.raises(DefinitionError) as caught:
        read_catalogue(tmp_path)
    told = [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]
    assert told[:-1] == [
        "a.yaml:1: unit: unknown unit 'furlong'",
        "a.yaml:2: kind: 'odd' is not one of value, share, deviation, distribution, event, flag, text, p-value",
        "a.yaml:2: tier: 'cloud' is not one of infrastructure, framework, application",
        "a.yaml:2: signal b lacks 'description'",
        "b.yaml:1: the signal 'a' is catalogued twice",
        "b.yaml:2: signal c has an unknown key 'hue'",
        "c.yaml:1: the file must be a mapping of signals",
    ]
    assert told[-1].startswith("d.yaml:")
