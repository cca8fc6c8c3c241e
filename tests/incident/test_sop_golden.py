"""What is printed of an incident, whole: golden/*.txt. `LATDOCTOR_GOLDEN=write` writes them anew."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from latdoctor.incident import events
from latdoctor.incident.sop.model import RUN_CLOSED, RUN_OPENED
from latdoctor.incident.status import IncidentStatus, incident_status
from latdoctor.report import handover, sop
from latdoctor.units import elapsed
from tests.incident.journal_builders import SOP, alert, cause, incident, moment

FOLDER = Path(__file__).parent / "golden"
ALERTED = {"source": "alert", "began": 1_789_999_970.0, "clock": "alertmanager", "title": "SlowP99: P99 is 3 s"}
NAMED = {
    "kind": events.DIAGNOSED,
    "at": 130,
    "answer": "named",
    "causes": [cause(playbooks=["app.batching.token-budget", "app.batching.release-at-once"])],
    "unseen": ["infrastructure: 12 checks could not be evaluated", "nvml: no driver", "logs: none", "a", "b", "c"],
    "bundle": "incidents/inc-20260921-1413-0001/looks/1.tar.zst",
}
RUN = [
    {"kind": events.PLANNED, "at": 150},
    {"kind": events.RUN_JOINED, "at": 160, "joined": "r1"},
    {"kind": RUN_OPENED, "at": 160, "run": "r1"},
]
STORIES: Mapping[str, tuple[list[dict[str, Any]], dict[str, Any], float]] = {
    "just-opened": ([], {}, 12),
    "at-work": (
        [
            {"kind": events.ALERTED, "at": 1, "alerts": [alert("firing"), alert("firing", "b")]},
            {"kind": events.CONFIRMED, "at": 20},
            NAMED,
            *RUN,
            {"kind": events.NOTED, "at": 170, "text": "the gateway is <fine>", "by": "ann"},
        ],
        ALERTED,
        180,
    ),
    "taken-back-and-late": (
        [
            NAMED,
            *RUN,
            {"kind": RUN_CLOSED, "at": 230, "run": "r1", "outcome": "rolled-back", "reason": "it has not helped"},
        ],
        {},
        1900,
    ),
    "closed": (
        [
            {"kind": events.CONFIRMED, "at": 20},
            NAMED,
            *RUN,
            {"kind": RUN_CLOSED, "at": 230, "run": "r1"},
            {"kind": events.MARKED, "at": 400, "stage": "verified", "by": "ann"},
            {"kind": events.CLOSED, "at": 500},
        ],
        ALERTED,
        9000,
    ),
    "named-before": (
        [
            NAMED,
            {"kind": events.DIAGNOSED, "at": 200},
            *(
                {"kind": events.NOTED, "at": 210 + number, "text": " ".join(30 * [f"note {number},"])}
                for number in range(6)
            ),
        ],
        {"targets": [], "began": 1_789_999_970.0, "clock": "given by hand"},
        300,
    ),
    "not-known": ([{"kind": events.CONFIRMED, "at": 20, "status": "unknown"}], {}, 90),
}


def printed(made: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, markup=False, highlight=False, emoji=False).print(made)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


FORMS: Mapping[str, Callable[[IncidentStatus], str]] = {
    "status": lambda found: printed(sop.page(found)),
    "screen": lambda found: printed(sop.screen(found)),
    "line": lambda found: sop.line(found) + "\n",
    "handover": lambda found: handover.as_text(found, handover.handover(found)),
    "handover as Markdown": lambda found: handover.as_markdown(found, handover.handover(found)),
    "record": lambda found: handover.as_text(found, handover.record(found)),
}


@pytest.mark.parametrize("name", STORIES)
def test_golden(name: str) -> None:
    rows, opened, now = STORIES[name]
    # Not of the file as it is today: what is shown of an entry would change with every remark in it.
    found = incident_status(SOP, incident(rows, {"sop_digest": "as it was", **opened}), moment(now), Path("nowhere"))
    told = "".join(f"===== {form}\n{render(found)}" for form, render in FORMS.items())
    path = FOLDER / f"{name}.txt"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        path.write_text(told)
    assert told == path.read_text()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_golden_is_fit_to_read(path: Path) -> None:
    text = path.read_text()
    assert not re.findall(r"\x1b|\bNone\b|\bnan\b|[ \t]+$", text, re.MULTILINE)
    for form in re.split(r"^===== ", text, flags=re.MULTILINE):
        if "Markdown" not in form.partition("\n")[0] and not form.startswith("line"):
            assert [line for line in form.splitlines() if len(line) > 80 and not line.startswith("    ")] == []


@pytest.mark.parametrize("name", STORIES)
def test_short_answer_fits_one_screen(name: str) -> None:
    answers = re.findall(
        r"^===== (status|screen)\n(.*?)(?=^=====|\Z)", (FOLDER / f"{name}.txt").read_text(), re.M | re.S
    )
    assert [form for form, _ in answers] == ["status", "screen"]
    for _, answer in answers:
        lines = answer.splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0:00"), (59.9, "0:59"), (-70, "-1:10"), (3723, "1:02:03"), (172_799, "47:59:59"), (-180_000, "-2 d 2 h")],
)
def test_times_are_cut_off_to_whole_seconds(seconds: float, told: str) -> None:
    assert elapsed(seconds) == told
