"""Slices of a recording have the form of a live collection."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from latdoctor.case_from_bundle import seen
from latdoctor.evaluation.ground_truth import IncidentContext, TimedGap, TimeRange
from latdoctor.evaluation.variants import BEFORE, MOST, PLAIN, WHOLE, incident_slice, slice_bundle, variants
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.diff import values
from latdoctor.evidence.model import Gap
from tests.evaluation.samples import START, attempt, recording


def test_slice_has_the_artifacts_of_its_range_with_live_names() -> None:
    look = slice_bundle(recording(20), IncidentContext(), TimeRange(START + 3, START + 8))
    assert [one.name for one in look.artifacts] == [f"prometheus/1-s-{n:02d}.prom" for n in range(6)]
    assert (look.window.start, look.window.end) == (START + 3, START + 8)
    assert values(seen(look)[0])["arrival.rate", "replica/0@127.0.0.1:1"] == pytest.approx(10)


def test_long_slice_is_thinned_and_keeps_both_ends() -> None:
    look = slice_bundle(recording(60), IncidentContext(), TimeRange(START, START + 60))
    times = [one.taken_at for one in look.artifacts]
    assert len(times) == MOST["prometheus"]
    assert (times[0], times[-1]) == (START, START + 60)
    assert max(late - early for early, late in pairwise(times)) <= 7


def sample(number: int, pid: int) -> Artifact:
    return Artifact(f"host/{number:05d}.json", "host", f"host-{pid}", "/proc", START + number / 2, b"{}")


def test_process_that_was_watched_longest_is_kept() -> None:
    samples = tuple(sample(number, 7 if number < 4 else 8) for number in range(12))
    look = slice_bundle(replace(recording(0), artifacts=samples), IncidentContext(), TimeRange(START, START + 6))
    assert [one.name for one in look.artifacts] == [f"host/{number:03d}.json" for number in range(8)]
    assert {one.group for one in look.artifacts} == {"host"}
    assert min(one.taken_at for one in look.artifacts) == START + 2


def gap(at: float, port: int) -> TimedGap:
    return TimedGap(
        at, Gap("prometheus", f"http://127.0.0.1:{port}/metrics refused", ("queue.depth",), f"server/127.0.0.1:{port}")
    )


def test_stopped_server_is_reported_as_in_a_live_collection() -> None:
    bundle = recording(20, servers=2)
    stopped = tuple(one for one in bundle.artifacts if one.group != "2-s" or one.taken_at < START + 6)
    told = IncidentContext(gaps=(gap(START + 6, 2), gap(START + 7, 2)))
    look = slice_bundle(replace(bundle, artifacts=stopped), told, TimeRange(START + 2, START + 9))
    assert [one.name for one in look.artifacts if one.group == "2-s"][-1] == "prometheus/2-s-03-stopped.prom"
    assert [(one.reason, one.signals) for one in look.gaps] == [
        ("http://127.0.0.1:2/metrics stopped answering within the window", ("queue.depth",))
    ]


def test_a_server_that_never_answers_hides_its_signals_and_one_that_misses_a_turn_does_not() -> None:
    told = IncidentContext(gaps=(gap(START + 3, 9), gap(START + 4, 9), gap(START + 3.2, 1)))
    look = slice_bundle(recording(20), told, TimeRange(START + 2, START + 9))
    assert [one.signals for one in look.gaps] == [("queue.depth",), ()]
    assert slice_bundle(recording(20), told, TimeRange(START + 10, START + 15)).gaps == ()


def test_the_views_of_a_run() -> None:
    made = attempt("x", "app.load.burst")
    found = {view.name: view.bundle for view in variants(made.bundle, made.context)}
    assert list(found)[:2] == [PLAIN, BEFORE]
    assert set(found) == {PLAIN, BEFORE, WHOLE, "no baseline", "no server page", "no clients' page"}
    assert found[PLAIN].baseline is not None
    assert found["no baseline"].baseline is None
    assert found[WHOLE].artifacts == made.bundle.artifacts
    assert found[WHOLE].baseline is None
    assert {one.source for one in found["no server page"].artifacts} == {made.context.clients}
    assert made.context.clients not in {one.source for one in found["no clients' page"].artifacts}
    assert found[BEFORE].window.end == START + 7


def test_a_wrong_time_is_tried_where_the_recording_is_long_enough() -> None:
    long = IncidentContext(TimeRange(START + 1, START + 70), TimeRange(START + 76, START + 146))
    found = {view.name: view.bundle for view in variants(recording(220), long)}
    assert found["60 s early"].window.start == START + 16
    assert found["60 s late"].window.end == START + 206
    assert found["60 s early"].baseline == found[PLAIN].baseline
    assert "60 s late" not in {view.name for view in variants(recording(200), long)}
    assert incident_slice(recording(220), long, 0.0).window.start == START + 76
