"""Notes of changes in every form, and what a process shows of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest, CollectResult
from latdoctor.collectors.changes import collector as changes
from latdoctor.collectors.changes import process
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, to_json

AT = 1769827742.0  # 2026-01-31T02:49:02Z


class Clock:
    def now(self) -> float:
        return AT + 600

    def sleep(self, seconds: float) -> None:
        raise AssertionError("reading files needs no waiting")


def noted(content: bytes) -> Evidence:
    return changes.READER.parse([Artifact("changes/notes-1-a", "changes", "notes-1-a", "a", AT, content)])


def collect(request: CollectRequest, root: Path = Path("/")) -> CollectResult:
    return changes.collect(request, Clock(), root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"2026-01-31T02:49:02Z deployed v7\n", "deployed v7"),
        (b"2026-01-31T03:49:02+01:00 deployed v7\n", "deployed v7"),  # git log --format='%cI %s'
        (b"[2026-01-31 02:49:02] deployed v7\n", "deployed v7"),
        (b"2026-01-31 02:49:02 +0000 - deployed v7\n", "deployed v7"),
        (b"1769827742 deployed v7\n", "deployed v7"),
        (b"# a comment\n\n31/Jan/2026:02:49:02 +0000 deployed v7\n", "deployed v7"),
        (b'{"time": "2026-01-31T02:49:02Z", "text": "deployed v7"}\n{"x": 1}\n', "deployed v7"),
        (b'[{"time": 1769827742000, "text": "deployed v7", "tags": ["deploy"]}]', "deployed v7"),  # Grafana
        (b'{"deployments": [{"created_at": "2026-01-31T02:49:02Z", "description": "deployed v7"}]}', "deployed v7"),
    ],
)
def test_notes(content: bytes, message: str) -> None:
    (event,) = noted(content).events
    assert (event.signal, event.subject, event.time, event.text) == ("change.deployment", "service", AT, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1769827742 restarted with API_KEY=hunter2 and v7\n", "restarted with API_KEY=redacted and v7"),
        (b"1769827742 serve --token hunter2 --port 80\n", "serve --token redacted --port 80"),
        (b"1769827742 pull https://bob:hunter2@git/x\n", "pull https://git/x"),
        (b'{"time": 1769827742, "text": "Authorization: Bearer hunter2-hunter2"}', "Authorization: Bearer redacted"),
        (b'{"time": 1769827742, "text": "said: user: password=hunter2"}', "said: user: password=redacted"),
        (b"1769827742 deployed v7 for alice from 10.1.2.3\n", "deployed v7 for alice from 10.1.2.3"),
    ],
)
def test_secrets_in_a_note_are_not_shown(content: bytes, message: str) -> None:
    (event,) = noted(content).events
    assert event.text == message


def test_nor_in_a_version() -> None:
    (event,) = noted(b'{"time": 1769827742, "text": "x", "ref": "https://bob:hunter2@git/x"}').events
    assert event.fields["to"] == "https://git/x"


def test_a_note_may_say_what_kind_of_change_it_is() -> None:
    (event,) = noted(b'{"time": 1769827742, "kind": "model", "text": "checkout", "version": 7}').events
    assert (event.signal, event.fields["to"]) == ("change.model", "7")


def test_unreadable_entries_are_reported() -> None:
    found = noted(b"2026-01-31T02:49:02Z deployed\nyesterday restarted\n")
    assert len(found.events) == 1
    assert "1 of its lines could not be read" in found.gaps[0].reason


@pytest.mark.parametrize("content", [b"", b"nothing\n", b"{}", b"[1, 2]", b"\x00\xff" * 50, b"[" * 100_000])
def test_a_file_without_a_change_is_refused(content: bytes) -> None:
    with pytest.raises(SourceError, match="no change with a time"):
        noted(content)


def test_of_very_many_notes_the_last_are_kept() -> None:
    found = noted(b"".join(b"%d change\n" % (1_700_000_000 + n) for n in range(3000)))
    assert len(found.events) == 1000
    assert min(event.time or 0 for event in found.events) == 1_700_002_000
    assert "2000 older" in found.gaps[0].reason


def test_a_missing_file_is_a_gap(tmp_path: Path) -> None:
    brought = collect(CollectRequest(changes=(tmp_path / "none", tmp_path)))
    assert [gap.reason.rpartition(": ")[2] for gap in brought.gaps] == ["does not exist", "is a folder"]


def a_machine(root: Path) -> Path:
    """A /proc with process 7, its configuration and its packages."""
    folder = root / "proc" / "7"
    folder.mkdir(parents=True)
    (root / "proc" / "stat").write_text("cpu 1 2 3\nbtime 1769820000\n")
    ticks = 7000 * os.sysconf("SC_CLK_TCK")
    (folder / "stat").write_text(f"7 (a b) S 1 {' '.join(['0'] * 17)} {ticks} 0 0 {' '.join(['0'] * 30)}\n")
    work = root / "srv"
    work.mkdir()
    (work / "scheduler.yaml").write_text("max: 8\n")
    os.utime(work / "scheduler.yaml", (AT, AT))
    (folder / "cwd").symlink_to(work)
    (folder / "cmdline").write_bytes(b"python\0-m\0serve\0--config=scheduler.yaml\0--token=hunter2\0/etc/none.yaml\0")
    packages = root / "opt" / "lib" / "site-packages"
    for name, at in (("torch-2.3.1", AT), ("numpy-2.0.0", AT + 5), ("old-1.0", AT - 1e6)):
        (packages / f"{name}.dist-info").mkdir(parents=True)
        os.utime(packages / f"{name}.dist-info", (at, at))
    (folder / "maps").write_text("7f00-7f01 r-xp 0 0:0 1 /opt/lib/site-packages/torch/lib/a.so\n7f02 r 0 0 0\n")
    return root


def test_a_process_shows_start_configuration_and_packages(tmp_path: Path) -> None:
    brought = collect(CollectRequest(pid=7), a_machine(tmp_path))
    assert b"hunter2" not in brought.artifacts[0].read()
    found = changes.READER.parse(brought.artifacts)
    told = {(event.signal, event.time, event.fields.get("what")) for event in found.events}
    assert told == {
        ("change.process_start", 1769827000.0, None),
        ("change.config", AT, "scheduler.yaml"),
        ("change.package", AT + 5, "torch 2.3.1, numpy 2.0.0"),
        ("change.package", AT - 1e6, "old 1.0"),
    }
    assert not found.gaps


def test_a_process_that_is_gone_is_a_gap(tmp_path: Path) -> None:
    found = changes.READER.parse(collect(CollectRequest(pid=9), tmp_path).artifacts)
    assert not found.events
    assert len(found.gaps) == 3


def test_this_process_can_be_read() -> None:
    state = process.read_process_state(os.getpid())
    assert state.started is not None
    assert 0 < state.started < 4e9
    assert any(package.name == "pytest" for package in state.packages) or not state.packages


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"pid": "x"}', b"\xff"])
def test_a_damaged_state_is_refused(raw: bytes) -> None:
    with pytest.raises(SourceError, match="not a process state"):
        changes.READER.parse([Artifact("changes/process-7.json", "changes", "process-7", "process 7", AT, raw)])


def test_a_state_is_read_as_it_was_kept() -> None:
    state = process.ProcessState(7, 1.0, (process.ConfigFile("a\x1b[31m.yaml", 2.0, "ab"),))
    assert json.loads(to_json(state))["pid"] == 7
    found = changes.READER.parse([Artifact("changes/x", "changes", "process-7", "x", AT, to_json(state))])
    assert found.events[1].fields["what"] == "a.yaml"


@given(st.binary(max_size=300))
def test_any_bytes_give_changes_or_a_typed_error(content: bytes) -> None:
    try:
        found = noted(content)
    except SourceError:
        return
    assert all(event.time is not None for event in found.events)
