"""The sweep itself: every call is met once, in threads and children too, and is not done where it is killed."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.crash.sweep import KILLED, Call, calls, failed_at, killed_at, points

FILES = (
    "import pathlib, sys\n"
    "for name in 'abc':\n"
    "    pathlib.Path(sys.argv[1], name).mkdir()\n"
)  # fmt: skip
THREADS = """
import os, subprocess, sys, threading
def work(name):
    for number in range(5):
        os.mkdir(f"{sys.argv[1]}/{name}{number}")
threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
subprocess.run(["mkdir", f"{sys.argv[1]}/e"], check=True)
"""
MADE = ("mkdir", "mkdirat")


def python(code: str, folder: Path) -> list[str]:
    folder.mkdir()
    return [sys.executable, "-c", code, str(folder)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_call_is_killed_before_it_is_done(tmp_path: Path) -> None:
    assert points(python(FILES, tmp_path / "0"), MADE) == 3
    for k in (1, 2, 3):
        ended = killed_at(python(FILES, tmp_path / str(k)), k, MADE)
        assert ended.returncode == KILLED
        assert names(tmp_path / str(k)) == list("abc"[: k - 1])
    assert killed_at(python(FILES, tmp_path / "4"), 4, MADE).returncode == 0
    assert names(tmp_path / "4") == ["a", "b", "c"]


def test_threads_and_children_count_together(tmp_path: Path) -> None:
    assert points(python(THREADS, tmp_path / "0"), MADE) == 21
    for k in (1, 7, 20):
        assert killed_at(python(THREADS, tmp_path / str(k)), k, MADE).returncode == KILLED
        # Each of the three other threads may have been met at a call, and die before that is done.
        assert k - 1 - 3 <= len(names(tmp_path / str(k))) < 20
    ended = killed_at(python(THREADS, tmp_path / "21"), 21, MADE)
    assert ended.returncode == 1  # the child was killed, and its parent says so
    assert len(names(tmp_path / "21")) == 20


def test_exit_codes_pass_through() -> None:
    assert killed_at(["sh", "-c", "exit 6"], 0).returncode == 6
    assert killed_at(["sh", "-c", "kill -TERM $$"], 0).returncode == 128 + 15
    assert killed_at(["sh", "-c", "trap 'echo caught; exit 3' TERM; kill -TERM $$; sleep 9"], 0).stdout == "caught\n"


def test_one_call_fails(tmp_path: Path) -> None:
    first = calls(python(FILES, tmp_path / "0"), MADE)[0]
    ended = failed_at(python(FILES, tmp_path / "1"), Call(first.syscall, 2), "ENOSPC")
    assert "No space left on device" in ended.stderr
    assert names(tmp_path / "1") == ["a"]
