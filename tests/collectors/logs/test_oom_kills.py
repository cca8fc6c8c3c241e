"""Kills for memory: both shapes of a control group's kill, that of the machine, and which lines are one kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from latdoctor.collectors.logs import collector as logs
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "oom_kills.yaml").read_text())
CONTAINER = CASES[0]["text"]


def kills(text: str) -> list[Event]:
    found = logs.READER.parse([Artifact("logs/k", "logs", "k", "k", 1.77e9, text.encode())])
    return [event for event in found.events if event.signal == "log.oom_kill"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:60])
def test_one_kill_is_one_event(case: dict[str, Any]) -> None:
    (event,) = kills(case["text"])
    assert {key: value for key, value in event.fields.items() if key not in ("uptime_s", "zone", "host")} == case[
        "event"
    ]


def test_two_kills_are_two_events() -> None:
    assert [event.fields["pid"] for event in kills(CONTAINER + CONTAINER.replace("4711", "4712"))] == ["4711", "4712"]


def test_a_limit_far_before_a_kill_is_not_its_limit() -> None:
    limit, between = CONTAINER.splitlines()[1], "[1.000000] usb 1-1: new device\n" * 500
    (event,) = kills(f"{limit}\n{between}[2.000000] Memory cgroup out of memory: Killed process 7 (x) total-vm:1kB")
    assert "limit" not in event.fields
