"""`torch.cuda.memory_summary()`, full and abbreviated: the statistics of the allocator as a table, one for a device.

The table becomes the statistics that `torch.cuda.memory_stats()` returns, so that both are judged alike; several tables
of one device show what grew between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.torch_memory import SIGNALS
from latdoctor.collectors.torch_memory import evidence as memory_evidence
from latdoctor.collectors.torch_memory.snapshot import AllocatorStats
from latdoctor.evidence.model import Evidence

_TITLE = re.compile(r"\|\s*PyTorch CUDA memory summary, device ID (\d{1,4})\s*\|")
_FAILURES = re.compile(r"CUDA OOMs: (\d{1,12})\s*\|\s*(?:cuda|hip)Malloc retries: (\d{1,12})")
_ROW = re.compile(r"\|\s*([A-Za-z][A-Za-z -]{2,40}?)\s*\|((?:[^|]{1,40}\|){4})\s*$")
_CELL = re.compile(r"(\d{1,18}) ?([KMGTP]?)(i?B)?")
_FACTORS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50}
_THOUSANDS = {"": 1.0, "K": 1e3, "M": 1e6}
# The rows that are used, by the names of torch.cuda.memory_stats().
_NAMES = {
    "Allocated memory": "allocated_bytes.all",
    "Active memory": "active_bytes.all",
    "GPU reserved memory": "reserved_bytes.all",
    "Non-releasable memory": "inactive_split_bytes.all",
    "Allocations": "allocation.all",
    "GPU reserved segments": "segment.all",
}
_COLUMNS = ("current", "peak", "allocated", "freed")


def read(section: Section) -> Evidence:
    """The state of the allocator of every device in the text. Raises ValueError where no table has a row."""
    states: dict[str, list[AllocatorStats]] = {}
    for device, block in _blocks(section.text.splitlines()):
        values = dict(_values(block))
        if any(name.startswith(("allocated_bytes", "reserved_bytes")) for name in values):
            states.setdefault(device, []).append(AllocatorStats(values))
    if not states:
        raise ValueError("its tables have no row with sizes")
    subject = f"allocator/{file_name(section)}"
    return Evidence.merge(
        memory_evidence.of_stats(
            [(state, section.artifact) for state in found], subject if len(states) == 1 else f"{subject}:{device}"
        )
        for device, found in states.items()
    )


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    begins = [(number, found[1]) for number, line in enumerate(lines) if (found := _TITLE.search(line))]
    ends = [number for number, _ in begins[1:]] + [len(lines)]
    for (number, device), end in zip(begins, ends, strict=True):
        yield device, lines[number + 1 : end]


def _values(block: Sequence[str]) -> Iterator[tuple[str, float]]:
    for line in block:
        if found := _FAILURES.search(line):
            yield "num_ooms", float(found[1])
            yield "num_alloc_retries", float(found[2])
        elif (found := _ROW.search(line)) and found[1] in _NAMES:
            for column, cell in zip(_COLUMNS, found[2].split("|")[:4], strict=True):
                value = _value(cell.strip())
                if value is not None:
                    yield f"{_NAMES[found[1]]}.{column}", value


def _value(cell: str) -> float | None:
    found = _CELL.fullmatch(cell)
    if found is None:
        return None
    factors: Mapping[str, float] = _FACTORS if found[3] else _THOUSANDS
    return float(found[1]) * factors.get(found[2], 1.0)


FORMAT = TextFormat(
    name="torch-memory-summary",
    title="torch.cuda.memory_summary()",
    begins=re.compile(r"^\s*\|\s*PyTorch CUDA memory summary, device ID \d"),
    read=read,
    provides=frozenset(SIGNALS),
    repeats=True,
    in_logs=True,
)
