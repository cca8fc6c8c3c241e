"""The samples of the host over one window, and parsers of their text formats. Pure.

Unreadable values raise SourceError with the reason; the caller turns it into a gap that hides the signals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latdoctor.collectors.host.proc_snapshot import HostSample
from latdoctor.errors import SourceError
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean


@dataclass(frozen=True, slots=True)
class HostValue:
    """One value in base units and the file it is from."""

    signal: str
    value: float
    place: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class SignalGroup:
    """Signals read together, which are therefore missing together."""

    signals: tuple[str, ...]
    read: Callable[[SampleWindow], Sequence[HostValue]]


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """The samples of one collection, at least one, in time order."""

    samples: tuple[HostSample, ...]

    @property
    def first(self) -> HostSample:
        return self.samples[0]

    @property
    def last(self) -> HostSample:
        return self.samples[-1]

    @property
    def seconds(self) -> float:
        """Time between the first and the last sample. Raises SourceError if there is only one."""
        passed = self.last.time - self.first.time
        if passed <= 0:
            raise SourceError(
                "a rate needs two samples", next_step="set a window (--window 10s)", code=GapCode.INSUFFICIENT
            )
        return passed

    def text(self, path: str) -> str:
        """The last text of a file. Raises SourceError if it could not be read."""
        return text_of(self.last, path)

    def both(self, path: str) -> tuple[str, str]:
        """The first and the last text of a file. Raises SourceError if either could not be read."""
        return text_of(self.first, path), text_of(self.last, path)

    def growth(self, path: str, key: str, *, absent: int | None = None) -> int:
        """Growth of the counter `key`. Raises SourceError if it is absent, unreadable or decreased.

        With `absent`, a missing counter has that value.
        """
        before, after = (number(numbers(text, path), key, path, absent) for text in self.both(path))
        return counter_growth(before, after, f"{path}: {key}")

    def rate(self, path: str, key: str) -> float:
        """Growth per second."""
        seconds = self.seconds
        return self.growth(path, key) / seconds


def text_of(sample: HostSample, path: str) -> str:
    if path not in sample.files:
        raise unread_error(sample, path)
    return sample.files[path]


def unread_error(sample: HostSample, path: str) -> SourceError:
    """Say why `path` was not read, and what would help."""
    why = clean(sample.unread.get(path, "was not read"), 200)
    return SourceError(f"{path}: {why}", next_step=_advice(path, sample.pid))


def _advice(path: str, pid: int | None) -> str:
    if path.startswith("/proc/pressure/"):
        return "boot with psi=1 on a kernel that has pressure stall information (4.20 and newer)"
    if path.startswith(f"/proc/{pid}/"):
        return "check that the process is running; run as root to read processes of other users"
    return ""


def counter_growth(before: float, after: float, what: str) -> int:
    """Raises SourceError if the counter decreased."""
    if after < before:
        raise SourceError(f"{what} decreased within the window (restart or counter reset)", code=GapCode.INCONSISTENT)
    return int(after - before)


def numbers(text: str, path: str) -> dict[str, int]:
    """Parse lines such as `pgmajfault 12`, `MemTotal:  8 kB` or `some avg10=0.00 total=5` (as some.total).

    Lines without an integer are skipped. Raises SourceError if there is none.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, *rest = line.split()[:8] or [""]
        pairs = [(f"{key}.{name}", value) for name, equals, value in (part.partition("=") for part in rest) if equals]
        for name, value in pairs or [(key.rstrip(":"), rest[0] if rest else "")]:
            # isascii too: isdecimal() accepts digits of other scripts.
            if value.isascii() and value.isdecimal() and len(value) <= 20:
                found.setdefault(name, int(value))
    if not found:
        raise SourceError(f"{path}: no readable line")
    return found


def number(values: dict[str, int], key: str, path: str, absent: int | None = None) -> int:
    """Raises SourceError if `key` is missing and `absent` is not set."""
    found = values.get(key, absent)
    if found is None:
        raise SourceError(f"{path}: {key} is missing", code=GapCode.ABSENT)
    return found


def single(text: str, path: str) -> int | None:
    """Parse a file with one number; None for `max`, `-1` and version 1's "no limit". Raises SourceError."""
    value = text.strip()
    if value in ("max", "-1"):
        return None
    if not (value.isascii() and value.isdecimal() and len(value) <= 20):
        raise SourceError(f"{path}: {clean(value, 60)!r} is not a number")
    return int(value)
