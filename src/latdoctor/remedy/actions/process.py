"""A process on this machine, known by its number and by when it began: another one may have got the number since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from latdoctor.errors import UsageError
from latdoctor.remedy.change import Refused
from latdoctor.remedy.target import Target

T = TypeVar("T")
PROC = Path("/proc")
_ENDED = "ZX"  # states of a process that only waits to be buried


@dataclass(frozen=True, slots=True)
class Process:
    """`started` in clock ticks after boot: field 22 of /proc/PID/stat (proc_pid_stat(5))."""

    pid: int
    started: int

    @classmethod
    def of(cls, target: Target) -> Process:
        """Raises UsageError for a target that does not say which process it is."""
        if target.pid <= 1 or target.started <= 0:
            raise UsageError("the target does not say which process it is, and when that began", where=target.name)
        return cls(target.pid, round(target.started))

    def __str__(self) -> str:
        return f"process {self.pid} of {self.started}"

    @property
    def test(self) -> str:
        """A shell's test that it is still this process: for the commands that a person types."""
        return f"""[ "$(sed 's/.*) //' /proc/{self.pid}/stat | cut -d' ' -f20)" = {self.started} ]"""

    def state(self) -> str | None:
        """Its state's letter (`S`, `R`, `T`, …); None where it has ended, whatever has its number now."""
        try:
            text = (PROC / str(self.pid) / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = text.rpartition(")")[2].split()
        if len(fields) < 20 or fields[19] != str(self.started) or fields[0] in _ENDED:
            return None
        return fields[0]

    def must_be(self) -> str:
        """Its state. Raises Refused where it has ended."""
        state = self.state()
        if state is None:
            raise Refused("the process has ended; another one may have its number now", where=str(self))
        return state

    def threads(self) -> tuple[int, ...]:
        """The numbers of its threads at this moment. Raises Refused where it has ended."""
        self.must_be()
        try:
            return tuple(sorted(int(task.name) for task in (PROC / str(self.pid) / "task").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            return ()

    def permitted(self, call: Callable[[], T]) -> T | None:
        """What `call` gives; None where the process or thread it is about has ended meanwhile. Raises Refused."""
        try:
            return call()
        except ProcessLookupError:
            return None
        except PermissionError as error:
            raise Refused(
                "it may not be changed by this user", where=str(self), next_step="run latdoctor as its user"
            ) from error
        except OSError as error:
            raise Refused(f"the kernel refuses: {error.strerror}", where=str(self)) from error


def began(pid: int) -> int:
    """When the process began, in clock ticks after boot. Raises UsageError where there is none."""
    try:
        return int((PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError) as error:
        raise UsageError("there is no such process", where=f"--pid {pid}") from error
