"""What holds of the clock whatever was journaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.incident import events
from latdoctor.incident.elapsed import elapsed_by_entry
from latdoctor.incident.sop.clock import StageStatus, permitted, stage_states
from latdoctor.incident.sop.model import ACTIONS, RUN_CLOSED, RUN_OPENED
from latdoctor.incident.state import incidents_in
from tests.incident.journal_builders import SOP, alert, cause, entries, incident, moment

BODIES: tuple[Mapping[str, Any], ...] = (
    {"kind": events.CONFIRMED, "status": "confirmed"},
    {"kind": events.CONFIRMED, "status": "unknown"},
    {"kind": events.CONFIRMED, "status": "false-alarm"},
    {"kind": events.DIAGNOSED, "level": "inconclusive"},
    {"kind": events.DIAGNOSED, "level": "healthy"},
    {"kind": events.DIAGNOSED, "answer": "named", "causes": [cause()]},
    {"kind": events.ALERTED, "alerts": [alert("firing")]},
    {"kind": events.ALERTED, "alerts": [alert("resolved")]},
    {"kind": events.ALERTED, "alerts": [alert("resolved")], "truncated": 1},
    {"kind": RUN_OPENED, "run": "r"},
    {"kind": RUN_CLOSED, "run": "r"},
    {"kind": RUN_CLOSED, "run": "r", "outcome": "incomplete"},
    {"kind": "rollback.begun", "run": "r", "reason": ""},
    {"kind": events.SAMPLED, "values": {"s": {"latency.p99": 0.3}}},
    {"kind": events.SAMPLED, "values": {"s": {"latency.p99": 3.0}}},
    {"kind": events.SAMPLED, "values": {"s": {"latency.p99": 0.3}}, "slo_p99": None},
    {"kind": events.SAMPLED, "values": {"s": {"no.such": 1.0}, "t": {}}},
    {"kind": events.MARKED, "stage": "located"},
    {"kind": events.MARKED, "stage": "no-such-stage"},
    {"kind": events.NOTED},
    {"kind": events.CLOSED},
    {"kind": "of.a.later.version", "anything": 1},
)
UNKNOWN = [
    {"kind": events.CONFIRMED, "status": "unknown"},
    {"kind": events.DIAGNOSED, "level": "inconclusive"},
    {"kind": events.ALERTED, "alerts": [alert("resolved")], "truncated": 1},
    {"kind": RUN_CLOSED, "run": "r", "outcome": "incomplete"},
    {"kind": events.SAMPLED, "values": {"s": {"latency.p99": 0.3}}, "slo_p99": None},
]


@st.composite
def journals(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Entries in the order of the monotonic clock of each boot; the wall clock may be set anywhere."""
    rows: list[dict[str, Any]] = [{"kind": events.RUN_JOINED, "joined": "r", "at": 0.0, "boot": "boot-0"}]
    at, boot = 0.0, 0
    for body in draw(st.lists(st.sampled_from(BODIES), max_size=14)):
        at += draw(st.floats(0, 900, allow_nan=False))
        boot += draw(st.sampled_from([0, 0, 0, 1]))
        wall = draw(st.none() | st.floats(-5000, 5000, allow_nan=False))
        rows.append({**body, "at": at, "wall": wall, "boot": f"boot-{boot}"})
    return rows


@settings(max_examples=200)
@given(journals(), st.floats(0, 5000), st.sampled_from([None, -100.0, 50.0]))
def test_every_stage_has_one_status(rows: list[dict[str, Any]], later: float, began: float | None) -> None:
    opened = {} if began is None else {"began": 1_790_000_000.0 + began, "clock": "alertmanager"}
    found = incident(rows, opened)
    last = found.entries[-1]
    now = moment(last.monotonic - 5000 + later, boot=last.boot)
    states = stage_states(SOP, found, now)
    assert [state.id for state in states] == [stage.id for stage in SOP.stages]
    digests = {entry.digest for entry in found.entries}
    for state in states:
        assert state.done == (state.by in digests)
        if state.status == StageStatus.MET:
            assert state.seconds is not None
            assert 0 <= state.seconds <= state.due
        elif state.status == StageStatus.LATE:
            assert state.margin is not None
            assert state.margin < 0
        elif state.status == StageStatus.UNMET:
            assert not state.done
            assert state.margin is not None
            assert state.margin >= 0
        else:
            assert state.status == StageStatus.UNKNOWN
            assert state.why
        if state.seconds is not None and state.margin is not None:
            assert state.margin == state.due - state.seconds
    assert stage_states(SOP, found, now) == states  # of nothing but its arguments


@settings(max_examples=200)
@given(journals())
def test_times_never_go_back(rows: list[dict[str, Any]]) -> None:
    told = [one.seconds for one in elapsed_by_entry(incident(rows)).values() if one.seconds is not None]
    assert told == sorted(told)
    assert all(seconds >= 0 for seconds in told)


@settings(max_examples=200)
@given(journals(), st.floats(0, 3000), st.floats(0, 3000))
def test_time_alone_meets_no_stage(rows: list[dict[str, Any]], one: float, other: float) -> None:
    found = incident(rows)
    last = found.entries[-1]
    first, second = (
        stage_states(SOP, found, moment(last.monotonic - 5000 + later, boot=last.boot))
        for later in sorted([one, other])
    )
    for before, after in zip(first, second, strict=True):
        assert (after.done, after.by, after.seconds) == (before.done, before.by, before.seconds)
        if before.done or (before.margin is not None and before.status in (StageStatus.LATE, StageStatus.UNKNOWN)):
            assert after.status == before.status


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(UNKNOWN), st.floats(0, 600)), max_size=10))
def test_unknown_evidence_meets_nothing(rows: list[tuple[dict[str, Any], float]]) -> None:
    at, listed = (
        0.0,
        [{"kind": events.RUN_JOINED, "joined": "r", "at": 0.0}, {"kind": RUN_OPENED, "run": "r", "at": 0.0}],
    )
    for body, wait in rows:
        at += wait
        listed.append({**body, "at": at})
    states = stage_states(SOP, incident(listed), moment(at + 4000))
    assert not any(state.done for state in states)
    assert not any(permitted(SOP, states, action) for action in ACTIONS if action not in SOP.permits)


@settings(max_examples=100)
@given(journals(), st.integers(0, 14))
def test_stages_of_a_truncated_journal_are_unchanged(rows: list[dict[str, Any]], cut: int) -> None:
    """Killed at any entry, and read again: whole up to there. A longer journal keeps the times of a shorter one."""
    whole, part = elapsed_by_entry(incident(rows)), elapsed_by_entry(incident(rows[:cut]))
    assert {digest: whole[digest] for digest in part if digest in whole} == {
        digest: one for digest, one in part.items() if digest in whole
    }
    stage_states(SOP, incident(rows[:cut]))


@settings(max_examples=50)
@given(journals())
def test_another_incident_beside_it_changes_nothing(rows: list[dict[str, Any]]) -> None:
    listed = entries(rows)
    alone = stage_states(SOP, incidents_in(listed)[0])
    other = [{**row, "run": "inc-other"} for row in rows if "run" not in row and row["kind"] != events.RUN_JOINED]
    mixed = entries([{"kind": events.OPENED, "at": 0.0, "run": "inc-other"}, *other, *rows])
    found = next(one for one in incidents_in(mixed) if one.id != "inc-other")
    stripped = [(state.id, state.status, state.seconds, state.margin) for state in alone]
    assert [(s.id, s.status, s.seconds, s.margin) for s in stage_states(SOP, found)] == stripped
