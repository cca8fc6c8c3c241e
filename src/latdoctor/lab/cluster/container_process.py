"""The process of a container: started in its own session, its resident memory, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

from latdoctor.lab.server import parent_watch

_PAGE = os.sysconf("SC_PAGE_SIZE")
_POLL = 0.02  # seconds
_SCHED_CLOCK = 2  # CPUCLOCK_SCHED of linux/posix-timers.h: the processor time of a process


class ContainerProcess:
    """It ends with the thread that started it. `exit_code` is None while it runs; 128 + N after signal N."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 (the command of the Pod)
                parent_watch.watched(*command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        code = self._process.poll()
        if code is None:
            return None
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # the processes that it has left behind
        return code if code >= 0 else 128 - code

    def wait(self, seconds: float, hurry: Event) -> bool:
        """Whether it has ended, when the time is over or `hurry` is set."""
        ends = time.monotonic() + seconds
        while self.exit_code is None and time.monotonic() < ends and not hurry.wait(_POLL):
            pass
        return self.exit_code is not None

    def resident(self) -> int:
        """Bytes of resident memory, with its descendants."""
        return sum(_resident(pid) for pid in _tree(self.pid))

    def processor_time(self) -> float:
        """Seconds of processor time so far, with its descendants."""
        total = 0.0
        for pid in _tree(self.pid):
            with suppress(OSError):  # it has ended
                total += time.clock_gettime((~pid << 3) | _SCHED_CLOCK)
        return total

    def send(self, number: signal.Signals) -> None:
        """Sends it to all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
