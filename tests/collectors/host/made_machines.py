"""Small made-up machines: a table of path → text (or one text per moment), written below a folder of the test."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Reading

# A text for every moment; or a list, of which the last one stays. None: there is no such file.
Files = Mapping[str, str | Sequence[str | None] | None]

TIMES = "{user} 0 {system} {idle} {iowait} 0 0 {steal} 0 0"
CPU = f"cpu  {TIMES}\ncpu0 {TIMES}\ncpu1 1 0 1 1 0 0 0 0 0 0\n"


def proc_stat(*, user=0, system=0, idle=0, iowait=0, steal=0, ctxt=0) -> str:
    ticks = CPU.format(user=user, system=system, idle=idle, iowait=iowait, steal=steal)
    return f"{ticks}intr 5 1 2\nctxt {ctxt}\nbtime 1700000000\n"


def pressure(some: int, full: int = 0) -> str:
    line = "{} avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    return line.format("some", some) + line.format("full", full)


def stat(pid: int, *, state="S", user=0, system=0, minor=0, major=0, threads=1, start=1000, rss=10, parent=1) -> str:
    return (
        f"{pid} (a (very) odd) name) {state} {parent} 1 1 0 -1 4194304 {minor} 0 {major} 0 {user} {system} 0 0 20 0 "
        f"{threads} 0 {start} 100000 {rss} 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"
    )


def switches(voluntary: int, involuntary: int) -> str:
    return f"Name:\tworker\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n"


V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)
PRIVATE_MOUNT = "99 23 0:50 / /srv/somebody/secret rw - nfs server:/export rw\n"

NODE: Files = {
    "/proc/stat": [
        proc_stat(user=100, system=50, idle=800, iowait=20, steal=30, ctxt=1000),
        proc_stat(user=500, system=150, idle=1200, iowait=70, steal=80, ctxt=3000),
    ],
    "/proc/vmstat": ["pgmajfault 100\npswpin 7\noom_kill 0\n", "pgmajfault 140\npswpin 27\noom_kill 1\n"],
    "/proc/meminfo": "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    250 kB\n",
    "/proc/loadavg": "3.00 1.00 0.50 2/100 4711\n",
    "/proc/uptime": "1010.00 1.00\n",
    "/proc/pressure/cpu": [pressure(1_000_000), pressure(3_000_000)],
    "/proc/pressure/memory": [pressure(0, 0), pressure(500_000, 250_000)],
    "/proc/pressure/io": [pressure(5, 5), pressure(1_000_005, 5)],
    "/sys/bus/pci/devices/0000:00:01.0/vendor": "0x1af4\n",
    "/sys/bus/pci/devices/0000:00:01.0/class": "0x020000\n",
    "/dev/null": "",
    "/proc/self/cgroup": "0::/\n",
    "/proc/self/mountinfo": V2_MOUNT + PRIVATE_MOUNT,
}


@dataclass(frozen=True)
class Seen:
    evidence: Evidence
    artifacts: tuple[Artifact, ...]

    def reading(self, signal: str) -> Reading | None:
        found = [reading for reading in self.evidence.readings if reading.signal == signal]
        assert len(found) <= 1, f"{signal} was read twice"
        return found[0] if found else None

    def value(self, signal: str) -> float | None:
        found = self.reading(signal)
        return None if found is None else float(found.value)

    def gap(self, signal: str) -> str:
        return "; ".join(gap.reason for gap in self.evidence.gaps if signal in gap.signals)


class Machine:
    """A clock and a folder: each sleep brings the machine to its next moment."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root, self.files = root, files
        self.time, self.moment = 1_700_000_000.0, 0
        self.write()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.moment += 1
        self.write()

    def write(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        for path, given in self.files.items():
            texts = [given] if given is None or isinstance(given, str) else list(given)
            text = texts[min(self.moment, len(texts) - 1)]
            if text is not None:
                target = self.root / path.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
