"""The host source over small made-up machines, and once over the real one."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.host import COLLECTOR, accelerator_list
from latdoctor.collectors.host import collector as host
from latdoctor.collectors.host import proc_snapshot as host_samples
from latdoctor.collectors.host.proc_snapshot import HostSample
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import to_json
from tests.collectors.host.made_machines import (
    NODE,
    PRIVATE_MOUNT,
    V1_MOUNTS,
    V2_MOUNT,
    Files,
    Machine,
    pressure,
    proc_stat,
    stat,
    switches,
)

PID = 4711
HZ = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def near(expected: float) -> object:
    return pytest.approx(expected, rel=1e-9)


def process(*tasks: int, **files: object) -> dict[str, object]:
    """The files of process 4711 with quiet threads; `files` are put over them."""
    table: dict[str, object] = {
        f"/proc/{PID}/stat": stat(PID, threads=len(tasks)),
        f"/proc/{PID}/status": "State:\tS (sleeping)\nThreads:\t1\nCpus_allowed_list:\t0-1\n",
        f"/proc/{PID}/cgroup": "0::/pod/server\n",
    }
    for task in tasks:
        table[f"/proc/{PID}/task/{task}/stat"] = stat(task)
        table[f"/proc/{PID}/task/{task}/status"] = switches(5, 5)
    return {**NODE, **table, **files}


def test_the_machine(watch):
    seen = watch(NODE)
    told = {reading.signal: reading.value for reading in seen.evidence.readings}
    # 1 000 ticks pass, 400 of them for users, 100 in the kernel, 50 waiting for disks, 50 stolen.
    assert told == {
        "host.accelerators": 0.0,
        "host.cpus": 2.0,
        "host.load_per_cpu": 1.5,
        "host.cpu.busy_ratio": near(0.5),
        "host.cpu.system_ratio": near(0.1),
        "host.cpu.steal_ratio": near(0.05),
        "host.cpu.iowait_ratio": near(0.05),
        "host.context_switch_rate": near(200),
        "host.psi.cpu_some": near(0.2),
        "host.psi.memory_some": near(0.05),
        "host.psi.memory_full": near(0.025),
        "host.psi.io_some": near(0.1),
        "host.psi.io_full": 0.0,
        "host.memory.available_ratio": near(0.25),
        "host.swap.in_rate": near(2),
        "host.major_fault_rate": near(4),
    }
    assert {reading.subject for reading in seen.evidence.readings} == {"node/local"}
    assert {reading.window.seconds for reading in seen.evidence.readings} == {10.0}
    assert [artifact.name for artifact in seen.artifacts] == ["host/000.json", "host/001.json"]


@pytest.mark.parametrize(
    ("change", "signals", "why"),
    [
        ({"/proc/pressure/cpu": None}, {"host.psi.cpu_some"}, "no such file"),
        (
            {"/proc/pressure/memory": "some avg10=0.00\n"},
            {"host.psi.memory_some", "host.psi.memory_full"},
            "no readable line",
        ),
        (
            {"/proc/pressure/io": [pressure(9, 9), pressure(3, 9)]},
            {"host.psi.io_some", "host.psi.io_full"},
            "decreased",
        ),
        ({"/proc/vmstat": "nr_free_pages 5\npswpin 3\n"}, {"host.major_fault_rate"}, "pgmajfault is missing"),
        (
            {"/proc/vmstat": ["pgmajfault 9\npswpin 3\n", "pgmajfault 2\npswpin 3\n"]},
            {"host.major_fault_rate"},
            "decreased",
        ),
        ({"/proc/meminfo": "MemTotal: 0 kB\nMemAvailable: 0 kB\n"}, {"host.memory.available_ratio"}, "MemTotal is 0"),
        ({"/proc/meminfo": "MemTotal: 10 kB\n"}, {"host.memory.available_ratio"}, "MemAvailable is missing"),
        ({"/proc/meminfo": "\x00\x01 garbage \n"}, {"host.memory.available_ratio"}, "no readable line"),
        ({"/proc/loadavg": "much\n"}, {"host.load_per_cpu"}, "no load average"),
        ({"/proc/loadavg": "nan 1 1\n"}, {"host.load_per_cpu"}, "no load average"),
        ({"/proc/loadavg": ""}, {"host.load_per_cpu"}, "no load average"),
        (
            {"/proc/stat": [proc_stat(user=9, iowait=5), proc_stat(user=99, iowait=1)]},
            {"host.cpu.iowait_ratio"},
            "iowait decreased",
        ),
        (
            {"/proc/stat": [proc_stat(user=9, idle=5), proc_stat(user=3, idle=100)]},
            {"host.cpu.busy_ratio", "host.cpu.steal_ratio", "host.cpu.system_ratio", "host.cpu.iowait_ratio"},
            "user decreased",
        ),
        (
            {"/proc/stat": proc_stat(user=9)},
            {"host.cpu.busy_ratio", "host.cpu.steal_ratio", "host.cpu.system_ratio", "host.cpu.iowait_ratio"},
            "no processor time passed",
        ),
    ],
)
def test_what_cannot_be_read_hides_itself_and_nothing_else(watch, change, signals, why):
    whole = {reading.signal for reading in watch(NODE).evidence.readings}
    seen = watch({**NODE, **change})
    assert {reading.signal for reading in seen.evidence.readings} == whole - signals
    for signal in signals:
        assert why in seen.gap(signal)


def test_waiting_for_disks_that_goes_backwards_spoils_no_other_share(watch):
    before, after = proc_stat(user=0, iowait=500), proc_stat(user=75, idle=25, iowait=400)
    assert watch({**NODE, "/proc/stat": [before, after]}).value("host.cpu.busy_ratio") == near(0.75)


def test_no_window_no_rate(watch):
    seen = watch(NODE, window=0)
    assert seen.value("host.memory.available_ratio") == 0.25
    assert seen.value("host.psi.cpu_some") is None
    assert seen.value("host.context_switch_rate") is None
    assert "needs two samples" in seen.gap("host.psi.cpu_some")


def test_nothing_of_proc(watch):
    """On a machine without /proc there is not one reading, and a reason for each signal."""
    seen = watch({})
    assert seen.evidence.readings == ()
    hidden = {signal for gap in seen.evidence.gaps for signal in gap.signals}
    assert hidden == {signal for signal in COLLECTOR.provides if not signal.startswith("process.")}


QUOTA_V2 = {
    "/sys/fs/cgroup/pod/server/cpu.max": "200000 100000\n",
    "/sys/fs/cgroup/pod/server/cpu.stat": [
        "usage_usec 9\nnr_periods 100\nnr_throttled 10\nthrottled_usec 1000000\n",
        "usage_usec 9\nnr_periods 200\nnr_throttled 40\nthrottled_usec 6000000\n",
    ],
    "/sys/fs/cgroup/pod/cpu.max": "max 100000\n",
    "/sys/fs/cgroup/pod/cpu.stat": "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    "/sys/fs/cgroup/cpu.stat": "usage_usec 9\n",
    "/sys/fs/cgroup/pod/server/memory.max": "1000\n",
    "/sys/fs/cgroup/pod/server/memory.current": "900\n",
    "/sys/fs/cgroup/pod/server/memory.stat": "anon 100\ninactive_file 300\n",
    "/sys/fs/cgroup/pod/server/memory.events": ["low 0\noom 0\noom_kill 1\n", "low 0\noom 2\noom_kill 3\n"],
    "/sys/fs/cgroup/pod/memory.max": "max\n",
}
QUOTA_V1 = {
    f"/proc/{PID}/cgroup": "4:memory:/pod/server\n3:cpuacct,cpu:/pod/server\n0::/\n",
    "/proc/self/mountinfo": V1_MOUNTS,
    "/sys/fs/cgroup/cpu,cpuacct/pod/server/cpu.cfs_quota_us": "200000\n",
    "/sys/fs/cgroup/cpu,cpuacct/pod/server/cpu.cfs_period_us": "100000\n",
    "/sys/fs/cgroup/cpu,cpuacct/pod/server/cpu.stat": [
        "nr_periods 100\nnr_throttled 10\nthrottled_time 1000000000\n",
        "nr_periods 200\nnr_throttled 40\nthrottled_time 6000000000\n",
    ],
    "/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us": "-1\n",
    "/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us": "100000\n",
    "/sys/fs/cgroup/cpu,cpuacct/pod/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
    "/sys/fs/cgroup/memory/pod/server/memory.limit_in_bytes": "1000\n",
    "/sys/fs/cgroup/memory/pod/server/memory.usage_in_bytes": "900\n",
    "/sys/fs/cgroup/memory/pod/server/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
    "/sys/fs/cgroup/memory/pod/server/memory.oom_control": [
        "oom_kill_disable 0\noom_kill 1\n",
        "oom_kill_disable 0\noom_kill 3\n",
    ],
    "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "9223372036854771712\n",
}


@pytest.mark.parametrize("limits", [QUOTA_V2, QUOTA_V1], ids=["v2", "v1"])
def test_limits(watch, limits):
    seen = watch(process(PID, **limits), pid=PID)
    told = {r.signal: r.value for r in seen.evidence.readings if r.signal.startswith("cgroup.")}
    assert told == {
        "cgroup.cpu.quota": 2.0,
        "cgroup.cpu.throttled_ratio": near(0.3),
        "cgroup.cpu.throttled_time": near(0.5),
        "cgroup.memory.used_ratio": near(0.6),
        "cgroup.memory.oom_kills": 2.0,
    }
    assert {r.subject for r in seen.evidence.readings if r.signal.startswith("cgroup.")} == {f"process/{PID}"}


UNLIMITED_V2 = {
    **QUOTA_V2,
    "/sys/fs/cgroup/pod/server/cpu.max": "max 100000\n",
    "/sys/fs/cgroup/pod/server/cpu.stat": "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    "/sys/fs/cgroup/pod/server/memory.max": "max\n",
}
UNLIMITED_V1 = {
    **QUOTA_V1,
    "/sys/fs/cgroup/cpu,cpuacct/pod/server/cpu.cfs_quota_us": "-1\n",
    "/sys/fs/cgroup/cpu,cpuacct/pod/server/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
    "/sys/fs/cgroup/memory/pod/server/memory.limit_in_bytes": "9223372036854771712\n",
}


@pytest.mark.parametrize("limits", [UNLIMITED_V2, UNLIMITED_V1], ids=["v2", "v1"])
def test_no_limit_is_an_answer(watch, limits):
    seen = watch(process(PID, **limits), pid=PID)
    assert seen.value("cgroup.cpu.quota") == 2.0  # both processors
    assert seen.value("cgroup.cpu.throttled_ratio") == 0.0
    assert seen.value("cgroup.cpu.throttled_time") == 0.0
    assert seen.value("cgroup.memory.used_ratio") == 0.0
    reading = seen.reading("cgroup.cpu.quota")
    assert reading is not None
    assert reading.note.startswith("no quota is set")


def test_limits_of_the_levels_above(watch):
    above = {
        "/sys/fs/cgroup/pod/cpu.max": "50000 100000\n",
        "/sys/fs/cgroup/pod/cpu.stat": [
            "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
            "nr_periods 100\nnr_throttled 90\nthrottled_usec 8000000\n",
        ],
        "/sys/fs/cgroup/pod/memory.max": "1000\n",
        "/sys/fs/cgroup/pod/memory.current": "990\n",
        "/sys/fs/cgroup/pod/memory.stat": "inactive_file 0\n",
    }
    seen = watch(process(PID, **{**QUOTA_V2, **above}), pid=PID)
    assert seen.value("cgroup.cpu.quota") == 0.5
    assert seen.value("cgroup.cpu.throttled_ratio") == near(0.9)
    assert seen.value("cgroup.cpu.throttled_time") == near(0.8)
    assert seen.value("cgroup.memory.used_ratio") == near(0.99)
    reading = seen.reading("cgroup.cpu.throttled_ratio")
    assert reading is not None
    assert reading.origin.place == "/sys/fs/cgroup/pod/cpu.stat"


@pytest.mark.parametrize(
    ("change", "signal", "why"),
    [
        (
            {
                "/sys/fs/cgroup/pod/server/cpu.stat": [
                    "nr_periods 9\nnr_throttled 5\n",
                    "nr_periods 10\nnr_throttled 1\n",
                ]
            },
            "cgroup.cpu.throttled_ratio",
            "nr_throttled decreased",
        ),
        ({"/sys/fs/cgroup/pod/server/cpu.max": "lots\n"}, "cgroup.cpu.quota", "not a quota and a period"),
        ({"/sys/fs/cgroup/pod/server/cpu.max": "lots 5\n"}, "cgroup.cpu.quota", "'lots' is not a number"),
        ({"/sys/fs/cgroup/pod/server/cpu.max": "5 0\n"}, "cgroup.cpu.quota", "period of 0"),
        ({"/sys/fs/cgroup/pod/server/memory.max": "0\n"}, "cgroup.memory.used_ratio", "a limit of 0"),
        ({"/sys/fs/cgroup/pod/server/memory.stat": None}, "cgroup.memory.used_ratio", "memory.stat: no such file"),
        ({"/sys/fs/cgroup/pod/server/memory.events": None}, "cgroup.memory.oom_kills", "no such file"),
        ({f"/proc/{PID}/cgroup": "0::/../other\n"}, "cgroup.cpu.quota", "this container cannot see"),
        (
            {f"/proc/{PID}/cgroup": "0::/elsewhere\n", "/sys/fs/cgroup/cpu.stat": None},
            "cgroup.cpu.quota",
            "no such file",
        ),
        ({f"/proc/{PID}/cgroup": "1:name=systemd:/\n"}, "cgroup.cpu.quota", "not mounted"),
        ({f"/proc/{PID}/cgroup": None}, "cgroup.cpu.quota", "cannot be read"),
        ({"/proc/self/mountinfo": "garbage - cgroup2\n"}, "cgroup.cpu.quota", "not mounted"),
    ],
)
def test_unknown_limits(watch, change, signal, why):
    seen = watch(process(PID, **{**QUOTA_V2, **change}), pid=PID)
    assert seen.value(signal) is None
    assert why in seen.gap(signal)


def test_kills_of_a_process_in_the_topmost_cgroup_are_those_of_the_machine(watch):
    top = {"/sys/fs/cgroup/cpu.stat": "usage_usec 9\n", "/sys/fs/cgroup/memory.stat": "anon 1\n"}
    seen = watch(process(PID, **{f"/proc/{PID}/cgroup": "0::/\n", **top}), pid=PID)
    assert seen.value("cgroup.memory.oom_kills") == 1.0
    reading = seen.reading("cgroup.memory.oom_kills")
    assert reading is not None
    assert reading.origin.place == "/proc/vmstat"


@pytest.mark.parametrize(
    ("change", "quota"),
    [
        # In a container the cgroup is "/", and has limits: they are the server's as well.
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        # The same without a cgroup namespace: the mount begins at the container's own folder.
        (
            {
                "/proc/self/cgroup": "0::/docker/abc\n",
                "/proc/self/mountinfo": V2_MOUNT.replace(" / ", " /docker/abc ", 1),
                "/sys/fs/cgroup/cpu.max": "150000 100000\n",
            },
            1.5,
        ),
        # The root of the machine has none, a login session is nobody's server.
        ({"/proc/self/cgroup": "0::/\n"}, None),
        ({"/proc/self/cgroup": "0::/user.slice/x\n", "/sys/fs/cgroup/user.slice/x/cpu.max": "5 5\n"}, None),
    ],
)
def test_without_a_process_the_cgroup_counts_only_in_a_container(watch, change, quota):
    seen = watch({**NODE, "/sys/fs/cgroup/cpu.stat": "usage_usec 9\n", **change})
    assert seen.value("cgroup.cpu.quota") == quota
    if quota is None:
        assert "need not be the server's" in seen.gap("cgroup.cpu.quota")
        assert seen.value("cgroup.cpu.throttled_ratio") is None
        assert seen.value("cgroup.memory.oom_kills") is None


def test_the_process(watch):
    tasks = {
        f"/proc/{PID}/stat": [
            stat(PID, user=10 * HZ, system=5 * HZ, minor=100, major=1, threads=3),
            stat(PID, user=22 * HZ, system=9 * HZ, minor=300, major=21, threads=3, rss=77),
        ],
        # Four moments: 1, 3, 2 and 2 threads run.
        f"/proc/{PID}/task/{PID}/stat": [stat(PID, state="R"), stat(PID, state="R"), stat(PID), stat(PID)],
        f"/proc/{PID}/task/4712/stat": [stat(4712), stat(4712, state="R")],
        f"/proc/{PID}/task/4713/stat": [stat(4713, state="D"), stat(4713, state="R")],
        f"/proc/{PID}/task/{PID}/status": [switches(10, 20), switches(30, 60)],
        f"/proc/{PID}/task/4712/status": [switches(100, 200), switches(140, 280)],
        # A thread that began in the window counts with all it did; one that took an old number as well.
        f"/proc/{PID}/task/4713/status": [switches(900, 900), switches(6, 3)],
    }
    tasks[f"/proc/{PID}/task/4713/stat"] = [stat(4713), *[stat(4713, state="R", start=2000)] * 3]
    for path in (f"/proc/{PID}/stat", *(f"/proc/{PID}/task/{task}/status" for task in (PID, 4712, 4713))):
        first, last = tasks[path]
        tasks[path] = [first, first, first, last]
    seen = watch(process(**{**QUOTA_V2, **tasks}), pid=PID, window=1.5)
    told = {r.signal: r.value for r in seen.evidence.readings if r.signal.startswith("process.")}
    assert told == {
        "process.threads": 3.0,
        "process.runnable_threads": near(2.0),
        "process.threads_per_cpu": near(1.0),
        "process.voluntary_switch_rate": near((20 + 40 + 6) / 1.5),
        "process.involuntary_switch_rate": near((40 + 80 + 3) / 1.5),
        "process.cpu_ratio": near(16 / 1.5),
        "process.system_ratio": near(0.25),
        "process.minor_fault_rate": near(200 / 1.5),
        "process.major_fault_rate": near(20 / 1.5),
        "process.rss": 77.0 * PAGE,
        "process.uptime": near(1010 - 1000 / HZ),
        "process.others_cpu_ratio": 0.0,
    }
    assert seen.evidence.parents == {"node/local": None, f"process/{PID}": "node/local"}
    assert [gap for gap in seen.evidence.gaps if gap.subject == f"process/{PID}"] == []
    assert len(seen.artifacts) == 4


@pytest.mark.parametrize(
    ("mask", "ratio", "of"),
    [
        ("0-1", (150 + 50 - 60) / 300, 2),
        ("1", 0.0, 1),  # on its own processor nobody else was at work; what it did elsewhere is no debt
        ("0", (150 - 60) / 200, 1),
        ("many", (150 + 50 - 60) / 300, 2),
        ("8-9", (150 + 50 - 60) / 300, 2),  # a mask of other numbers than /proc/stat has, as in some containers
    ],
)
def test_what_others_took_of_its_processors(watch, mask, ratio, of):
    """Processor 0 worked 150 of 200 ticks and processor 1 50 of 100; 60 of these 200 were the process's."""
    before = "cpu  9 0 0 9 0 0 0 0 0 0\ncpu0 10 0 0 10 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n"
    after = "cpu  9 0 0 9 0 0 0 0 0 0\ncpu0 110 0 50 40 10 0 0 10 0 0\ncpu1 30 20 0 40 0 0 0 10 0 0\n"
    change = {
        "/proc/stat": [before, after],
        f"/proc/{PID}/stat": [stat(PID, user=5, system=5), stat(PID, user=45, system=25)],
        f"/proc/{PID}/status": f"Cpus_allowed_list:\t{mask}\n",
    }
    taken = watch(process(PID, **change), pid=PID, window=0.5).reading("process.others_cpu_ratio")
    assert taken.value == near(ratio)
    assert f"on the {of} processors" in taken.note


