"""Rows that go to a file and come back in order of time, against a list that is sorted."""

from __future__ import annotations

import tempfile
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.torch_trace import disk_spill
from latdoctor.collectors.torch_trace.disk_spill import Spool, swept, windows
from latdoctor.collectors.torch_trace.intervals import Cover, union
from latdoctor.errors import SourceError


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_spill, "BLOCK", 8)
    monkeypatch.setattr(disk_spill, "STRIDE", 3)


BATCHES = st.lists(st.lists(st.integers(0, 20), max_size=15), max_size=6)


def put(kept: Spool, batches: list[list[int]]) -> list[tuple[float, int]]:
    added, number = [], 0
    for batch in batches:
        numbers = np.arange(number, number + len(batch), dtype=np.int32)
        kept.add(np.array(batch, float), np.ones(len(batch)), numbers, 1)
        added += list(zip(map(float, batch), numbers.tolist(), strict=True))
        number += len(batch)
    return sorted(added)


@given(BATCHES, st.integers(1, 30))
def test_windows_give_every_row_once_and_in_order(batches: list[list[int]], rows: int) -> None:
    with Spool() as kept:
        expected = put(kept, batches)
        parts = [kept.between(low, high) for low, high in windows([kept], rows)]
        found = [(float(row["start"]), int(row["label"])) for part in parts for row in part]
    assert found == expected


@given(BATCHES)
def test_rows_that_start_together_come_in_pieces(batches: list[list[int]]) -> None:
    crowd = [[4] * 40, *batches, [4] * 30]
    with Spool() as kept, pytest.MonkeyPatch.context() as patched:
        patched.setattr(disk_spill, "CROWD", 12)
        patched.setattr(disk_spill.windows, "__defaults__", (6,))
        expected = put(kept, crowd)
        parts = list(swept([kept]))
        assert all(len(rows) <= 8 for low, high, [rows] in parts if low == high)
        assert any(low == high == 4 for low, high, _ in parts)
    assert sorted((float(row["start"]), int(row["label"])) for _, _, [rows] in parts for row in rows) == expected
    lows = [low for low, _, _ in parts]
    assert lows == sorted(lows)


@given(BATCHES, BATCHES)
def test_what_another_process_wrote_is_adopted_under_other_numbers(
    own: list[list[int]], others: list[list[int]]
) -> None:
    with tempfile.TemporaryFile() as file, Spool() as kept:
        expected = put(kept, own)
        theirs = put(written := Spool(file), others)
        labels = np.arange(1000, 1000 + len(theirs) + 1, dtype=np.int32)
        kept.adopt(written.finished(), file, labels, np.array([5, 6], np.int32))
        assert len(kept) == len(expected) + len(theirs)
        found = kept.between(-np.inf, np.inf)
    assert sorted(found["label"].tolist()) == sorted([n for _, n in expected] + [1000 + n for _, n in theirs])
    assert set(found["place"][found["label"] >= 1000].tolist()) <= {6}
    assert found["start"].tolist() == sorted(found["start"].tolist())


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=25), st.sets(st.integers(1, 39), max_size=5)
)
def test_a_cover_taken_window_by_window_is_the_union(pairs: list[tuple[int, int]], edges: set[int]) -> None:
    starts, lengths = (np.array([pair[i] for pair in sorted(pairs)], float) for i in (0, 1))
    cover, bounds = Cover(), [-np.inf, *sorted(edges), np.inf]
    covered = 0.0
    for low, high in pairwise(bounds):
        own = (starts >= low) & (starts < high)
        covered += cover.take(starts[own], (starts + lengths)[own], low, high).length
    assert covered == cover.length == union(starts, starts + lengths).length


def test_no_room_for_a_temporary_file_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk_spill.tempfile, "TemporaryFile", full)
    with Spool() as kept, pytest.raises(SourceError, match="No space left") as caught:
        put(kept, [list(range(9))])
    assert "TMPDIR" in caught.value.next_step
