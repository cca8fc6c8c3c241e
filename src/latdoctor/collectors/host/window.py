"""The first and the last sample of the host as one span, and the plain forms of its texts. Pure.

What cannot be read raises SourceError with the reason; the caller turns it into a gap that hides the signals at stake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latdoctor.collectors.host.samples import HostSample
from latdoctor.errors import SourceError
from latdoctor.sanitize import clean


@dataclass(frozen=True, slots=True)
class HostValue:
    """One value in base units and the file that tells it."""

    signal: str
    value: float
    place: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class SignalGroup:
    """Signals that are told together, so that they are missing together."""

    signals: tuple[str, ...]
    read: Callable[[SampleWindow], Sequence[HostValue]]


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """The samples of one look, at least one, in the order of time."""

    samples: tuple[HostSample, ...]

    @property
    def first(self) -> HostSample:
        return self.samples[0]

    @property
    def last(self) -> HostSample:
        return self.samples[-1]

    @property
    def seconds(self) -> float:
        """Between the first and the last sample. Raises SourceError where they are one."""
        passed = self.last.time - self.first.time
        if passed <= 0:
            raise SourceError("a rate needs two samples", next_step="give a window (--window 10s)")
        return passed

    def text(self, path: str) -> str:
        """As it stood last. Raises SourceError where it could not be read."""
        return text_of(self.last, path)

    def both(self, path: str) -> tuple[str, str]:
        """As it stood first and last. Raises SourceError where either could not be read."""
        return text_of(self.first, path), text_of(self.last, path)

    def growth(self, path: str, key: str, *, absent: int | None = None) -> int:
        """How much the counter `key` grew. Raises SourceError where it is absent, unreadable or went backwards.

        With `absent` given, a counter that the file does not name counts as that.
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
    """Why `path` is not among the texts, and what would help."""
    why = clean(sample.unread.get(path, "was not read"), 200)
    return SourceError(f"{path}: {why}", next_step=_advice(path, sample.pid))


def _advice(path: str, pid: int | None) -> str:
    if path.startswith("/proc/pressure/"):
        return "boot with psi=1 on a kernel that has pressure stall information (4.20 and newer)"
    if path.startswith(f"/proc/{pid}/"):
        return "see whether the process still runs; read the processes of others as root"
    return ""


def counter_growth(before: float, after: float, what: str) -> int:
    """Raises SourceError for a counter that is smaller than it was."""
    if after < before:
        raise SourceError(f"{what} went backwards in the window (restart, or a counter that was reset)")
    return int(after - before)


def numbers(text: str, path: str) -> dict[str, int]:
    """Lines such as `pgmajfault 12`, `MemTotal:  8 kB` or `some avg10=0.00 total=5` (as some.total).

    Lines whose value is no whole number are left out. Raises SourceError where no line has one.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, *rest = line.split()[:8] or [""]
        pairs = [(f"{key}.{name}", value) for name, equals, value in (part.partition("=") for part in rest) if equals]
        for name, value in pairs or [(key.rstrip(":"), rest[0] if rest else "")]:
            # Not isdecimal(): that is true of digits of other scripts as well.
            if value.isascii() and value.isdecimal() and len(value) <= 20:
                found.setdefault(name, int(value))
    if not found:
        raise SourceError(f"{path}: not a line of it can be read")
    return found


def number(values: dict[str, int], key: str, path: str, absent: int | None = None) -> int:
    """Raises SourceError where `key` is missing and `absent` is not given."""
    found = values.get(key, absent)
    if found is None:
        raise SourceError(f"{path}: {key} is missing")
    return found


def single(text: str, path: str) -> int | None:
    """A file of one number; None for `max`, `-1` and what version 1 writes for "no limit". Raises SourceError."""
    value = text.strip()
    if value in ("max", "-1"):
        return None
    if not (value.isascii() and value.isdecimal() and len(value) <= 20):
        raise SourceError(f"{path}: {clean(value, 60)!r} is not a number")
    return int(value)
