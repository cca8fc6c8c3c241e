"""What the rules of `nsys analyze` found: how many rows each of them lists, and the longest of these."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from latdoctor.collectors.nsight.table_rows import rows

_HEADING = re.compile(r"\s*\*\* .{3,120} \((\w{3,60})\):\s*$")
# The names of its rules, old and new; other headings are tables of `nsys stats`.
RULES = frozenset(
    {
        "cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync", "cuda_api_sync", "gpu_gaps", "gpu_time_util",
        "cuda-async-memcpy", "cuda-sync-memcpy", "cuda-sync-memset", "cuda-sync-api", "gpu-starvation",
        "gpu-low-utilization",
    }
)  # fmt: skip
_DURATIONS = {"duration (ns)": 1e-9, "duration (us)": 1e-6, "duration (ms)": 1e-3, "duration (s)": 1.0}
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_NOTHING = re.compile(r"\bno problems detected\b", re.IGNORECASE)
_SKIPPED = re.compile(r"\s*SKIPPED: ")


@dataclass(frozen=True, slots=True)
class RuleMatches:
    """Rows that one rule lists (it lists 50 at most by default), and the longest duration among them, seconds."""

    rule: str
    count: int
    longest: float | None


def matches(text: str) -> Iterator[RuleMatches]:
    """The result of each rule in `text`; none for a rule that was skipped for want of data."""
    rule, block = "", []
    for line in [*text.splitlines(), "** the end of the text (end):"]:
        found = _HEADING.match(line)
        if not found and not line.startswith("Processing ["):
            block.append(line)
            continue
        if rule and (known := _result(rule, block)) is not None:
            yield known
        rule = found[1] if found and found[1] in RULES else ""
        block = []


def _result(rule: str, block: list[str]) -> RuleMatches | None:
    if any(_SKIPPED.match(line) for line in block):
        return None
    column, factor, count, longest = -1, 1.0, 0, None
    for cells in rows("\n".join(block), "nsys analyze"):
        lower = [cell.lower() for cell in cells]
        head = next((name for name in lower if name in _DURATIONS), "")
        if head:
            column, factor = lower.index(head), _DURATIONS[head]
        elif 0 <= column < len(cells) and _NUMBER.fullmatch(cells[column]):
            duration = float(cells[column].replace(",", "")) * factor
            count, longest = count + 1, max(duration, longest or 0.0)
    if not count and not any(_NOTHING.search(line) for line in block):
        return None
    return RuleMatches(rule, count, longest)