def test_subprocesses_of_the_process_are_not_others(watch):
    """Both processors worked 100 of 100 ticks: 20 by the process, 100 by its worker, 40 by the worker's own."""
    change = {
        "/proc/stat": [
            "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n",
            "cpu  200 0 0 0 0 0 0 0 0 0\ncpu0 100 0 0 0 0 0 0 0 0 0\ncpu1 100 0 0 0 0 0 0 0 0 0\n",
        ],
        f"/proc/{PID}/stat": [stat(PID), stat(PID, user=20)],
        "/proc/5001/stat": [stat(5001, parent=PID), stat(5001, parent=PID, user=90, system=10)],
        "/proc/5002/stat": [None, stat(5002, parent=5001, user=40, start=1001)],
        "/proc/6000/stat": [stat(6000, parent=1), stat(6000, parent=1, user=40)],
    }
    taken = watch(process(PID, **change), pid=PID, window=0.5).reading("process.others_cpu_ratio")
    assert taken.value == near(0.2)
    assert "its 2 subprocesses" in taken.note


@pytest.mark.parametrize(
    ("change", "usable"),
    [
        ({}, 2),
        ({f"/proc/{PID}/status": "Cpus_allowed_list:\t3\n"}, 1),
        ({f"/proc/{PID}/status": "Cpus_allowed_list:\t0-3,8,10-11\n"}, 7),
        ({f"/proc/{PID}/status": "Cpus_allowed_list:\tmany\n"}, 2),
        ({**QUOTA_V2, "/sys/fs/cgroup/pod/server/cpu.max": "50000 100000\n"}, 0.5),
    ],
)
def test_threads_per_processor_that_may_be_used(watch, change, usable):
    running = {f"/proc/{PID}/task/{PID}/stat": stat(PID, state="R")}
    seen = watch(process(PID, **{**running, **change}), pid=PID)
    assert seen.value("process.runnable_threads") == 1.0
    assert seen.value("process.threads_per_cpu") == near(1 / usable)


