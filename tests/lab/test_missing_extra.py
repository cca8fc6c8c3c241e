"""Without the extra, every command of the laboratory says what to install, and none breaks."""

from __future__ import annotations

import pytest

from tests.cli.running import run

COMMANDS = (
    "demo",
    "lab serve",
    "lab load http://127.0.0.1:1",
    "lab run promo-rush",
    "lab inject --list",
    "lab proxy --to 127.0.0.1:1",
    "lab bench diagnosis --no-run",
    "lab bench remediation --no-run",
    "lab bench mapping --to tables",
    "lab bench promote RUN --to bundle",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_packages_are_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    outcome = run(command.split())
    assert outcome.code == 2
    assert "this command needs" in outcome.err
    assert "pip install 'latdoctor[lab]'" in outcome.err
