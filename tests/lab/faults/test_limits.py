"""Limits on a real process. Where control groups cannot be written, the error that says so is what is tested."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.faults.process_limits import cpu_quota, memory_squeeze, quota_group

THREADS = """
import threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("up", flush=True)
threading.Event().wait()
"""


def cgroup_of(pid: int, task: int | None = None) -> str:
    path = f"/proc/{pid}/cgroup" if task is None else f"/proc/{pid}/task/{task}/cgroup"
    return Path(path).read_text()


def tasks(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def quota(victim: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """A victim on a machine where quotas can be had."""
    try:
        with quota_group(victim.pid, 1):
            pass
    except OperationError as error:
        pytest.skip(f"no CPU quota here: {error}")
    return victim


def groups(pid: int) -> list[Path]:
    """Those of the victim. A group that goes while this walks past it (os.walk goes on, a glob does not) is none."""
    walked = os.walk("/sys/fs/cgroup")
    return [Path(at, name) for at, names, _ in walked for name in names if name.startswith(f"latdoctor-quota-{pid}-")]


def test_every_thread_is_under_the_quota_and_home_again_afterwards(quota: subprocess.Popen[str]) -> None:
    before = cgroup_of(quota.pid)
    with cpu_quota(quota.pid, 0.25, 60):
        (group,) = groups(quota.pid)
        assert {cgroup_of(quota.pid, task) for task in tasks(quota.pid)} == {cgroup_of(quota.pid)}
        assert len(tasks(quota.pid)) == 4
        assert group.name in cgroup_of(quota.pid)
        quotas = [group / "cpu.cfs_quota_us", group / "cpu.max"]
        assert next(file.read_text().split()[0] for file in quotas if file.exists()) == "25000"
    assert (cgroup_of(quota.pid), groups(quota.pid)) == (before, [])


def test_the_quota_ends_by_itself_after_its_lifetime(quota: subprocess.Popen[str]) -> None:
    before = cgroup_of(quota.pid)
    with cpu_quota(quota.pid, 0.5, 0.05):
        gone = False
        while not gone:
            gone = not groups(quota.pid)
        assert cgroup_of(quota.pid) == before


def test_quota_ends_when_the_injector_is_killed(quota: subprocess.Popen[str]) -> None:
    before = cgroup_of(quota.pid)
    code = (
        "import time\n"
        "from latdoctor.lab.faults.process_limits import cpu_quota\n"
        f"with cpu_quota({quota.pid}, 0.5, 600):\n"
        "    print('in', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as injector:
        assert injector.stdout is not None
        assert injector.stdout.readline() == "in\n"
        assert groups(quota.pid)
        injector.send_signal(signal.SIGKILL)
        injector.wait()
    while groups(quota.pid):
        pass
    assert cgroup_of(quota.pid) == before


def test_a_keeper_that_is_killed_leaves_nothing_behind_either(quota: subprocess.Popen[str]) -> None:
    before = cgroup_of(quota.pid)
    with cpu_quota(quota.pid, 0.5, 60):
        (group,) = groups(quota.pid)
        os.kill(int(group.name.rpartition("-")[2]), signal.SIGKILL)
    assert (cgroup_of(quota.pid), groups(quota.pid)) == (before, [])


def test_one_quota_at_a_time(quota: subprocess.Popen[str]) -> None:
    before = cgroup_of(quota.pid)
    with cpu_quota(quota.pid, 0.5, 60):
        during = cgroup_of(quota.pid)
        with pytest.raises(OperationError, match="already"), cpu_quota(quota.pid, 0.5, 60):
            pytest.fail("a second quota")
        assert cgroup_of(quota.pid) == during
    assert (cgroup_of(quota.pid), groups(quota.pid)) == (before, [])


def test_a_process_may_end_under_its_quota(quota: subprocess.Popen[str]) -> None:
    with cpu_quota(quota.pid, 0.5, 60):
        quota.kill()
        quota.wait()
    assert groups(quota.pid) == []


def faults_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])


READS = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("up", flush=True)
for _ in sys.stdin:
    print(sum(mapped[place] for place in range(0, len(mapped), 4096)), flush=True)
"""


def test_squeezed_file_pages_come_back_from_the_disk_and_are_what_they_were(tmp_path: Path) -> None:
    file = tmp_path / "mapped"
    file.write_bytes(bytes(range(256)) * (16 << 12))
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    with subprocess.Popen(
        [sys.executable, "-c", READS, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None

        def read() -> str:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write("\n")
            reader.stdin.flush()
            return reader.stdout.readline()

        try:
            assert reader.stdout.readline() == "up\n"
            expected, before = read(), faults_of(reader.pid)
            try:
                with memory_squeeze(reader.pid, 0, 60):
                    while faults_of(reader.pid) < before + 20:
                        assert read() == expected
            except OperationError as error:
                if os.geteuid() == 0:
                    raise
                assert "not possible" in str(error)  # noqa: PT017 - either this or the faults above
            assert read() == expected
        finally:
            reader.kill()


def test_where_others_have_the_same_pages_it_is_refused(victim: subprocess.Popen[str]) -> None:
    """A plain interpreter, of which this one has mapped the same files."""
    if os.geteuid() != 0:
        pytest.skip("only root gets so far")
    with pytest.raises(OperationError, match="mapped by other processes too"), memory_squeeze(victim.pid, 0, 60):
        pytest.fail("it is squeezed")


@pytest.mark.parametrize("limit", [cpu_quota, memory_squeeze])
def test_missing_process_is_reported(limit: object) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(OperationError, match=str(gone.pid)), limit(gone.pid, 0.5, 5):  # type: ignore[operator]
        pytest.fail("no process is limited")


@pytest.mark.parametrize(
    ("limit", "arguments"),
    [
        (cpu_quota, (1, 0.5, 5)),
        (cpu_quota, (0, 0.5, 5)),
        (cpu_quota, (4, -1, 5)),
        (cpu_quota, (4, float("nan"), 5)),
        (cpu_quota, (4, 0.5, 0)),
        (cpu_quota, (4, 0.5, 1e9)),
        (memory_squeeze, (4, 1, 5)),
        (memory_squeeze, (4, -0.1, 5)),
    ],
)
def test_numbers_without_sense_are_refused(limit: object, arguments: tuple[float, ...]) -> None:
    with pytest.raises(UsageError), limit(*arguments):  # type: ignore[operator]
        pytest.fail("it is limited")


def test_missing_rights_are_named(victim: subprocess.Popen[str]) -> None:
    if os.geteuid() != 0:
        with pytest.raises(OperationError, match=r"root|mounted"), cpu_quota(victim.pid, 0.5, 5):
            pytest.fail("it is limited")
        return
    code = (
        "import os, sys\n"
        "from latdoctor.lab.faults.process_limits import main\n"
        "os.setuid(65534)\n"  # nobody
        f"sys.exit(main([sys.argv[1], '{victim.pid}', '0.5', '5']))\n"
    )
    for kind in ("cpu", "memory"):
        done = subprocess.run(
            [sys.executable, "-c", code, kind], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert "root" in done.stderr
        assert "Traceback" not in done.stderr
    assert groups(victim.pid) == []