ALL_OF_PROCESS = {signal for signal in COLLECTOR.provides if signal.startswith("process.")}


NVIDIA, AMD, INTEL, HABANA = "0x10de", "0x1002", "0x8086", "0x1da3"
# PCI functions as vendor and class, device nodes, accelerators
ACCELERATORS: dict[str, tuple[list[tuple[str, str]], list[str], int]] = {
    "none": ([], [], 0),
    "an NVIDIA GPU": ([(NVIDIA, "0x030200")], [], 1),
    "an NVIDIA GPU with its sound function": ([(NVIDIA, "0x030000"), (NVIDIA, "0x040300")], [], 1),
    "two AMD GPUs": ([(AMD, "0x038000"), (AMD, "0x038000")], [], 2),
    "graphics of the processor": ([(INTEL, "0x030000")], [], 0),
    "a Gaudi": ([(HABANA, "0x120000")], [], 1),
    "WSL": ([], ["dxg"], 1),
    "a GPU and its nodes": ([(NVIDIA, "0x030200")], ["nvidia0", "nvidiactl"], 1),
}


@pytest.mark.parametrize(("functions", "nodes", "count"), ACCELERATORS.values(), ids=ACCELERATORS.keys())
def test_accelerators_are_counted(watch, functions, nodes, count):
    files: Files = {f"/dev/{name}": "" for name in nodes}
    for number, ids in enumerate(functions):
        for name, text in zip(("vendor", "class"), ids, strict=True):
            files[f"/sys/bus/pci/devices/0000:3b:00.{number}/{name}"] = f"{text}\n"
    assert watch(NODE | files).value("host.accelerators") == count


