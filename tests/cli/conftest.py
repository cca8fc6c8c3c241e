"""Fixtures of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, with the user's configuration and the state below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    return tmp_path
