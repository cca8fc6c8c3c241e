"""The requests that wait, in order of arrival and in order of length at once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import count

from latdoctor.lab.server.work import Work


class Waiting:
    """A queue with two orders. Adding and removing cost a binary search and one move of memory.

    Requests may be added in another order than they arrived (one waited longer for a session or a lookup); "oldest"
    always means by arrival. The number given at adding breaks ties, so equal lengths stay first in, first out.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._entries: dict[int, tuple[float, int, Work]] = {}
        self._by_arrival: list[tuple[float, int, Work]] = []
        self._by_length: list[tuple[int, float, int, Work]] = []

    def __len__(self) -> int:
        return len(self._by_arrival)

    def add(self, work: Work) -> None:
        """Raises ValueError if a request with this id already waits: one of the two would be lost."""
        if work.id in self._entries:
            raise ValueError(f"request {work.id} already waits")
        entry = (work.arrived, next(self._numbers), work)
        self._entries[work.id] = entry
        insort(self._by_arrival, entry)
        insort(self._by_length, (work.tokens, *entry))

    def remove(self, ids: Iterable[int]) -> None:
        """Forgets these; ids that do not wait are nothing to forget."""
        for id_ in ids:
            entry = self._entries.pop(id_, None)
            if entry is not None:
                del self._by_arrival[bisect_left(self._by_arrival, entry)]
                del self._by_length[bisect_left(self._by_length, (entry[2].tokens, *entry))]

    @property
    def oldest(self) -> Work:
        return self._by_arrival[0][2]

    @property
    def newest(self) -> Work:
        return self._by_arrival[-1][2]

    def works(self) -> list[Work]:
        """All of them, the oldest first."""
        return [work for _, _, work in self._by_arrival]

    @property
    def last_key(self) -> tuple[float, int]:
        """Of the newest: its arrival and its number."""
        arrived, number, _ = self._by_arrival[-1]
        return arrived, number

    def up_to(self, key: tuple[float, int]) -> list[Work]:
        """Those that are no newer than the request with this key, the oldest first."""
        end = bisect_left(self._by_arrival, (key[0], key[1] + 1))
        return [work for _, _, work in self._by_arrival[:end]]

    def place(self, work: Work) -> int:
        """Where a waiting request stands in the order of length, from 0."""
        return bisect_left(self._by_length, (work.tokens, *self._entries[work.id]))

    def at(self, place: int) -> Work:
        """The request at a place in the order of length; equal lengths stand in order of arrival."""
        return self._by_length[place][3]

    def first_of_length(self, tokens: int) -> int:
        """The place of the first request that is no shorter than `tokens`."""
        return bisect_left(self._by_length, (tokens,))
