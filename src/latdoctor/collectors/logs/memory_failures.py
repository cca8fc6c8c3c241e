"""Failed allocations of device memory in a log, with their figures: the first failure on each device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from latdoctor.collectors.logs.line_kind import LineKind, LineLocation
from latdoctor.collectors.logs.memory_figures import NEEDLES, MemoryFigures, figures_in, memory_use
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import AT_MOST, Evidence, Origin, Reading, Subject, Window
from latdoctor.units import format_value

_REACH = 12  # lines: a message that is wrapped or printed in several lines ends within them
_MAX_DEVICES = 64


@dataclass(slots=True)
class _Failure:
    figures: MemoryFigures
    first: LineLocation
    last_line: int


class _MemoryFailures:
    """Joins the lines of each message. Mutable."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._current: _Failure | None = None
        self._firsts: dict[str, _Failure] = {}
        self._count = 0

    def take(self, at: LineLocation) -> None:
        figures, begins = figures_in(at.text)
        current = self._current
        near = current is not None and at.number - current.last_line <= _REACH
        if (
            current is not None
            and near
            and not current.figures.conflicts(figures)
            and not self._repeats(figures, begins)
        ):
            current.figures = current.figures.joined(figures)
            current.last_line = at.number
        elif begins:
            self._close()
            self._count += 1
            self._current = _Failure(figures, at, at.number)

    def _repeats(self, figures: MemoryFigures, begins: bool) -> bool:
        """Whether the line begins a further failure, of the same size: its message is whole and so was the last."""
        return (
            begins
            and figures.total is not None
            and self._current is not None
            and (self._current.figures.total is not None)
        )

    def _close(self) -> None:
        found = self._current
        if found is not None and len(self._firsts) < _MAX_DEVICES:
            self._firsts.setdefault(found.figures.device, found)

    def evidence(self, *, complete: bool) -> Evidence:
        self._close()
        group = self._artifact.group
        # A first line without its device is of a failure that a later line describes in full.
        named = [device for device in self._firsts if device]
        firsts = {device: one for device, one in self._firsts.items() if device or not named}
        subjects: list[Subject] = []
        readings: list[Reading] = []
        for device, failure in firsts.items():
            subject = f"allocator/{group}" if len(firsts) == 1 else f"allocator/{group}:{device}"
            found = tuple(self._readings(failure, subject))
            if found:
                subjects.append(Subject(subject, parent=f"node/{group}"))
                readings += found
        return Evidence(subjects=tuple(subjects), readings=tuple(readings))

    def _readings(self, failure: _Failure, subject: str) -> Iterator[Reading]:
        figures, use = failure.figures, memory_use(failure.figures)
        time = failure.first.line.time
        origin = Origin(self._artifact.name, f"line {failure.first.number}")
        note = f"the first of {self._count} failures" if self._count > 1 else ""
        values = {
            "oom.requested": figures.requested,
            "oom.device_total": figures.total,
            "oom.device_free": figures.free,
            "oom.process_used": use.process_used,
            "oom.other_used": use.other_used,
            "oom.allocated": use.allocated,
            "oom.reserved_unallocated": use.unallocated,
        }
        for signal, value in values.items():
            if value is not None:
                bound = AT_MOST if signal == "oom.other_used" and use.other_is_bound else ""
                yield Reading(signal, subject, value, origin, Window(time, time), note=note, bound=bound)
        if figures.requested and figures.free is not None and use.unallocated is not None:
            room = figures.free + use.unallocated
            shown = f"{_size(figures.free)} free and {_size(use.unallocated)} unused for {_size(figures.requested)}"
            place = Origin(self._artifact.name, f"{origin.place}: {shown}")
            yield Reading("oom.room_ratio", subject, room / figures.requested, place, Window(time, time), note=note)


def _size(value: float) -> str:
    return format_value(value, "bytes")


KIND = LineKind("memory-failures", NEEDLES, _MemoryFailures)
