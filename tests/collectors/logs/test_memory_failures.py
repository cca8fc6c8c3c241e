"""Figures in the messages of failed allocations: every framework's words, wrapped lines, several devices."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.logs import collector as logs
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "memory_failures.yaml").read_text())
GIB = 2.0**30
ROOM = "oom.room_ratio"


def parsed(text: str) -> Evidence:
    return logs.READER.parse([Artifact("logs/a", "logs", "a", "a", 1.77e9, text.encode())])


def figures(found: Evidence) -> dict[str, float]:
    return {one.signal: float(one.value) for one in found.readings if one.signal.startswith("oom.")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_figures_of_every_framework(case: dict[str, Any]) -> None:
    found = parsed(case["text"])
    seen = figures(found)
    assert seen.pop(ROOM, None) == (pytest.approx(case["room"]) if "room" in case else None)
    assert {signal: value / GIB for signal, value in seen.items()} == pytest.approx(case["gib"])
    is_failure = bool(case["gib"])
    assert bool([event for event in found.events if event.fields.get("code") == 2]) == is_failure


def test_the_first_failure_of_each_device_counts() -> None:
    one, two = CASES[0]["text"], CASES[0]["text"].replace("GPU 1", "GPU 0").replace("12.00 GiB", "1.00 GiB")
    found = parsed(one + two + two.replace("1.00 GiB.", "7.00 GiB."))
    asked = {one.subject: float(one.value) / GIB for one in found.readings if one.signal == "oom.requested"}
    assert asked == {"allocator/a:1": 12, "allocator/a:0": 1}
    assert found.parents["allocator/a:0"] == "node/a"


def test_a_second_failure_of_the_same_size_does_not_change_the_first() -> None:
    found = parsed(CASES[0]["text"] + CASES[0]["text"].replace("9.00 GiB is free", "1.00 GiB is free"))
    assert figures(found)["oom.device_free"] == 9 * GIB
    assert {one.note for one in found.readings} == {"the first of 2 failures"}


@given(st.data())
def test_damaged_messages_never_fail(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([case["text"] for case in CASES]))
    start = data.draw(st.integers(0, len(text)))
    cut = text[:start] + data.draw(st.text(max_size=6)) + text[data.draw(st.integers(start, len(text))) :]
    with suppress(SourceError):  # too many control characters: no text
        assert all(0 <= value < float("inf") for value in figures(parsed(f"x {cut}")).values())