def test_a_bus_that_cannot_be_listed_is_no_machine_without_accelerators(watch):
    seen = watch({path: text for path, text in NODE.items() if not path.startswith("/sys/bus/pci")})
    assert seen.value("host.accelerators") is None
    assert "no such file" in seen.gap("host.accelerators")


def test_a_folder_too_large_to_list_is_no_machine_without_accelerators(watch, monkeypatch):
    monkeypatch.setattr(accelerator_list, "_MAX_ENTRIES", 2)
    seen = watch(NODE | {f"/dev/tty{number}": "" for number in range(3)})
    assert seen.value("host.accelerators") is None
    assert seen.gap("host.accelerators")


def test_process_that_does_not_exist(watch):
    seen = watch(NODE, pid=PID)
    for signal in ALL_OF_PROCESS:
        assert seen.value(signal) is None
        assert seen.gap(signal)
    assert {gap.subject for gap in seen.evidence.gaps} == {f"process/{PID}"}
    assert any("check that the process is running" in gap.next_step for gap in seen.evidence.gaps)


def test_process_that_ends_in_the_window(watch):
    files = {path: [text, text, None] if f"/{PID}/" in path else text for path, text in process(PID).items()}
    seen = watch(files, pid=PID, window=1.0)
    for signal in ALL_OF_PROCESS:
        assert seen.value(signal) is None
        assert "no such file" in seen.gap(signal)
    assert seen.value("host.cpus") == 2.0


