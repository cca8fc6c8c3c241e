"""Comparison of two bundles."""

from __future__ import annotations

import math

import pytest

from latdoctor.evidence.diff import Difference, differences, values
from latdoctor.evidence.model import Evidence, Origin, Reading, Window


def test_the_largest_change_comes_first_and_what_is_missing_is_told() -> None:
    before = {
        ("latency.p99", "s"): 0.1,
        ("queue.depth", "s"): 10.0,
        ("model.version", "s"): "v6",
        ("kv.usage", "s"): 0.5,
    }
    after = {
        ("latency.p99", "s"): 0.8,
        ("queue.depth", "s"): 11.0,
        ("model.version", "s"): "v7",
        ("batch.size", "s"): 2.0,
    }
    found = differences(before, after)
    assert {one.signal for one in found if one.after is None} == {"kv.usage"}
    assert {one.signal for one in found if one.before is None} == {"batch.size"}
    told = [(one.signal, one.factor, one.is_one) for one in found if None not in (one.before, one.after)]
    assert [row[0] for row in told] == ["model.version", "latency.p99", "queue.depth"]
    assert told[1][1] == pytest.approx(8.0)
    assert [row[2] for row in told] == [True, True, False]


def test_a_subject_under_another_name_is_met_where_it_is_the_only_one() -> None:
    (one,) = differences({("latency.p99", "server/a"): 1.0}, {("latency.p99", "server/b"): 2.0})
    assert (one.subject, one.factor) == ("server/b", 2.0)
    two = differences({("x", "a"): 1.0, ("x", "b"): 1.0}, {("x", "c"): 2.0})
    assert len(two) == 3


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (-1.0, 1.0), ("a", "b"), (None, 1.0)])
def test_no_factor_where_there_is_none(before: float | str | None, after: float | str | None) -> None:
    assert Difference("x", "s", before, after).factor is None


def test_only_known_values_without_labels_count_and_the_latest_wins() -> None:
    def reading(value: float, end: float, labels: tuple[tuple[str, str], ...] = ()) -> Reading:
        return Reading("queue.depth", "s", value, Origin("a"), Window(0.0, end), labels)

    split = reading(7.0, 20.0, (("a", "b"),))
    readings = (reading(2.0, 9.0), reading(1.0, 5.0), reading(math.nan, 10.0), split)
    assert values(Evidence(readings=readings)) == {("queue.depth", "s"): 2.0}
