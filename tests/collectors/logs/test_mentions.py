"""An error counts where a program reports it, not where a person writes about one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from latdoctor.collectors.logs.collector import parse
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event

LINES: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("mentions.yaml").read_text())


def events(line: str) -> tuple[Event, ...]:
    try:
        return parse([Artifact("logs/x", "logs", "x", "x.log", 1.8e9, f"{line}\n".encode())]).events
    except SourceError:
        return ()


@pytest.mark.parametrize("line", LINES["mentioned"])
def test_a_line_that_mentions_an_error_reports_none(line: str) -> None:
    assert events(line) == ()


@pytest.mark.parametrize("line", LINES["reported"])
def test_a_line_that_reports_one_is_an_event(line: str) -> None:
    assert events(line) != ()
