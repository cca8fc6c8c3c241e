"""What is to be done next: a command, by what the journal shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from latdoctor.incident import events
from latdoctor.incident.next_step import next_step
from latdoctor.incident.sop.clock import stage_states
from latdoctor.incident.sop.model import RUN_CLOSED, RUN_OPENED
from tests.incident.journal_builders import SOP, cause, incident, moment

SERVER = "--server http://10.0.0.5:8000/metrics"
FIRST, SECOND = "app.batching.token-budget", "app.batching.release-at-once"
NAMED = {"kind": events.DIAGNOSED, "at": 100, "answer": "named", "causes": [cause(playbooks=[FIRST, SECOND])]}
NO_PLAYBOOK = {**NAMED, "causes": [cause()]}
JOINED = {"kind": events.RUN_JOINED, "at": 200, "joined": "r1"}
RUNS = {"kind": RUN_OPENED, "at": 201, "run": "r1"}
STORY: Mapping[str, tuple[list[dict[str, Any]], str]] = {
    "opened": ([], f"latdoctor diagnose {SERVER}"),
    "false alarm": (
        [{"kind": events.CONFIRMED, "at": 9, "status": "false-alarm"}],
        "latdoctor sop close --outcome false-alarm",
    ),
    "named": ([NAMED], f"latdoctor remediate --playbook {FIRST} {SERVER}"),
    "planned": (
        [NAMED, {"kind": events.PLANNED, "at": 110}],
        f"latdoctor remediate --playbook {FIRST} {SERVER} --apply",
    ),
    "no playbook": ([NO_PLAYBOOK], "latdoctor explain app.batching.long-alone"),
    "at work": ([NAMED, JOINED, RUNS], "latdoctor recover"),
    "taken back": (
        [NAMED, JOINED, RUNS, {"kind": RUN_CLOSED, "at": 210, "run": "r1", "outcome": "rolled-back"}],
        f"latdoctor remediate --playbook {SECOND} {SERVER}",
    ),
    "verified": ([NAMED, JOINED, RUNS, {"kind": RUN_CLOSED, "at": 210, "run": "r1"}], f"latdoctor diagnose {SERVER}"),
    "marked": (
        [NAMED, *({"kind": events.MARKED, "at": 300, "stage": stage.id} for stage in SOP.stages)],
        "latdoctor sop close",
    ),
    "named before": (
        [NAMED, {"kind": events.DIAGNOSED, "at": 300, "servers": ["http://10.0.0.9:8000/metrics"]}],
        f"latdoctor diagnose {SERVER}",  # what the incident is about, whatever else was looked at
    ),
    "closed": ([{"kind": events.CLOSED, "at": 5}], "latdoctor timeline --incident inc-20260921-1413-0001"),
}


@pytest.mark.parametrize(("rows", "command"), STORY.values(), ids=STORY.keys())
def test_the_next_step(rows: list[dict[str, Any]], command: str) -> None:
    found = incident(rows)
    step = next_step(found, SOP, stage_states(SOP, found, moment(400)))
    assert step.command == command
    assert step.why


def test_what_is_not_permitted_is_not_proposed() -> None:
    """Only located permits what is of high risk; here a human has marked a later stage, and nothing is located."""
    rows = [
        {"kind": events.DIAGNOSED, "at": 10, "answer": "one-of", "causes": [cause(playbooks=[FIRST])]},
        {"kind": events.PLANNED, "at": 20, "risk": "high"},
    ]
    found = incident(rows)
    stages = stage_states(SOP, found, moment(30))
    assert next_step(found, SOP, stages).command == f"latdoctor diagnose {SERVER}"


def test_earlier_named_cause_is_mentioned() -> None:
    nothing = {"kind": events.DIAGNOSED, "at": 300}
    for rows, message in (
        ([NAMED, nothing, nothing],
         "the last diagnosis names no cause; that of 2026-09-21 14:15:00 UTC named Long requests run alone"),
        ([{**NAMED, "answer": "one-of", "causes": [cause(named=False)]}, nothing], "no cause is named yet"),
    ):  # fmt: skip
        marks = [{"kind": events.MARKED, "at": 310, "stage": stage} for stage in ("confirmed", "diagnosed", "located")]
        found = incident([*rows, *marks])
        assert (
            next_step(found, SOP, stage_states(SOP, found, moment(400))).why
            == f"the next stage is: Mitigated; {message}"
        )


@pytest.mark.parametrize("opened", [{"targets": []}, {"targets": ["checkout"], "hosts": ["checkout"]}])
def test_last_diagnosis_provides_the_target(opened: dict[str, Any]) -> None:
    def command(*looks: dict[str, Any]) -> str:
        rows = [{"kind": events.DIAGNOSED, "at": 10 + number, **look} for number, look in enumerate(looks)]
        found = incident(rows, opened)
        return next_step(found, SOP, stage_states(SOP, found, moment(50))).command

    assert command({}) == "latdoctor diagnose --server URL"
    one, other = {"servers": ["http://checkout:8080/metrics"]}, {"servers": ["http://a:1/metrics", "http://b:2/x y"]}
    assert command(other, one, {}) == "latdoctor diagnose --server http://checkout:8080/metrics"
    assert command(one, other) == "latdoctor diagnose --server http://a:1/metrics --server 'http://b:2/x y'"


def test_next_step_without_sop_is_a_diagnosis() -> None:
    assert next_step(incident([NAMED]), None, ()).command == f"latdoctor diagnose {SERVER}"
    assert next_step(incident([{"kind": events.CLOSED, "at": 5}]), None, ()).command.startswith("latdoctor timeline")


def test_a_name_of_strangers_stays_one_word() -> None:
    found = incident([], {"targets": ["10.0.0.5:80; rm -rf ~\x1b[2J"]})
    words = shlex.split(next_step(found, SOP, stage_states(SOP, found, moment(5))).command)
    assert words == ["latdoctor", "diagnose", "--server", "10.0.0.5:80; rm -rf ~"]
    named = incident([], {"targets": ["shop bot", "10.0.0.5:80"]})
    assert (
        next_step(named, SOP, stage_states(SOP, named, moment(5))).command == "latdoctor diagnose --target 'shop bot'"
    )
