"""docs/notify.md shows a configuration that is read, and what is printed. `LATDOCTOR_GOLDEN=write` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from latdoctor.journal.store import Journal
from tests.cli.running import private_file, run, write_trusted
from tests.http.stub_server import answering, serving
from tests.notify import incident_cases as stories

PAGE = Path(__file__).parents[2] / "docs" / "notify.md"


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```\n<!-- /{name} -->", PAGE.read_text(), re.DOTALL)
    assert found, f"the page has no block {name}"
    return found[1]


def shows(name: str, printed: str) -> None:
    """The block holds the command and what it printed."""
    command = block(name).splitlines()[0]
    wanted = f"{command}\n{printed}"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        PAGE.write_text(PAGE.read_text().replace(block(name), wanted))
    assert block(name) == wanted


@pytest.fixture(autouse=True)
def _at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute and a half after an alert."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LATDOCTOR_STATE", str(tmp_path / "state"))
    private_file("pagerduty.key", "k" * 32)
    private_file("webhook.key", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    private_file("slack.url", "https://hooks.slack.com/services/T0/B0/x")
    write_trusted(block("configuration"))
    moments = iter([stories.at(one["at"]) for one in stories.story("promo-rush")[:4]])
    journal = Journal.opened(tmp_path / "state" / "journal.sqlite", clock=lambda: next(moments))
    for one in stories.story("promo-rush")[:4]:
        journal.append(one["run"], one["kind"], one["body"])
    there = Journal(journal.path, True, lambda: stories.at(90))
    monkeypatch.setattr("latdoctor.cli.notify._journal", lambda **_: there)


def test_the_dry_run() -> None:
    outcome = run(block("dry-run").splitlines()[0].removeprefix("$ latdoctor ").split())
    assert outcome.code == 0, outcome.err
    shows("dry-run", outcome.out)


def test_the_sending() -> None:
    with serving(answering(202)) as server:
        here = f"http://127.0.0.1:{server.port}"
        private_file("slack.url", f"{here}/services/T0/B0/x")
        text = block("configuration").replace("https://hooks.example.org", here)
        for kind, also in (("pagerduty", f"url: {here}"), ("slack", f"allow: [{here}]")):
            text = text.replace(f"kind: {kind}\n", f"kind: {kind}\n    {also}\n    allow_private: true\n")
        write_trusted(text)
        outcome = run(block("send").splitlines()[0].removeprefix("$ latdoctor ").split())
    assert outcome.code == 0, outcome.err
    shows("send", "".join(sorted(outcome.err.splitlines(keepends=True))) + outcome.out)
