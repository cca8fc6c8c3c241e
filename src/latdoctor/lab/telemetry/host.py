"""The host's /proc files at the start and end of the observation: a machine with idle processors."""

from __future__ import annotations

import random

from msgspec import Struct

_TICKS = 100
_SLICE = "/sys/fs/cgroup/system.slice"


class HostSample(Struct, frozen=True):
    """One moment: the texts by their paths."""

    schema_version: int
    time: float
    pid: int | None
    ticks_per_second: int
    page_size: int
    tasks: tuple[int, ...]
    tasks_left_out: int
    files: dict[str, str]
    unread: dict[str, str]


def samples(rng: random.Random, now: float, seconds: float) -> tuple[HostSample, HostSample]:
    """The first and the last sample of an observation, without a watched process."""
    cpus = rng.choice((32, 64, 96, 128))
    up, busy = rng.uniform(9, 60) * 86_400, rng.uniform(0.15, 0.4)
    memory = cpus * 8 * 1_048_576  # kB
    first, last = (_files(rng, up + after, cpus, busy, memory) for after in (0.0, seconds))
    return _sample(now, first), _sample(now + seconds, last)


def _sample(time: float, files: dict[str, str]) -> HostSample:
    return HostSample(1, time, None, _TICKS, 4096, (), 0, files, {})


def _files(rng: random.Random, up: float, cpus: int, busy: float, memory: int) -> dict[str, str]:
    return {
        "/proc/stat": _stat(up, cpus, busy),
        "/proc/vmstat": f"pswpin {int(up / 900)}\npswpout {int(up / 700)}\npgfault {int(up * 41_000)}\n"
        f"pgmajfault {int(up / 31)}\n",
        "/proc/meminfo": f"MemTotal:       {memory} kB\nMemFree:        {memory // 5} kB\n"
        f"MemAvailable:   {int(memory * 0.62)} kB\nSwapTotal:      0 kB\nSwapFree:       0 kB\n",
        "/proc/loadavg": f"{cpus * busy * rng.uniform(0.9, 1.1):.2f} {cpus * busy:.2f} {cpus * busy:.2f} "
        f"{int(cpus * busy) + 1}/{cpus * 31} {rng.randint(9_000, 90_000)}\n",
        "/proc/uptime": f"{up:.2f} {up * cpus * (1 - busy):.2f}\n",
        "/proc/pressure/cpu": _pressure(up, 0.004, 0.0),
        "/proc/pressure/memory": _pressure(up, 0.00001, 0.000005),
        "/proc/pressure/io": _pressure(up, 0.003, 0.002),
        "/proc/self/cgroup": "0::/system.slice\n",
        "/proc/self/mountinfo": "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 "
        "cgroup2 rw,nsdelegate\n",
        **_cgroup(up),
    }


def _stat(up: float, cpus: int, busy: float) -> str:
    """Ticks of all processors and of each: user, nice, system, idle, iowait, irq, softirq, steal, guests."""

    def ticks(count: int) -> str:
        whole = up * _TICKS * count
        shares = (busy * 0.82, 0.0, busy * 0.15, 1 - busy - 0.002, 0.002, 0.0, busy * 0.03, 0.0, 0.0, 0.0)
        return " ".join(str(int(whole * share)) for share in shares)

    each = "".join(f"cpu{number} {ticks(1)}\n" for number in range(cpus))
    return f"cpu  {ticks(cpus)}\n{each}ctxt {int(up * cpus * 1_150)}\nprocesses {int(up * 3)}\nprocs_running 9\n"


def _pressure(up: float, some: float, full: float) -> str:
    def line(kind: str, share: float) -> str:
        percent = f"{share * 100:.2f}"
        return f"{kind} avg10={percent} avg60={percent} avg300={percent} total={int(up * share * 1e6)}\n"

    return line("some", some) + line("full", full)


def _cgroup(up: float) -> dict[str, str]:
    """Version 2, without a limit at any level."""
    used = int(up * 6.1e5)
    return {
        f"{_SLICE}/cpu.stat": f"usage_usec {used}\nuser_usec {used * 4 // 5}\nsystem_usec {used // 5}\nnr_periods 0\n"
        "nr_throttled 0\nthrottled_usec 0\n",
        f"{_SLICE}/cpu.max": "max 100000\n",
        f"{_SLICE}/memory.current": "48318382080\n",
        f"{_SLICE}/memory.max": "max\n",
        f"{_SLICE}/memory.stat": "anon 21474836480\nfile 25769803776\ninactive_file 17179869184\n",
        f"{_SLICE}/memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    }
