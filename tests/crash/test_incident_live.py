"""The real command against a real server while an incident is open: the journal alone moves its clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from latdoctor.incident import events
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.remediation import run_history
from tests.crash.command import Command, Ended
from tests.crash.sweep import KILLED, killed_at
from tests.crash.target import BEFORE, Target

CHANGED = {"batching": {"scheduler": "token-budget"}, "governance": {"lanes": False}}


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as running:
        yield running


@pytest.fixture
def command(tmp_path: Path, target: Target) -> Command:
    return Command(tmp_path, target)


def said(command: Command, *arguments: str, code: int = 0) -> Ended:
    ended = command.ended(command.line(*arguments))
    assert ended.code == code, ended
    return ended


def status(command: Command) -> dict[str, Any]:
    document = json.loads(command.ended(command.line("sop", "status", "-o", "json")).out)
    assert isinstance(document, dict)
    return document


def stages(document: dict[str, Any]) -> dict[str, str]:
    return {stage["id"]: stage["status"] for stage in document["stages"]}


def known(command: Command) -> Incident:
    (found,) = incidents_in(Journal.reading(command.state / JOURNAL).entries())
    return found


def test_what_is_not_permitted_yet_is_refused_and_what_is_done_marks_its_stage(command: Command) -> None:
    said(command, "sop", "start", "--target", command.target.url)
    planned = command.ended(command.remediate())
    assert planned.code == 0
    assert "recorded in inc-" in planned.err
    refused = command.ended(command.remediate("--apply", "--yes"))
    assert refused.code == 5, refused
    words = " ".join(refused.out.split())
    assert "is permitted by the SOP slow-inference from 'diagnosed' on (Basic diagnosis), which is not met" in words
    assert f"Next latdoctor diagnose --server {command.target.url}, or --approve" in words
    assert command.target.seen().config == BEFORE
    said(command, "sop", "note", "--stage", "diagnosed", "--by", "ann")
    command.remember()
    applied = command.ended(command.remediate("--apply", "--yes", "-o", "json", playbook="test.proven"))
    assert applied.code == 0, applied
    assert command.target.seen().config == CHANGED
    run = json.loads(applied.out)["results"][0]["run"]
    found = status(command)
    assert stages(found)["mitigated"] == "met"
    assert [(one["run"], one["undo"]) for one in found["tried"]] == [(run, f"latdoctor rollback {run}")]
    page = said(command, "sop", "export", "--handover", "-o", "text").out
    assert f"    latdoctor rollback {run}\n" in page
    assert "batching.scheduler" in page
    said(command, "rollback", run)
    found = status(command)
    assert stages(found)["mitigated"] == "unmet"
    assert found["tried"][0]["standing"] == []
    kinds = [entry.kind for entry in known(command).entries]
    assert [kinds.count(kind) for kind in (events.PLANNED, events.RUN_JOINED, "run.refused", "run.opened")] == [
        1,
        2,
        1,
        1,
    ]
    assert kinds.index(events.RUN_JOINED) < kinds.index("run.refused")
    said(command, "runs", "verify")


def test_a_human_may_go_ahead_of_the_procedure(command: Command) -> None:
    command.target.order(helps=False)
    said(command, "sop", "start", "--target", command.target.url)
    applied = command.ended(command.remediate("--apply", "--yes", "--approve"))
    assert applied.code == 3, applied  # it ran, did not help, and was taken back
    assert stages(status(command))["mitigated"] == "unmet"


def test_another_target_is_none_of_the_incidents_business(command: Command) -> None:
    said(command, "sop", "start", "--target", "http://10.255.0.1:8000")
    assert "not recorded in inc-" in command.ended(command.remediate()).err
    assert [entry.kind for entry in known(command).entries] == [events.OPENED]


@pytest.mark.parametrize("k", range(1, 16, 2))
def test_killed_while_it_begins_the_incident_knows_of_it(command: Command, k: int) -> None:
    """At calls of its first two entries: no run is open that the incident does not know of."""
    said(command, "sop", "start", "--target", command.target.url)
    line = command.remediate("--apply", "--yes", "--approve")
    assert killed_at(line, k, ("pwrite64", "fsync", "fdatasync"), command.environment).returncode == KILLED
    begun = {run.id for run in run_history.runs(Journal.reading(command.state / JOURNAL).entries())}
    assert begun <= set(known(command).runs)
    assert (status(command)["next"]["command"] == "latdoctor recover") is bool(begun)
    said(command, "recover")
    found = status(command)
    assert {one["outcome"] for one in found["tried"]} <= {"failed"}
    assert found["next"]["command"] != "latdoctor recover"
    assert command.target.seen().config == BEFORE
