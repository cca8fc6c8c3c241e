"""One holder for each key, named to the others, and free again however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from latdoctor.errors import OperationError, UsageError
from latdoctor.journal.locks import LockHeldError, lock

HERE = Path(__file__).parent
KEY = "http://127.0.0.1:8080"


@contextmanager
def holder(folder: Path, key: str, run: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, HERE / "lock_process.py", folder, key, run]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process


def test_one_of_fifty_processes_gets_the_lock(tmp_path: Path) -> None:
    for _ in range(3):  # the second and third time the words of the last holder still stand in the file
        command = [sys.executable, HERE / "lock_race.py", tmp_path / "locks", KEY, "50"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = [line.split() for line in done.stdout.splitlines()]
        assert len(lines) == 50
        (winner,) = [line[1] for line in lines if line[0] == "held"]
        named = {tuple(line[1:]) for line in lines if line[0] == "busy"}
        assert named <= {(winner, f"run-{winner}"), ("0",)}


def test_busy_names_the_holder_and_its_run(tmp_path: Path) -> None:
    with holder(tmp_path / "locks", KEY, "r-20260301") as process, pytest.raises(LockHeldError) as raised:  # noqa: SIM117
        with lock(tmp_path / "locks", KEY, "another"):
            pytest.fail("two hold it")
    assert (raised.value.pid, raised.value.run) == (process.pid, "r-20260301")
    assert f"process {process.pid}, run r-20260301 has locked {KEY}" in str(raised.value)
    assert raised.value.next_step
    assert raised.value.exit_code == 1


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_lock_is_free_after_its_holder_ends(tmp_path: Path, how: str) -> None:
    with holder(tmp_path / "locks", KEY, "r") as process:
        if how == "killed":
            process.kill()
        else:
            process.communicate("")
        process.wait()
        with lock(tmp_path / "locks", KEY):
            pass


def test_two_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    with lock(tmp_path, KEY, "one"):
        with pytest.raises(LockHeldError) as raised, lock(tmp_path, KEY, "two"):
            pytest.fail("two hold it")
        assert (raised.value.pid, raised.value.run) == (os.getpid(), "one")
        with lock(tmp_path, "another key"):
            pass
    with lock(tmp_path, KEY):
        pass


def test_what_fails_inside_frees_it_and_the_file_stays(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "locks"
    with pytest.raises(ZeroDivisionError), lock(folder, KEY):
        raise ZeroDivisionError
    (before,) = folder.iterdir()
    number = before.stat().st_ino
    with lock(folder, KEY):
        pass
    (after,) = folder.iterdir()
    assert (after.name, after.stat().st_ino) == (before.name, number)
    assert after.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("said", [b"", b"\xff", b"[]", b'{"pid": 99999999999999999999}', b'{"pid": -1}', b"9" * 9000])
def test_unidentified_holder(tmp_path: Path, said: bytes) -> None:
    with lock(tmp_path, KEY):
        (file,) = tmp_path.iterdir()
        file.write_bytes(said)
        with pytest.raises(LockHeldError, match="has not identified itself") as raised, lock(tmp_path, KEY):
            pytest.fail("two hold it")
    assert (raised.value.pid, raised.value.run) == (0, "")


def test_no_words_of_others_reach_the_screen(tmp_path: Path) -> None:
    with lock(tmp_path, "key\x1b[31m", "run"):
        (file,) = tmp_path.iterdir()
        file.write_bytes(b'{"pid": %d, "run": "\\u001b[31m"}' % os.getpid())
        with pytest.raises(LockHeldError) as raised, lock(tmp_path, "key\x1b[31m"):
            pytest.fail("two hold it")
    assert "\x1b" not in str(raised.value)


def test_what_is_no_lock_file_is_an_error(tmp_path: Path) -> None:
    with lock(tmp_path, KEY):
        pass
    (file,) = tmp_path.iterdir()
    file.unlink()
    file.mkdir()
    with pytest.raises(OperationError, match="cannot be taken"), lock(tmp_path, KEY):
        pytest.fail("it is held")
    file.rmdir()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OperationError, match="cannot be taken"), lock(tmp_path, KEY):
        pytest.fail("it is held")


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError), lock(tmp_path, KEY):
        pytest.fail("it is held")
