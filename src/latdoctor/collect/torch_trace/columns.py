"""The events of a trace as columns: only what the analysis needs, some twenty bytes for each event."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, nan
from typing import TYPE_CHECKING

from latdoctor.collect.torch_trace import api_calls
from latdoctor.collect.torch_trace.kineto import Args, Damage, Event
from latdoctor.text import clean

if TYPE_CHECKING:
    from latdoctor.collect.torch_trace.intervals import Floats

_MAX_NAMES = 4096
_MAX_STEPS = 100_000
_LONGEST = 1e15  # µs; a longer event is damage, and so is a time further out than the next
_FURTHEST = 1e18
_STEP = "ProfilerStep#"
_FURTHER = "(further names)"

_HOST, _CALL, _KERNEL, _FILL, _COPY, _RANGE, _IGNORED = range(7)
_ROLES = (
    (api_calls.CALLS, _CALL),
    (api_calls.KERNELS, _KERNEL),
    (api_calls.FILLS, _FILL),
    (api_calls.COPIES, _COPY),
    (api_calls.RANGES, _RANGE),
    (api_calls.ENVELOPES | api_calls.ECHOES, _IGNORED),
)
_NO_ARGS = Args()


class Names:
    """Numbers for names, bounded: past the limit every new name is one and the same."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        known = self._numbers.get(name)
        if known is None:
            kept = name if len(self._numbers) < _MAX_NAMES else _FURTHER
            known = self._numbers.setdefault(kept, len(self._numbers))
        return known

    @property
    def listed(self) -> Sequence[str]:
        return tuple(clean(name, 120) for name in self._numbers)


@dataclass(slots=True)
class Track:
    """Intervals in file order, µs as in the file, each with the number of its label."""

    labels: Names = field(default_factory=Names)
    ts: array[float] = field(default_factory=lambda: array("d"))
    dur: array[float] = field(default_factory=lambda: array("d"))
    label: array[int] = field(default_factory=lambda: array("i"))

    def add(self, ts: float, dur: float, label: str) -> None:
        self.ts.append(ts)
        self.dur.append(dur)
        self.label.append(self.labels.number(label))

    def __len__(self) -> int:
        return len(self.ts)

    def times(self, origin: float) -> tuple[Floats, Floats]:
        """Starts and ends in seconds since `origin` (µs)."""
        import numpy as np

        starts = (np.frombuffer(self.ts, dtype=np.float64) - origin) * 1e-6
        return starts, starts + np.frombuffer(self.dur, dtype=np.float64) * 1e-6


@dataclass(frozen=True, slots=True)
class CopyLabel:
    """What is told of a copy: its device, `HtoD`, `DtoH` or `other`, and the host memory (`` where not told)."""

    device: str
    direction: str
    memory: str

    def __str__(self) -> str:
        return f"{self.direction}/{self.memory}/{self.device}"

    @classmethod
    def parse(cls, text: str) -> CopyLabel:
        direction, _, rest = text.partition("/")
        memory, _, device = rest.partition("/")
        return cls(device, direction, memory)


class Columns:
    """Gathers a trace, batch by batch. Kernels and fills are labelled by device, calls by name."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.kernels, self.fills, self.copies, self.calls = Track(), Track(), Track(), Track()
        self.copy_bytes: array[float] = array("d")  # NaN where not told
        self.steps: dict[str, tuple[float, float]] = {}  # ProfilerStep#N → start, end (µs)
        self.results = 0  # calls that tell a return code
        self.failures: dict[str, int] = {}  # "cudaMemcpyAsync: 700" → calls
        self.ranges = 0  # events of the range profiler, which records no single kernels
        self.timed = 0
        self.first, self.last = inf, -inf  # µs
        self._roles: dict[str | None, int] = {}

    @property
    def kept(self) -> int:
        return len(self.kernels) + len(self.fills) + len(self.copies) + len(self.calls)

    def add(self, batch: Iterable[Event]) -> None:
        """Takes in the complete events (phase X) of `batch`; flows, counters and metadata are passed over."""
        roles = self._roles
        for event in batch:
            if event.ph != "X":
                continue
            role = roles.get(event.cat)
            if role is None:
                role = self._role(event.cat)
            if role == _IGNORED:
                continue
            ts, dur = event.ts, event.dur
            if ts is None or dur is None or not (0 <= dur <= _LONGEST and -_FURTHEST <= ts <= _FURTHEST):
                self._refuse(event, role)
                continue
            self.timed += 1
            # No min() and max() here: this is the loop that a million events go through.
            if ts < self.first:  # noqa: PLR1730
                self.first = ts
            if ts + dur > self.last:  # noqa: PLR1730
                self.last = ts + dur
            if role != _HOST:
                self._keep(role, event, ts, dur)
            elif event.name is not None and event.name.startswith(_STEP) and len(self.steps) < _MAX_STEPS:
                self.steps.setdefault(event.name, (ts, ts + dur))

    def _refuse(self, event: Event, role: int) -> None:
        """An operator still open when the profiler stopped has no duration and is no damage; GPU work without is."""
        if role != _HOST or event.ts is None or event.dur is not None:
            self.damage.add(
                f"{event.cat or 'an event'} {event.name or ''!r} has the time {event.ts} and the duration {event.dur}"
            )

    def _role(self, category: str | None) -> int:
        lower = (category or "").lower()
        found = next((role for names, role in _ROLES if lower in names), _HOST)
        if len(self._roles) < _MAX_NAMES:
            self._roles[category] = found
        return found

    def _keep(self, role: int, event: Event, ts: float, dur: float) -> None:
        args = event.args or _NO_ARGS
        name = event.name or ""
        if role == _CALL:
            self.calls.add(ts, dur, name)
            result = args.result if args.result is not None else args.old_result
            if result is not None:
                self._note_result(name, result)
        elif role == _KERNEL:
            self.kernels.add(ts, dur, str(args.device))
        elif role == _FILL:
            self.fills.add(ts, dur, str(args.device))
        elif role == _COPY:
            self.copies.add(ts, dur, _copy_label(name, str(args.device)))
            told = args.bytes if args.bytes is not None else args.old_bytes
            self.copy_bytes.append(nan if told is None or told < 0 else told)
        else:
            self.ranges += 1

    def _note_result(self, name: str, result: int | str) -> None:
        self.results += 1
        if api_calls.is_failure(result):
            what = clean(f"{name}: {result}", 120)
            if len(self.failures) >= _MAX_NAMES:
                what = _FURTHER
            self.failures[what] = self.failures.get(what, 0) + 1


@lru_cache(maxsize=_MAX_NAMES)
def _copy_label(name: str, device: str) -> str:
    return str(CopyLabel(device, api_calls.direction_of_copy(name), api_calls.host_memory_of_copy(name)))
