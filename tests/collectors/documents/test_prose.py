"""What people write about errors is no report of one; what they quote of a program's output is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from latdoctor.collectors.documents.reader import parse
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact

TEXTS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("prose.yaml").read_text())


@pytest.mark.parametrize("name", TEXTS["written"])
def test_nothing_is_read_in_what_a_person_wrote(name: str) -> None:
    with pytest.raises(SourceError):
        parse([Artifact("documents/x", "documents", "x", "x.md", 1.8e9, TEXTS["written"][name].encode())])


@pytest.mark.parametrize("name", TEXTS["reported"])
def test_what_a_program_printed_is_read_within_it(name: str) -> None:
    found = parse([Artifact("documents/x", "documents", "x", "x.md", 1.8e9, TEXTS["reported"][name].encode())])
    assert found.events
