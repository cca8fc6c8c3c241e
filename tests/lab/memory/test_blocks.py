"""Laws of the arena's bookkeeping: whatever is taken and given back, in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.memory.blocks import ALIGNMENT, Block, SegmentLayout, rounded

SEGMENT = 64 * ALIGNMENT
# Take this many units for a short or a long input, or give back one of what is held (the number chooses which).
STEPS = st.lists(st.tuples(st.sampled_from(("short", "long", "give")), st.integers(1, 40)), max_size=60)


def check(layout: SegmentLayout, held: list[Block]) -> None:
    """Blocks cover their segments without gap or overlap, free neighbours are joined, and every sum is exact."""
    for segment in layout.segments:
        ends = 0
        for block, after in zip(segment.blocks, [*segment.blocks[1:], None], strict=True):
            assert block.offset == ends
            ends += block.size
            assert after is None or not (block.free and after.free and block.long == after.long)
        assert ends == segment.size
    assert {id(block) for block in layout.used()} == {id(block) for block in held}
    assert layout.allocated == sum(block.size for block in held)
    assert layout.allocated + layout.free_bytes == layout.reserved
    assert layout.inactive_split <= layout.free_bytes
    free = [block.size for segment in layout.segments for block in segment.blocks if block.free]
    assert layout.largest_free == max(free, default=0)


@given(steps=STEPS, shares=st.lists(st.integers(0, 64), min_size=1, max_size=3))
def test_nothing_overlaps_and_every_byte_is_accounted_for(steps: list[tuple[str, int]], shares: list[int]) -> None:
    layout = SegmentLayout()
    for share in shares:
        layout.add(SEGMENT, share * ALIGNMENT)
    held: list[Block] = []
    for what, number in steps:
        if what == "give":
            if held:
                layout.give(held.pop(number % len(held)))
        else:
            taken = layout.take(number * ALIGNMENT, long=what == "long")
            if taken is not None:
                assert taken.size == number * ALIGNMENT
                assert what == "long" or not taken.long
                held.append(taken)
        check(layout, held)
    for block in held:
        layout.give(block)
    check(layout, [])
    # All is as it was: at most one block of each share in each segment.
    assert all(len(segment.blocks) <= 2 for segment in layout.segments)
    assert all(segment.empty for segment in layout.segments)


def test_the_smallest_hole_that_fits_is_taken() -> None:
    layout = SegmentLayout()
    layout.add(SEGMENT)
    blocks = [layout.take(units * ALIGNMENT) for units in (8, 1, 4, 1, 50)]
    for block in (blocks[0], blocks[2]):
        assert block is not None
        layout.give(block)
    fitting = layout.take(3 * ALIGNMENT)
    assert fitting is not None
    assert fitting.offset == 9 * ALIGNMENT


def test_short_inputs_never_take_the_long_share_and_long_ones_may_take_both() -> None:
    layout = SegmentLayout()
    layout.add(SEGMENT, SEGMENT // 4)
    assert layout.take(SEGMENT, long=False) is None
    assert layout.take(3 * SEGMENT // 4, long=False) is not None
    assert layout.take(ALIGNMENT, long=False) is None
    first = layout.take(SEGMENT // 4, long=True)
    assert first is not None
    assert first.long
    layout.give(first)
    assert layout.take(SEGMENT // 2, long=True) is None


def test_a_shut_segment_offers_nothing_until_it_is_opened() -> None:
    layout = SegmentLayout()
    segment = layout.add(SEGMENT)
    block = layout.take(ALIGNMENT)
    assert block is not None
    layout.shut(segment)
    layout.give(block)
    assert layout.take(ALIGNMENT) is None
    layout.open(segment)
    assert layout.take(SEGMENT) is not None


def test_a_block_is_given_back_once_and_a_segment_in_use_is_not_dropped() -> None:
    layout = SegmentLayout()
    segment = layout.add(SEGMENT)
    block = layout.take(ALIGNMENT)
    assert block is not None
    with pytest.raises(ValueError, match="in use"):
        layout.remove(segment)
    layout.give(block)
    with pytest.raises(ValueError, match="free already"):
        layout.give(block)
    layout.remove(segment)
    assert layout.reserved == 0


@given(st.integers(0, 1 << 30), st.sampled_from((1, 512, 4096, 2 << 20)))
def test_sizes_are_rounded_up_to_whole_units(size: int, unit: int) -> None:
    assert rounded(size, unit) % unit == 0
    assert max(size, 1) <= rounded(size, unit) < max(size, 1) + unit