def test_process_number_that_was_taken_by_another(watch):
    seen = watch(process(PID, **{f"/proc/{PID}/stat": [stat(PID), stat(PID, start=5000)]}), pid=PID)
    assert seen.value("process.cpu_ratio") is None
    assert "its PID was reused" in seen.gap("process.cpu_ratio")
    assert "its PID was reused" in seen.gap("process.voluntary_switch_rate")


@pytest.mark.parametrize(
    ("change", "signal", "why"),
    [
        ({f"/proc/{PID}/stat": "4711 (x) S 1\n"}, "process.rss", "not a line"),
        ({f"/proc/{PID}/stat": stat(PID).replace(" 1000 ", f" {'9' * 30} ")}, "process.rss", "not a line"),
        ({f"/proc/{PID}/stat": [stat(PID, user=9), stat(PID, user=3)]}, "process.cpu_ratio", "decreased"),
        ({f"/proc/{PID}/stat": [stat(PID, minor=9), stat(PID)]}, "process.minor_fault_rate", "decreased"),
        ({f"/proc/{PID}/task/{PID}/stat": "?"}, "process.runnable_threads", "not a line"),
        (
            {f"/proc/{PID}/task/{PID}/status": [switches(9, 9), switches(3, 9)]},
            "process.voluntary_switch_rate",
            "decreased",
        ),
        ({f"/proc/{PID}/task/{PID}/status": "\n"}, "process.voluntary_switch_rate", "no readable line"),
        ({"/proc/uptime": "5.00 1\n"}, "process.uptime", "relative to the container"),
        ({"/proc/uptime": ""}, "process.uptime", "no time"),
        ({}, "process.system_ratio", "used no processor time"),
    ],
)
def test_process_texts_that_make_no_sense(watch, change, signal, why):
    seen = watch(process(PID, **change), pid=PID)
    assert seen.value(signal) is None
    assert why in seen.gap(signal)


