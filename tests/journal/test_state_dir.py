"""Where the state lies, and that nobody else can change it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from latdoctor.errors import UsageError
from latdoctor.journal.state_dir import check_private, ensure_private, folder


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LATDOCTOR_STATE": "/a/b", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/a/b"),
        ({"LATDOCTOR_STATE": "", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/latdoctor"),
        ({"XDG_STATE_HOME": "not/absolute", "HOME": "/h"}, "/h/.local/state/latdoctor"),
        ({"XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/latdoctor"),
        ({"HOME": "/h"}, "/h/.local/state/latdoctor"),
        ({"LATDOCTOR_STATE": "here"}, str(Path.cwd() / "here")),
    ],
)
def test_default_location(environment: dict[str, str], expected: str) -> None:
    assert folder(environment) == Path(expected)


def test_asking_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "a"))
    assert folder() == tmp_path / "a"
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UsageError, match="LATDOCTOR_STATE"):
        folder({})


def test_folder_is_private(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        ensure_private(wanted)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(made.stat().st_mode) for made in (wanted, wanted.parent)] == [0o700, 0o700]
    ensure_private(wanted)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
def test_what_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(UsageError, match="other users can write") as raised:
        ensure_private(tmp_path)
    assert raised.value.where == str(tmp_path)
    assert "chmod 700" in raised.value.next_step


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(UsageError, match="belongs to user 12345"):
        ensure_private(tmp_path)


def test_what_cannot_be_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for wanted in (file, file / "below", tmp_path / "loop", tmp_path / ("x" * 300), tmp_path / "a\0b"):
        with pytest.raises(UsageError) as raised:
            ensure_private(wanted)
        assert raised.value.next_step
        with pytest.raises(UsageError):
            check_private(wanted)


def test_reading_creates_nothing_and_refuses_writable_folders(tmp_path: Path) -> None:
    check_private(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    tmp_path.chmod(0o702)
    with pytest.raises(UsageError, match="other users can write"):
        check_private(tmp_path)
