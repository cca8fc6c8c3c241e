"""The figures in messages of failed allocations of device memory, in the words of each framework. Bytes. Pure.

PyTorch changed its message in 2.1; it is the only one that states what was free and what its allocator held without
use. Others state the size that was asked for, and some the limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"(\d[\d,]{0,20}(?:\.\d{1,12})?)"
_SIZE = _NUMBER + r" ?(bytes|[KMGT]i?B|[KMGT]\b|B\b)"
_FACTORS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}


def _sized(before: str, after: str = "") -> re.Pattern[str]:
    return re.compile(before + _SIZE + after, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """What a message states; None for what it does not. `others` are the processes that it lists, by their pid."""

    device: str = ""
    requested: float | None = None
    total: float | None = None
    free: float | None = None
    process_used: float | None = None
    allocated: float | None = None
    unallocated: float | None = None  # held by the framework's allocator without use
    reserved: float | None = None  # allocated and unallocated together
    others: tuple[tuple[str, float], ...] = ()

    def joined(self, further: MemoryFigures) -> MemoryFigures:
        """These figures, and of the others those that are missing here."""
        names = ("requested", "total", "free", "process_used", "allocated", "unallocated", "reserved")
        known = {name: getattr(further if getattr(self, name) is None else self, name) for name in names}
        others = self.others or further.others
        return MemoryFigures(device=self.device or further.device, others=others, **known)

    def conflicts(self, further: MemoryFigures) -> bool:
        """Whether `further` must be of another failure: it asks for another size, or is on another device."""
        if self.device and further.device and self.device != further.device:
            return True
        return None not in (self.requested, further.requested) and self.requested != further.requested


# A line with one of these begins a failure; what stands in the group is the size that was asked for.
_BEGINS = (
    _sized(r"\btried to allocate "),
    _sized(r"\bwhile trying to allocate "),
    _sized(r"\bout of memory allocating "),
    _sized(r"\bran out of memory trying to allocate "),
    _sized(r"\bfailed to allocate request for "),
    _sized(r"\ballocating ", r" on device \d{1,4}: (?:cuda|hip)Malloc"),
    _sized(r"\bRequested size was "),
    _sized(r"\bcannot allocate ", r" memory on GPU"),
    _sized(r"\bfailed to allocate \w{1,20} buffer of size "),
    re.compile(
        r"\bfailed to allocate (?:CUDA|ROCm|HIP|Vulkan|Metal)\d* buffer of size " + _NUMBER + "()", re.IGNORECASE
    ),
    re.compile(r"\bDevice memory allocation of size " + _NUMBER + "() failed", re.IGNORECASE),
    re.compile(r"\bfor requested buffer of size " + _NUMBER + "()", re.IGNORECASE),
    re.compile(r"\bAllocation on device \d{1,4} would exceed allowed memory()()", re.IGNORECASE),
)
_FIELDS = (
    ("requested", _sized(r"\bRequested\s{0,40}: ")),
    ("total", _sized(r"\btotal capaci?ty of ")),
    ("total", _sized("", r" total capacity")),
    ("total", _sized(r"\bDevice limit\s{0,40}: ")),
    ("total", _sized(r"\bmax allowed: ")),
    ("total", _sized(r"\bUsed [\d.]{1,20}[KMGT] of ", r" hbm")),
    ("free", _sized(r"\bof which ", r" is free")),
    ("free", _sized(r"; ", r" free\b")),
    ("free", _sized(r"\bFree \(according to CUDA\)\s{0,40}: ")),
    ("free", _sized(r"\bavailable memory is only ")),
    ("process_used", _sized(r"\bthis process has ", r" memory in use")),
    ("allocated", _sized("", r" is allocated by PyTorch")),
    ("allocated", _sized("", r" already allocated")),
    ("allocated", _sized(r"\bCurrently allocated\s{0,40}: ")),
    ("allocated", _sized(r"\bMPS allocated: ")),
    ("allocated", _sized(r"\ballocated so far: ")),
    ("unallocated", _sized("", r" is reserved by PyTorch but unallocated")),
    ("unallocated", _sized("", r" cached\)")),  # before PyTorch 1.5
    ("reserved", _sized("", r" reserved in total by PyTorch")),
)
_OTHER = re.compile(r"\bProcess (\d{1,10}) has " + _SIZE + " memory in use", re.IGNORECASE)
_DEVICE = re.compile(r"\b(?:GPU|XPU|on device|device ordinal)[ :](\d{1,4})\b", re.IGNORECASE)
# Every line with such a figure contains one of these.
NEEDLES = (
    rb"(?i:tried to allocate|trying to allocate|failed to allocate|cannot allocate|Requested size was)",
    rb"(?i:out of memory allocating|cudaMalloc failed|hipMalloc failed|requested buffer of size)",
    rb"total capacit?y|(?:allocated|reserved) by PyTorch|total by PyTorch|memory in use|would exceed allowed memory",
    rb"Device memory allocation of size|Currently allocated +:|Requested +:|Device limit +:|Free \(according to CUDA\)",
)


def figures_in(text: str) -> tuple[MemoryFigures, bool]:
    """The figures in `text`, and whether it begins the message of a failure."""
    begins = next((found for pattern in _BEGINS if (found := pattern.search(text))), None)
    known: dict[str, float] = {}
    if begins and begins[1]:
        known["requested"] = _bytes(begins[1], begins[2])
    for name, pattern in _FIELDS:
        if name not in known and (found := pattern.search(text)):
            known[name] = _bytes(found[1], found[2])
    others = tuple((found[1], _bytes(found[2], found[3])) for found in _OTHER.finditer(text))
    device = _DEVICE.search(text)
    return MemoryFigures(device=device[1] if device else "", others=others[:64], **known), begins is not None


def _bytes(number: str, unit: str) -> float:
    """Frameworks count in powers of two, whatever they call them."""
    return float(number.replace(",", "")) * _FACTORS.get(unit[:1].upper() if unit[:1] not in "bB" else "", 1.0)


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Whose memory it was. `other_used` of the old message is an upper bound: it holds the CUDA context as well."""

    allocated: float | None
    unallocated: float | None
    process_used: float | None
    other_used: float | None
    other_is_bound: bool = False


# The CUDA context and libraries of a process, beside what the framework's allocator holds.
_MOST_CONTEXT = 2.0 * 2**30


def memory_use(found: MemoryFigures) -> MemoryUse:
    """Whose memory it was, as far as the figures show it.

    In a container PyTorch does not know its own pid and lists itself as one of the processes: it is the one that
    holds what the allocator holds and a context.
    """
    allocated, unallocated = found.allocated, found.unallocated
    if unallocated is None and found.reserved is not None and allocated is not None:
        unallocated = max(0.0, found.reserved - allocated)
    held = None if allocated is None or unallocated is None else allocated + unallocated
    own, others = found.process_used, dict(found.others)
    if own is None and held is not None:
        fitting = [(used, pid) for pid, used in others.items() if held * 0.99 <= used <= held + _MOST_CONTEXT]
        if fitting:
            own = others.pop(min(fitting)[1])
    if others or own is not None:
        return MemoryUse(allocated, unallocated, own, sum(others.values()))
    if None in (found.total, found.free, held):
        return MemoryUse(allocated, unallocated, None, None)
    rest = (found.total or 0.0) - (found.free or 0.0) - (held or 0.0)
    return MemoryUse(allocated, unallocated, None, max(0.0, rest), other_is_bound=True)