def test_more_threads_than_are_sampled(watch, monkeypatch):
    monkeypatch.setattr(host_samples, "MAX_TASKS", 2)
    seen = watch(process(PID, 4712, 4713), pid=PID)
    assert seen.value("process.threads") == 3.0
    for signal in ("process.runnable_threads", "process.involuntary_switch_rate"):
        assert seen.value(signal) is None
        assert "more threads than can be sampled (1 too many)" in seen.gap(signal)


def test_file_that_is_too_large(watch, monkeypatch):
    monkeypatch.setattr(host_samples, "MAX_TEXT", 4096)
    seen = watch({**NODE, "/proc/vmstat": "pgmajfault 1\n" * 1000})
    assert "larger than" in seen.gap("host.major_fault_rate")
    assert seen.value("host.cpus") == 2.0


def test_other_mounts_are_not_kept(watch):
    seen = watch(NODE)
    for artifact in seen.artifacts:
        assert b"secret" not in artifact.read()
    assert "secret" in PRIVATE_MOUNT


def test_a_replay_reads_the_same(watch, tmp_path: Path):
    seen = watch(process(PID, **QUOTA_V2), pid=PID, window=2.0)
    saved = []
    for number, artifact in enumerate(seen.artifacts):
        path = tmp_path / f"{number}.json"
        path.write_bytes(artifact.read())
        saved.append(replace(artifact, content=path))
    assert host.READER.parse(saved) == seen.evidence
    assert host.READER.parse(saved[::-1]) == seen.evidence


