"""Steps in an export: NVTX ranges with which the program marked what it does again and again.

Programs mark what they like (`ProfilerStep#7`, `forward`, `batch 12`), and mark ranges within ranges. A step is taken
to be the name, its numbers aside, whose ranges take most time on one thread, if they come one after the other and
cover at least half of the time from the first to the last: so it is the outermost that repeats. Marks of libraries
stand in domains of their own, and those that a framework sets for operators (`aten::mm`) are no steps.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from latdoctor.collectors.nsight.sqlite_rows import SqliteExport
from latdoctor.sanitize import clean

NVTX = "NVTX_EVENTS"
_STRINGS = "StringIds"
_RANGES = frozenset({59, 60})  # ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange, NvtxStartEndRange
_MOST_RANGES = 500_000
_COVERED = 0.5
_NUMBERS = re.compile(r"[0-9]+")
_FURTHEST = 10**18

Range = tuple[int, int]  # start and end in ns


def steps(export: SqliteExport) -> Mapping[str, tuple[float, float]]:
    """The steps by a name for each, from when to when (µs); empty where no range repeats, or there are too many."""
    known: defaultdict[tuple[object, object], list[Range]] = defaultdict(list)
    columns = ("start", "end", "eventType", "globalTid", "domainId", "textId", "text")
    if not export.has(NVTX, "start", "end"):
        return {}
    for number, row in enumerate(export.rows(NVTX, columns, limit=_MOST_RANGES + 1)):
        if number == _MOST_RANGES:
            return {}
        start, end, kind, thread, domain, name_id, text = row
        if not isinstance(start, int) or not isinstance(end, int) or not -_FURTHEST < start <= end < _FURTHEST:
            continue
        if (kind is None or kind in _RANGES) and domain in (0, None):
            known[thread, text if isinstance(text, str) else name_id].append((start, end))
    named = _by_name(known, _texts(export, {name for _, name in known if isinstance(name, int)}))
    found = max(((_spent(ranges), name) for name, ranges in named.items() if _repeats(ranges)), default=None)
    if found is None:
        return {}
    ranges = sorted(named[found[1]])
    return {f"{found[1][1]} ({at})": (start / 1000, end / 1000) for at, (start, end) in enumerate(ranges, start=1)}


def _texts(export: SqliteExport, wanted: set[int]) -> Mapping[int, str]:
    if not wanted or not export.has(_STRINGS, "id", "value"):
        return {}
    rows = export.rows(_STRINGS, ("id", "value"))
    return {key: text for key, text in rows if isinstance(key, int) and key in wanted and isinstance(text, str)}


def _by_name(
    recorded: Mapping[tuple[object, object], Iterable[Range]], texts: Mapping[int, str]
) -> Mapping[tuple[str, str], list[Range]]:
    """The ranges by thread and name, numbers in it aside."""
    found: defaultdict[tuple[str, str], list[Range]] = defaultdict(list)
    for (thread, name), ranges in recorded.items():
        text = name if isinstance(name, str) else texts.get(name, "") if isinstance(name, int) else ""
        if text and "::" not in text:
            found[str(thread), clean(_NUMBERS.sub("#", text), 80)] += ranges
    return found


def _spent(ranges: Iterable[Range]) -> int:
    return sum(end - start for start, end in ranges)


def _repeats(ranges: list[Range]) -> bool:
    ordered = sorted(ranges)
    apart = all(before[1] <= after[0] for before, after in pairwise(ordered))
    return len(ordered) > 1 and apart and _spent(ordered) >= _COVERED * (ordered[-1][1] - ordered[0][0])
