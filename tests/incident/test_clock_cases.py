"""The clock of the shipped SOP. `clock/*.yaml` are incidents with how each stage has to stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from latdoctor.incident.elapsed import start_of
from latdoctor.incident.sop.clock import StageState, stage_states
from tests.incident.journal_builders import OPENED_AT, SOP, incident, moment

CASES = sorted((Path(__file__).parent / "clock").glob("*.yaml"))


def as_expected(state: StageState) -> str:
    """`late 70 -10 (why)`: status, seconds until it was met, margin; `-` for what is not known."""
    parts = [state.status, _figure(state.seconds), _figure(state.margin)]
    parts += ["hand"] if state.by_hand else []
    parts += ["wall"] if state.wall else []
    return " ".join(parts) + (f" ({state.why})" if state.why else "")


def _figure(seconds: float | None) -> str:
    return "-" if seconds is None else f"{round(seconds, 3):g}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_stage_states_match(path: Path) -> None:
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    found = incident(case["entries"], _opened(case))
    now = case.get("now")
    states = stage_states(SOP, found, None if now is None else moment(**now) if isinstance(now, dict) else moment(now))
    assert {state.id: as_expected(state) for state in states} == case["expect"]
    for state in states:
        assert state.done == bool(state.by)
        assert not state.by or state.by in {entry.digest for entry in found.entries}
    if "start" in case:
        start = start_of(found)
        assert [start.at - OPENED_AT, start.clock, start.note] == case["start"]


def _opened(case: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = dict(case.get("opened", {}))
    if "began" in told:
        told["began"] += OPENED_AT
    return told


def test_there_are_cases_for_every_status() -> None:
    told = " ".join(path.read_text() for path in CASES)
    for status in ("met", "late", "unmet", "unknown"):
        assert f": {status} " in told
    assert len(CASES) >= 14
