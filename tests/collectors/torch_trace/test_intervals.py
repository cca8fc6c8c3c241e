"""Unions of intervals against an oracle that counts unit cells one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.torch_trace.intervals import Intervals, joined, union

SIZE = 40
PAIRS = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted), max_size=25)


def of(pairs: list[list[int]]) -> Intervals:
    table = np.array(pairs, dtype=float).reshape(-1, 2)
    return union(table[:, 0], table[:, 1])


def cells(pairs: list[list[int]]) -> set[int]:
    return {cell for low, high in pairs for cell in range(low, high)}


@given(PAIRS)
def test_a_union_covers_what_its_intervals_cover(pairs: list[list[int]]) -> None:
    found = of(pairs)
    assert found.length == len(cells(pairs))
    assert (found.starts[1:] > found.ends[:-1]).all()


@given(PAIRS)
def test_gaps_are_what_lies_between(pairs: list[list[int]]) -> None:
    covered = cells(pairs)
    points = [point for pair in pairs for point in pair]
    inside = set(range(min(points), max(points))) if points else set()
    assert of(pairs).gaps.length == len(inside - covered)


@given(PAIRS, st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted))
def test_clipping_keeps_what_lies_inside(pairs: list[list[int]], bounds: list[int]) -> None:
    assert of(pairs).clipped(*bounds).length == len(cells(pairs) & set(range(*bounds)))


@given(PAIRS, PAIRS)
def test_shared_and_joined_are_intersection_and_union(one: list[list[int]], two: list[list[int]]) -> None:
    assert of(one).shared_with(of(two)) == len(cells(one) & cells(two))
    assert joined(of(one), of(two)).length == len(cells(one) | cells(two))


@given(PAIRS, PAIRS)
def test_coverage_of_each_interval(pairs: list[list[int]], asked: list[list[int]]) -> None:
    table = np.array(asked, dtype=float).reshape(-1, 2)
    found = of(pairs).within(table[:, 0], table[:, 1])
    assert found.tolist() == [len(cells(pairs) & set(range(*bounds))) for bounds in asked]


@given(PAIRS, st.randoms(use_true_random=False))
def test_order_does_not_matter(pairs: list[list[int]], shuffler: object) -> None:
    mixed = list(pairs)
    shuffler.shuffle(mixed)  # type: ignore[attr-defined]
    assert of(mixed).starts.tolist() == of(pairs).starts.tolist()
    assert of(mixed).ends.tolist() == of(pairs).ends.tolist()


def test_no_interval_covers_nothing() -> None:
    assert of([]).length == 0
    assert of([]).gaps.length == 0
    assert of([]).within(np.array([1.0]), np.array([2.0])).tolist() == [0.0]
    assert of([[3, 3]]).length == pytest.approx(0.0)
