"""The feedback controller: what it does, and what it must not do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.control.load_window import QueueState
from latdoctor.lab.server.control.step import ControlledKnob, HoldReason, StepReason, StepVerdict
from tests.lab.control.measurements import Controlled, measured

LATE = {"answers": 250, "late": 60, "p99": 0.55, "shed": 50, "busy": 1.0}
SHEDS_EARLY = {"answers": 250, "p99": 0.3, "shed": 50, "busy": 1.0}


def test_admission_is_armed_with_room_for_one_batch() -> None:
    controlled = Controlled()
    controlled.decide(full_batch=0.09)
    assert (controlled.deadline, controlled.config.batching.max_batch_tokens) == (425, 853)
    assert [step.reason for step in controlled.controller.steps] == [StepReason.ARM, StepReason.BATCH_TOO_LONG]


def test_a_batch_holds_the_longest_request() -> None:
    controlled = Controlled()
    controlled.decide(full_batch=0.3, longest_request=700)
    assert controlled.config.batching.max_batch_tokens == 700


def test_the_deadline_follows_the_longest_batch() -> None:
    controlled = Controlled(min_batch_tokens=1024).armed()
    assert controlled.deadline == 425  # the lower edge of the dead band
    controlled.decide(longest_batch=0.12)
    assert controlled.deadline == 380
    for _ in range(5):
        controlled.decide(**{**SHEDS_EARLY, "longest_batch": 0.12})
    assert controlled.deadline == 380


@pytest.mark.parametrize(
    ("patch", "found", "knob", "reason", "rises"),
    [
        ({}, LATE, ControlledKnob.DEADLINE, StepReason.LATE, False),
        ({"queue": {"deadline_ms": 300}}, SHEDS_EARLY, ControlledKnob.DEADLINE, StepReason.SHEDS_EARLY, True),
        ({}, {"full_batch": 0.095}, ControlledKnob.BATCH_TOKENS, StepReason.BATCH_TOO_LONG, False),
        (
            {"queue": {"deadline_ms": 450}},
            {**SHEDS_EARLY, "p99": 0.48, "bound_by_tokens": 0.9, "full_batch_fixed": 0.2},
            ControlledKnob.BATCH_TOKENS,
            StepReason.BATCH_BOUND,
            True,
        ),
        (
            {"queue": {"deadline_ms": 450}},
            {**SHEDS_EARLY, "p99": 0.48, "bound_by_requests": 0.9, "full_batch_fixed": 0.2},
            ControlledKnob.BATCH_REQUESTS,
            StepReason.BATCH_BOUND,
            True,
        ),
        (
            {"batching": {"max_wait_ms": 40}},
            {"busy": 0.1, "timed_out": 0.9},
            ControlledKnob.WAIT,
            StepReason.WAIT_COSTS,
            False,
        ),
        ({}, {"busy": 0.8, "fixed_share": 0.9}, ControlledKnob.WAIT, StepReason.WAIT_SAVES, True),
    ],
)
def test_which_step_a_measurement_leads_to(
    patch: dict[str, Any], found: dict[str, Any], knob: ControlledKnob, reason: StepReason, rises: bool
) -> None:
    controlled = Controlled({"queue": {"deadline_ms": 400}, **patch})
    assert controlled.decide(**found) is not None
    step = controlled.controller.steps[-1]
    assert (step.knob, step.reason, step.new > step.old) == (knob, reason, rises)
    assert step.prediction is not None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, HoldReason.IN_BAND),
        ({**LATE, "shed": 0, "late": 1}, HoldReason.IN_BAND),  # one of 250 is no more than a P99 allows
        ({**SHEDS_EARLY, "p99": 0.47}, HoldReason.IN_BAND),  # the dead band
        ({"answers": 20, "arrivals": 20}, HoldReason.FEW),
        ({"newest": 50.0}, HoldReason.STALE),
        ({"newest": 50.0, "arrivals": 0, "answers": 0}, HoldReason.IDLE),
        ({"newest": None, "arrivals": 0, "answers": 0, "queue": QueueState(3, 9.0)}, HoldReason.STALE),
    ],
)
def test_when_nothing_is_changed(found: dict[str, Any], reason: HoldReason) -> None:
    controlled = Controlled({"queue": {"deadline_ms": 400}})
    before = controlled.config
    assert controlled.decide(**found) is None
    assert (controlled.controller.hold, controlled.config) == (reason, before)


def test_the_same_measurement_again_is_stale_once_it_is_old() -> None:
    controlled = Controlled({"queue": {"deadline_ms": 400}})
    old = measured(100.0, **LATE)
    assert controlled.controller.decide(130.0, controlled.config, old) is None
    assert controlled.controller.hold is HoldReason.STALE


def test_no_step_while_the_effect_of_the_last_one_cannot_be_seen() -> None:
    controlled = Controlled().armed()
    assert controlled.decide(**LATE) is not None
    assert controlled.decide(after=1.0, **LATE) is None
    assert controlled.controller.hold is HoldReason.PENDING
    assert controlled.decide(after=10.0, **LATE) is not None


def test_a_step_that_made_it_worse_is_rolled_back_and_not_repeated_for_a_while() -> None:
    controlled = Controlled(hold_off_s=60).armed()
    before = controlled.deadline
    controlled.decide(**LATE)
    assert controlled.deadline < before
    controlled.decide(**{**LATE, "shed": 240})
    assert controlled.deadline == before
    worse, undo = controlled.controller.steps[-2:]
    assert worse.verification is not None
    assert worse.verification.verdict is StepVerdict.WORSE
    assert (undo.reason, undo.undoes) == (StepReason.ROLLBACK, worse.number)
    assert controlled.decide(**LATE) is None
    assert controlled.controller.hold is HoldReason.BLOCKED
    assert controlled.decide(after=60, **LATE) is not None


def test_more_load_is_not_held_against_a_step() -> None:
    controlled = Controlled().armed()
    controlled.decide(**LATE)
    lowered = controlled.deadline
    controlled.decide(**{**LATE, "shed": 240, "offered_tokens": 60_000})
    verified = controlled.controller.steps[-2].verification
    assert verified is not None
    assert verified.verdict is StepVerdict.UNKNOWN
    assert controlled.deadline <= lowered


def test_an_operators_change_wins_and_is_kept() -> None:
    controlled = Controlled().armed()
    controlled.decide(**LATE)
    controlled.set(queue={"deadline_ms": 350})
    assert controlled.decide(after=1, **LATE) is None
    assert controlled.controller.hold is HoldReason.OPERATOR
    assert controlled.controller.steps[-1].verification is not None
    assert controlled.decide(**LATE) is None
    assert (controlled.controller.hold, controlled.deadline) == (HoldReason.BLOCKED, 350)
    controlled.set(control={"mode": "off"})
    controlled.decide()
    assert controlled.deadline == 350


def test_a_knob_that_goes_to_and_fro_is_left_alone() -> None:
    controlled = Controlled(dead_band=0, hold_off_s=1000).armed()
    rising = {**LATE, "offered_tokens": 60_000}  # so that no step is blamed for the late answers
    for found in [rising, {**SHEDS_EARLY, "answers": 190, "shed": 110}] * 3:
        controlled.decide(after=4, **found)
    assert controlled.controller.hold is HoldReason.BLOCKED
    assert controlled.controller.reversals == 4


def test_observing_changes_nothing_and_journals_what_it_would_do() -> None:
    controlled = Controlled(mode="observe")
    before = controlled.config
    for _ in range(4):
        assert controlled.decide(**{**LATE, "full_batch": 0.4}) is None
    assert controlled.config == before
    found = {(step.reason, step.applied) for step in controlled.controller.steps}
    assert found == {(StepReason.ARM, False), (StepReason.BATCH_TOO_LONG, False)}


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_switching_it_off_restores_the_operators_values(mode: str) -> None:
    controlled = Controlled({"batching": {"max_batch_tokens": 8192}})
    before = controlled.config
    controlled.decide()
    controlled.decide(full_batch=0.09)
    assert controlled.config.batching != before.batching
    controlled.set(control={"mode": mode})
    assert controlled.decide() is not None
    assert (controlled.config.batching, controlled.config.queue) == (before.batching, before.queue)
    assert controlled.controller.steps[-1].reason is StepReason.RELEASE


def test_a_change_that_was_refused_is_not_taken_for_its_own() -> None:
    controlled = Controlled()
    before = controlled.config
    change = controlled.controller.decide(100.0, controlled.config, measured(100.0))
    assert change is not None
    controlled.controller.refused(change, 100.0, 30.0)
    assert controlled.controller.decide(101.0, before, measured(101.0)) is None
    assert controlled.controller.hold is HoldReason.BLOCKED


FOUND = st.fixed_dictionaries(
    {
        "answers": st.integers(0, 400),
        "late": st.integers(0, 400),
        "shed": st.integers(0, 400),
        "p99": st.floats(0, 5),
        "busy": st.floats(0, 1),
        "longest_batch": st.floats(0, 1),
        "full_batch": st.floats(0, 1),
        "longest_request": st.integers(0, 600),
        "bound_by_tokens": st.floats(0, 1),
        "bound_by_requests": st.floats(0, 1),
        "timed_out": st.floats(0, 1),
        "fixed_share": st.none() | st.floats(0, 1),
        "full_batch_fixed": st.floats(0, 1),
    }
)


@given(st.lists(st.tuples(st.floats(0.1, 20), FOUND), max_size=30), st.floats(0.05, 0.9))
def test_every_step_keeps_the_bounds_and_the_rate_limit(found: list[tuple[float, Any]], most: float) -> None:
    controlled = Controlled(max_step=most)
    for after, fields in found:
        controlled.decide(after, **{**fields, "late": min(fields["late"], fields["answers"])})
    for step in controlled.controller.steps:
        if step.reason in (StepReason.LATE, StepReason.BATCH_TOO_LONG, StepReason.BATCH_BOUND, StepReason.SHEDS_EARLY):
            assert abs(step.new - step.old) <= most * step.old + 1
    config, control = controlled.config, controlled.config.control
    assert controlled.deadline == 0 or 250 <= controlled.deadline <= 500
    assert control.min_batch_tokens <= config.batching.max_batch_tokens <= control.max_batch_tokens
    assert config.batching.max_wait_ms <= control.max_wait_ms


def test_it_is_off_by_default() -> None:
    assert ServerConfig().control.mode == "off"