def sample(**changes: object) -> HostSample:
    whole = HostSample(1, 0.0, None, 100, 4096, (), 0, {}, {})
    return msgspec.structs.replace(whole, **changes)


def artifact_of(value: object, number: int = 0) -> Artifact:
    return Artifact(f"host/{number:03d}.json", "host", "host", "test", 0.0, to_json(value))


@pytest.mark.parametrize(
    ("samples", "what"),
    [
        ([{}], "not a sample"),
        ([[1, 2]], "not a sample"),
        ([sample(schema_version=9)], "version 9"),
        ([sample(time=5.0), sample(time=4.0)], "out of order"),
        ([sample(pid=1), sample(pid=2)], "different collections"),
        ([sample(ticks_per_second=0)], "inconsistent sample"),
        ([sample(page_size=1 << 40)], "inconsistent sample"),
    ],
)
def test_damaged_samples_are_refused(samples, what):
    with pytest.raises(SourceError, match=what):
        host.READER.parse([artifact_of(value, number) for number, value in enumerate(samples)])


@pytest.mark.parametrize("why", ["operation not supported", "permission denied", "error 5"])
def test_reasons_of_the_kernel_are_reported(why):
    unread = {"/proc/pressure/cpu": why, f"/proc/{PID}/stat": why}
    both = [sample(time=time, pid=PID, unread=unread) for time in (0.0, 9.0)]
    gaps = host.READER.parse([artifact_of(value, number) for number, value in enumerate(both)]).gaps
    (psi,) = (gap for gap in gaps if "host.psi.cpu_some" in gap.signals)
    assert psi.reason == f"/proc/pressure/cpu: {why}"
    assert "psi=1" in psi.next_step
    (rss,) = (gap for gap in gaps if "process.rss" in gap.signals)
    assert rss.reason == f"/proc/{PID}/stat: {why}"
    assert "as root" in rss.next_step


