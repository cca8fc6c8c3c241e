"""The default screens of `incidents` as whole texts in golden/; `LATDOCTOR_GOLDEN=write` writes them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from latdoctor.incident.similar import past_incident, past_incidents, similar
from latdoctor.incident.timeline import timeline
from latdoctor.report.incidents import print_incident, print_list, print_similar
from tests.incident.scenarios import CAUSE, promo_rush

FOLDER = Path(__file__).parent / "golden"
RUSH = promo_rush().incident
MANY = tuple(promo_rush(incident=f"inc-20261122-06{number:02d}-4f2a").incident for number in range(12))
TITLES = {CAUSE: "Long requests run alone and starve the batcher"}


def _list(console: Console, *, verbose: bool = False) -> None:
    measures = [one for incident in MANY for one in timeline(incident).measures]
    print_list(past_incidents(MANY), measures, console, as_json=False, verbose=verbose, titles=TITLES)


def _similar(console: Console) -> None:
    print_similar(similar(past_incident(RUSH).features, past_incidents(MANY)), console, as_json=False)


def _show(console: Console) -> None:
    alike = similar(past_incident(RUSH).features, past_incidents(MANY))
    print_incident(past_incident(RUSH), timeline(RUSH), alike, console, as_json=False)


SCREENS: dict[str, Callable[[Console], None]] = {
    "incidents-list": _list,
    "incidents-none": lambda console: print_list((), (), console, as_json=False),
    "incidents-similar": _similar,
    "incidents-show": _show,
}


def _printed(screen: Callable[[Console], None]) -> str:
    out = io.StringIO()
    screen(Console(file=out, width=80, highlight=False, markup=False, emoji=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen(name: str) -> None:
    text = _printed(SCREENS[name])
    path = FOLDER / f"{name}.txt"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(cell_len, lines)) <= 80


def test_the_list_in_full_has_every_incident() -> None:
    text = _printed(lambda console: _list(console, verbose=True))
    assert [incident.id for incident in MANY if incident.id not in text] == []
