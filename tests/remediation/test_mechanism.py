"""The mechanism of a playbook: beside the effect on users, what the change does must be observed."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.remediation.run_result import Outcome, Reason
from tests.remediation import sample_playbooks
from tests.remediation.simulated_service import Service
from tests.remediation.test_run import Room, room

__all__ = ["room"]

BY_CONDITION = sample_playbooks.SCHEDULER.replace("[batch-sizes-bimodal clear]", "[completion.rate > 1.5 x before]")
BY_BOTH = BY_CONDITION.replace("[completion", "[batch-sizes-bimodal clear, completion")


def completes_more(service: Service) -> float:
    return 80.0 if service.values["scheduler"] == "token-budget" else 40.0


@pytest.mark.parametrize("text", [BY_CONDITION, BY_BOTH], ids=["condition", "finding and condition"])
def test_change_is_verified_once_its_mechanism_is_observed(room: Room, tmp_path: Path, text: str) -> None:
    room.library = sample_playbooks.library(tmp_path / "more", text)
    room.service.completed = completes_more
    assert room.run().outcome is Outcome.VERIFIED


def test_less_latency_without_the_mechanism_is_rolled_back(room: Room, tmp_path: Path) -> None:
    room.library = sample_playbooks.library(tmp_path / "more", BY_BOTH)
    room.service.completed = lambda service: 40.0
    result = room.run()
    assert (result.outcome, result.code) == (Outcome.ROLLED_BACK, Reason.NO_IMPROVEMENT)
    assert "completion.rate is 40/s" in result.reason


def test_unobservable_mechanism_is_refused(room: Room, tmp_path: Path) -> None:
    room.library = sample_playbooks.library(tmp_path / "more", BY_CONDITION)
    result = room.run()
    assert (result.outcome, result.code) == (Outcome.REFUSED, Reason.NOT_VERIFIABLE)


def test_condition_of_the_mechanism_never_means_that_the_cause_is_absent(room: Room, tmp_path: Path) -> None:
    text = sample_playbooks.SCHEDULER.replace("[batch-sizes-bimodal clear]", "[arrival.rate > 1/s]")
    room.library = sample_playbooks.library(tmp_path / "more", text)
    assert room.run().outcome is Outcome.VERIFIED
