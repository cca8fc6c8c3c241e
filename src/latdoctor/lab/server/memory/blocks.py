"""The bookkeeping of an arena: segments cut into blocks, best fit, split and coalesce. Numbers only, no memory.

A block always belongs to the share for long inputs or to the common one; blocks of different shares never join.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

ALIGNMENT = 512  # bytes; what CUDA's caching allocator rounds to


def rounded(size: int, unit: int = ALIGNMENT) -> int:
    """`size` up to a whole number of units, and at least one."""
    return max(1, -(-size // unit)) * unit


@dataclass(eq=False, slots=True)
class Segment:
    """One stretch of memory. `blocks` lie side by side, in order, and cover all of it; a shut one offers nothing."""

    id: int
    size: int
    shut: bool = True
    blocks: list[Block] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return all(block.free for block in self.blocks)

    @property
    def free_bytes(self) -> int:
        return sum(block.size for block in self.blocks if block.free)


@dataclass(eq=False, slots=True)
class Block:
    """A part of a segment, in bytes."""

    segment: Segment
    offset: int
    size: int
    long: bool
    free: bool = True

    @property
    def place(self) -> tuple[int, int, int]:
        """By size, then by address: the order in which free blocks are tried."""
        return self.size, self.segment.id, self.offset


class SegmentLayout:
    """Segments, and the free blocks among them."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        self._free: dict[bool, list[Block]] = {False: [], True: []}
        self._next_id = 0

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments.values())

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self._segments.values())

    @property
    def free_bytes(self) -> int:
        """What is offered: not that of shut segments."""
        return sum(segment.free_bytes for segment in self._segments.values() if not segment.shut)

    @property
    def allocated(self) -> int:
        return sum(segment.size - segment.free_bytes for segment in self._segments.values())

    @property
    def inactive_split(self) -> int:
        """Free bytes in segments that are also in use: they cannot be released."""
        return sum(segment.free_bytes for segment in self._segments.values() if not segment.empty)

    @property
    def largest_free(self) -> int:
        return max((blocks[-1].size for blocks in self._free.values() if blocks), default=0)

    def add(self, size: int, long_bytes: int = 0) -> Segment:
        """A new segment, all free; its last `long_bytes` are the share for long inputs."""
        segment = Segment(self._next_id, size)
        self._next_id += 1
        self._segments[segment.id] = segment
        common = size - long_bytes
        for offset, length, long in ((0, common, False), (common, long_bytes, True)):
            if length:
                segment.blocks.append(Block(segment, offset, length, long))
        self.open(segment)
        return segment

    def remove(self, segment: Segment) -> None:
        """Forgets an empty segment. Raises ValueError if something in it is used."""
        if not segment.empty:
            raise ValueError(f"segment {segment.id} is in use")
        self.shut(segment)
        del self._segments[segment.id]

    def shut(self, segment: Segment) -> None:
        """Stops offering the free blocks of `segment`."""
        segment.shut = True
        for long, blocks in self._free.items():
            self._free[long] = [block for block in blocks if block.segment is not segment]

    def open(self, segment: Segment) -> None:
        """Offers the free blocks of a segment that was shut."""
        segment.shut = False
        for block in segment.blocks:
            if block.free:
                self._offer(block)

    def take(self, size: int, *, long: bool = False) -> Block | None:
        """The smallest free block of at least `size` bytes, cut to it; long inputs try their own share first."""
        for share in (True, False) if long else (False,):
            blocks = self._free[share]
            at = bisect_left(blocks, size, key=lambda block: block.size)
            if at < len(blocks):
                return self._cut(blocks.pop(at), size)
        return None

    def take_from(self, segment: Segment, size: int) -> Block:
        """The first block of a segment that was just added for it."""
        block = segment.blocks[0]
        self._free[block.long].remove(block)
        return self._cut(block, size)

    def give(self, block: Block) -> None:
        """Frees `block` and joins it with free neighbours of its share. Raises ValueError if it was free already."""
        if block.free:
            raise ValueError("the block is free already")
        block.free = True
        siblings = block.segment.blocks
        at = siblings.index(block)
        if at + 1 < len(siblings) and _joinable(block, siblings[at + 1]):
            after = siblings.pop(at + 1)
            self._forget(after)
            block.size += after.size
        if at > 0 and _joinable(siblings[at - 1], block):
            before = siblings[at - 1]
            self._forget(before)
            before.size += siblings.pop(at).size
            block = before
        self._offer(block)

    def used(self) -> Iterator[Block]:
        for segment in self._segments.values():
            yield from (block for block in segment.blocks if not block.free)

    def _offer(self, block: Block) -> None:
        if not block.segment.shut:
            insort(self._free[block.long], block, key=_place)

    def _forget(self, block: Block) -> None:
        if not block.segment.shut:
            self._free[block.long].remove(block)

    def _cut(self, block: Block, size: int) -> Block:
        if block.size > size:
            rest = Block(block.segment, block.offset + size, block.size - size, block.long)
            block.size = size
            siblings = block.segment.blocks
            siblings.insert(siblings.index(block) + 1, rest)
            self._offer(rest)
        block.free = False
        return block


def _place(block: Block) -> tuple[int, int, int]:
    return block.place


def _joinable(left: Block, right: Block) -> bool:
    return left.free and right.free and left.long == right.long
