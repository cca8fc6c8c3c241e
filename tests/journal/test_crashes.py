"""A writer that is killed, and a disk that fails, at every single call: an entry is there whole or not at all."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

from latdoctor.journal.store import Journal
from tests.crash.sweep import KILLED, Call, Ended, calls, failed_at, killed_at, points, told
from tests.journal.builders import files

APPENDING = Path(__file__).with_name("append_process.py")
WRITES = ("write", "pwrite64", "ftruncate", "fsync", "fdatasync", "unlink", "mkdir")


def command(folder: Path, count: int = 1) -> list[str]:
    return [sys.executable, str(APPENDING), str(folder / "state" / "journal.sqlite"), str(count), "r"]


def must_be_whole(folder: Path, ended: Ended) -> int:
    """How many entries there are: what was acknowledged, and at most the one that was not. More can be appended."""
    acknowledged = len(ended.stdout.split())
    path = folder / "state" / "journal.sqlite"
    before = files(folder)
    entries = Journal.reading(path).entries()
    assert files(folder) == before
    assert acknowledged <= len(entries) <= acknowledged + 1
    bodies = [msgspec.json.decode(entry.body) for entry in entries]
    assert bodies == [{"stage": 0, "index": index} for index in range(len(entries))]
    made = Journal.opened(path)
    assert made.entries() == entries
    assert made.append("r", "settled", {}) == made.verify()
    assert len(made.entries()) == len(entries) + 1
    assert [path.name for path in (folder / "state").iterdir()] == ["journal.sqlite"]
    return len(entries)


def is_unfinished(folder: Path) -> bool:
    journal = folder / "state" / "journal.sqlite-journal"
    return journal.exists() and journal.read_bytes()[:1] not in (b"", b"\0")


def test_killed_at_every_call(tmp_path: Path) -> None:
    found: set[int] = set()
    unfinished = 0
    swept = points(command(tmp_path / "whole", 2), WRITES)
    assert swept > 40
    for k in range(1, swept + 1):
        folder = tmp_path / str(k)
        ended = killed_at(command(folder, 2), k, WRITES)
        assert ended.returncode == KILLED
        if not (folder / "state").exists():
            continue
        unfinished += is_unfinished(folder)
        found.add(must_be_whole(folder, ended))
    assert found == {0, 1, 2}
    assert unfinished > 5  # a reader then has to take the half write back in memory


ERRORS = {"pwrite64": "ENOSPC", "fsync": "EIO", "fdatasync": "EIO", "unlink": "EIO", "ftruncate": "EIO"}


@pytest.mark.parametrize("onwards", [False, True], ids=["once", "from then on"])
def test_a_disk_that_fails_at_every_call(tmp_path: Path, onwards: bool) -> None:
    failed = 0
    for number, call in enumerate(calls(command(tmp_path / "whole"), tuple(ERRORS))):
        folder = tmp_path / str(number)
        ended = failed_at(command(folder), call, ERRORS[call.syscall], onwards=onwards)
        assert "Traceback" not in ended.stderr
        assert ended.returncode in (0, 1), ended.stderr
        if ended.returncode:
            failed += 1
            assert str(folder) in ended.stderr
            assert " — " in ended.stderr  # what to do next
        must_be_whole(folder, ended)
    assert failed > 5


def test_a_full_disk_is_called_so(tmp_path: Path) -> None:
    ended = failed_at(command(tmp_path), Call("pwrite64", 1), "ENOSPC", onwards=True)
    assert "the disk is full" in ended.stderr


def test_what_is_acknowledged_has_been_synced(tmp_path: Path) -> None:
    """Every file that was written, and every folder in which a name came or went, has been synced by then."""
    called = re.compile(r"^(?:\d+ +)?(\w+)\((?:AT_FDCWD(?:<[^>]*>)?, )?(?:\d+<([^>]*)>|\"([^\"]*)\")(.*)")
    lines = told(command(tmp_path, 2), (*WRITES, "openat"))
    waiting: set[str] = set()
    acknowledged = written = 0
    database = str(tmp_path / "state" / "journal.sqlite")
    for line in lines:
        call = called.match(line)
        assert call, line
        name, place, rest = call[1], call[2] or call[3], call[4]
        if not place.startswith(str(tmp_path)):
            if name == "write" and place.startswith("pipe:"):
                assert waiting == set()
                acknowledged += 1
            continue
        if name in ("fsync", "fdatasync"):
            waiting.discard(place)
        elif name == "pwrite64":
            assert place != database or f"{database}-journal" not in waiting, "written before it can be taken back"
            waiting.add(place)
            written += 1
        elif name in ("unlink", "mkdir") or "O_CREAT" in rest:
            waiting.discard(place)
            waiting.add(str(Path(place).parent))
    assert acknowledged == 2
    assert written > 5
