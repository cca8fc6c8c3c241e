"""Which onset is reported, and which changes are "shortly before" it."""

from __future__ import annotations

import pytest

from latdoctor.diagnosis import onset as timeline
from latdoctor.evidence.model import Event, Evidence, Origin, Value

AT = 1769827860.0  # 2026-01-31T02:51:00Z


def rise(at: float, subject: str = "server/a", until: float | None = None) -> Event:
    fields: dict[str, Value] = {"signal": "latency.p99", "before": 0.1, "after": 0.9}
    if until is not None:
        fields["until"] = until
    return Event("latency.onset", subject, Origin("log"), fields, at)


def change(at: float | None, signal: str = "change.deployment", text: str = "deployed v7", **fields: Value) -> Event:
    return Event(signal, "service", Origin("notes"), dict(fields), at, text)


@pytest.mark.parametrize(
    ("events", "time"),
    [
        ([], None),
        ([rise(AT)], AT),
        ([rise(AT), rise(AT - 60, "server/b")], AT - 60),  # the first that became slow
        ([rise(AT), rise(AT - 600, "server/b", until=AT - 300)], AT),  # what is over does not count beside what lasts
        ([rise(AT, until=AT + 60), rise(AT - 600, "server/b", until=AT - 300)], AT),
    ],
)
def test_which_onset(events: list[Event], time: float | None) -> None:
    found = timeline.onset(Evidence(events=tuple(events)))
    assert (found.time if found else None) == time


def worse(at: float, signal: str = "queue.depth", until: float | None = None) -> Event:
    fields: dict[str, Value] = {"signal": signal, "before": 0.0, "after": 90.0}
    if until is not None:
        fields["until"] = until
    return Event("level.onset", "server/a", Origin("history"), fields, at)


@pytest.mark.parametrize(
    ("events", "time"),
    [
        ([worse(AT), worse(AT - 60, "error.ratio")], AT - 60),
        ([worse(AT - 300), rise(AT)], AT),  # the latency is what users feel
        ([worse(AT, until=AT + 60)], None),
        ([worse(AT, "requests.running")], None),  # more work is no harm by itself
    ],
)
def test_errors_and_queues_date_it_where_latency_does_not(events: list[Event], time: float | None) -> None:
    found = timeline.onset(Evidence(events=tuple(events)))
    assert (found.time if found else None) == time


def test_only_what_was_shortly_before_counts_and_the_nearest_comes_first() -> None:
    events = (
        rise(AT),
        change(AT - 1200, text="a"),
        change(AT - 120, text="b"),
        change(AT - 3600, text="too old"),
        change(AT + 600, text="too late"),
        change(AT + 30, text="clocks differ"),
        change(None, text="nobody knows when"),
    )
    evidence = Evidence(events=events)
    assert [one.message for one in timeline.changes(evidence, timeline.onset(evidence))] == ["clocks differ", "b", "a"]


def test_as_far_as_the_onset_may_be_wrong_a_change_after_it_counts() -> None:
    vague = rise(AT)
    vague.fields["within"] = 720.0
    evidence = Evidence(events=(vague, change(AT + 600, text="a"), change(AT + 800, text="too late")))
    found = timeline.onset(evidence)
    assert found is not None
    assert found.within == 720.0
    assert [one.message for one in timeline.changes(evidence, found)] == ["a"]


def test_without_an_onset_the_end_of_the_evidence_counts() -> None:
    evidence = Evidence(events=(Event("log.xid", "gpu/0", Origin("log"), {}, AT), change(AT - 60), change(AT + 5)))
    assert [one.seconds_before for one in timeline.changes(evidence, None)] == [60.0]
    assert timeline.changes(Evidence(events=(change(AT),)), None) == ()


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (change(AT), "deployed v7"),
        (change(AT, "change.model", "", what="model version", **{"from": "v6", "to": "v7"}), "model version v6 → v7"),
        (change(AT, "change.config", "", what="a.yaml"), "configuration a.yaml"),
        (change(AT, "change.package", "", what="torch 2.3.1"), "installed torch 2.3.1"),
        (change(AT, "change.process_start", "INFO Started server process [7]"), "process started"),
        (change(AT, text="", to="v7"), "v7"),
        (change(AT, text=""), "change.deployment"),
    ],
)
def test_in_words(event: Event, message: str) -> None:
    evidence = Evidence(events=(rise(AT + 60), event))
    assert timeline.changes(evidence, timeline.onset(evidence))[0].message == message


def test_two_sources_of_one_change_are_one() -> None:
    evidence = Evidence(events=(rise(AT), change(AT - 60.2), change(AT - 60.0)))
    assert len(timeline.changes(evidence, timeline.onset(evidence))) == 1