PATHS = [
    *NODE,
    *QUOTA_V2,
    f"/proc/{PID}/stat",
    f"/proc/{PID}/status",
    f"/proc/{PID}/cgroup",
    f"/proc/{PID}/task/{PID}/stat",
    f"/proc/{PID}/task/{PID}/status",
]
WHOLE = process(PID, **QUOTA_V2)
TEXTS = [text if isinstance(text, str) else text[0] for path in PATHS if (text := WHOLE[path])]
scraps = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(TEXTS).flatmap(lambda text: st.integers(0, len(text)).map(lambda cut: text[:cut])),
    st.text(max_size=60),
    st.from_regex(r"\A([a-z_]{1,9}[ :=][0-9]{0,25}\n){0,4}\Z"),
)
samples = st.builds(
    HostSample,
    schema_version=st.just(1),
    time=st.floats(0, 1e10),
    pid=st.just(PID),
    ticks_per_second=st.just(100),
    page_size=st.just(4096),
    tasks=st.sampled_from([(), (PID,), (PID, 4712)]),
    tasks_left_out=st.integers(0, 1),
    files=st.dictionaries(st.sampled_from(PATHS), scraps),
    unread=st.dictionaries(st.sampled_from(PATHS), st.sampled_from(["no such file", "permission denied"])),
)


@given(st.lists(samples, min_size=1, max_size=3))
def test_whatever_stands_in_the_files_each_signal_is_read_or_hidden(looks: list[HostSample]):
    looks.sort(key=lambda look: look.time)
    evidence = host.READER.parse([artifact_of(look, number) for number, look in enumerate(looks)])
    read = [reading.signal for reading in evidence.readings]
    hidden = {signal for gap in evidence.gaps for signal in gap.signals}
    assert len(read) == len(set(read))
    assert set(read) | hidden == COLLECTOR.provides
    assert not set(read) & hidden
    assert all(float(reading.value) >= 0 for reading in evidence.readings)


def test_preflight(tmp_path: Path):
    Machine(tmp_path / "root", {**NODE, "/proc/pressure/io": None, "/sys/fs/cgroup/cpu.max": "150000 100000\n"})
    sights = {sight.what: sight for sight in host.preflight(tmp_path / "root")}
    assert {what: sight.status for what, sight in sights.items()} == {
        "/proc": "yes",
        "pressure (PSI)": "partly",
        "cgroup": "yes",
        "a process": "if given",
    }
    assert "/proc/pressure/io: no such file" in sights["pressure (PSI)"].detail
    assert sights["cgroup"].detail == "CPU by version 2, memory by version 2; CPU quota of 1.5 processors"


def test_preflight_without_any_source(tmp_path: Path):
    sights = {sight.what: sight for sight in host.preflight(tmp_path)}
    assert [sight.status for sight in sights.values()] == ["no", "no", "partly", "if given"]
    assert "psi=1" in sights["pressure (PSI)"].next_step


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="this machine has no /proc")
def test_the_real_machine():
    """Reads the machine that runs the tests: nothing is expected of it but that the numbers are possible."""

    class Clock:
        def now(self) -> float:
            return time.monotonic()

        def sleep(self, seconds: float) -> None:
            threading.Event().wait(seconds)

    collected = host.READER.collect(CollectRequest(host=True, pid=os.getpid(), window=0.1), Clock())
    evidence = host.READER.parse(collected.artifacts)
    told = {reading.signal: float(reading.value) for reading in evidence.readings}
    assert told["host.cpus"] >= 1
    assert told["process.threads"] >= 1
    assert told["process.rss"] > PAGE
    assert 0 < told["process.uptime"] < 1e8
    assert 0 < told["host.memory.available_ratio"] <= 1
    for signal in ("host.cpu.busy_ratio", "host.cpu.system_ratio", "host.cpu.steal_ratio", "host.cpu.iowait_ratio"):
        assert 0 <= told.get(signal, 0.0) <= 1  # a machine of very few ticks may tell none
    assert all(value >= 0 for value in told.values())


def test_every_signal_is_catalogued():
    assert COLLECTOR.provides <= catalogue().keys()


def test_is_requested():
    assert COLLECTOR.is_requested(CollectRequest(host=True))
    assert COLLECTOR.is_requested(CollectRequest(pid=1))
    assert not COLLECTOR.is_requested(CollectRequest(nvml=True))
