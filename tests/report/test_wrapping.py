"""Text for a terminal keeps to its columns, also where a character takes two; and a long title is cut there."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from latdoctor.incident import events
from latdoctor.incident.similar import past_incidents
from latdoctor.incident.status import incident_status
from latdoctor.incident.timeline import timeline
from latdoctor.notify import slack
from latdoctor.notify.messages import notices
from latdoctor.notify.outbox import MAKERS
from latdoctor.report import handover, incidents, sop
from latdoctor.report import timeline as timeline_text
from latdoctor.report.subject_names import shortened
from latdoctor.report.text_utils import WIDTH, wrapped, wrapped_parts
from latdoctor.sanitize import TITLE
from tests.incident.journal_builders import SOP, incident, moment
from tests.incident.scenarios import Log
from tests.notify.incident_cases import RECEIVERS

WIDE = "推論サービスの遅延が目標を超えています" * 20
LONG = "InferenceLatency" * 40


@given(st.text(max_size=300), st.sampled_from(["", "- "]), st.booleans())
def test_no_line_is_wider(text: str, first: str, hyphens: bool) -> None:
    line = " ".join(text.split())
    if line.isprintable():
        assert max(map(cell_len, wrapped(line, first, " " * len(first), hyphens=hyphens))) <= WIDTH


def test_names_are_not_broken_behind_a_hyphen_where_that_was_asked_for() -> None:
    text = "x" * 70 + " app-batching-long"
    assert wrapped(text, hyphens=False)[1] == "app-batching-long"
    assert wrapped(text)[1] != "app-batching-long"


@pytest.mark.parametrize("width", range(50, 80))
def test_a_moment_and_a_share_are_not_broken(width: int) -> None:
    text = f"{'x' * width} recorded 2026-03-05 06:42:10 UTC, in use 99 % of it"
    lines = wrapped(text, "", "  ")
    assert " ".join(line.strip() for line in lines) == text
    assert any("2026-03-05 06:42:10 UTC" in line for line in lines)
    assert any("99 %" in line for line in lines)


def test_no_part_is_cut() -> None:
    parts = [f"a_function_with_a_long_name_{number} (module/file.py:{number}) 20 %" for number in range(5)]
    lines = wrapped_parts("threads are in: {}", parts, " ", "   ", 2)
    assert len(lines) == 2
    assert lines[-1].endswith(" %")
    assert wrapped_parts("none: {}", [], " ", "   ", 2) == []


def printed(made: object) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=WIDTH, markup=False, highlight=False, emoji=False).print(made)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("title", [WIDE, LONG])
def test_where_an_incident_stands(title: str) -> None:
    rows = [{"kind": events.NOTED, "at": 20, "text": WIDE, "by": "ann"}]
    found = incident_status(SOP, incident(rows, {"title": title, "targets": [title[:90]]}), moment(90), Path("nowhere"))
    for sections in (handover.handover(found), handover.record(found)):
        text = handover.as_text(found, sections)
        assert max(cell_len(line) for line in text.splitlines() if not line.startswith("    ")) <= WIDTH
        assert "…" in text.partition("\n\n")[0]
    head = printed(sop.page(found))
    assert max(map(cell_len, head)) <= WIDTH
    assert "…" in "".join(head[:4])


@pytest.mark.parametrize("title", [WIDE, LONG])
def test_the_title_of_an_incident_is_cut_and_told_whole_once(title: str) -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened(title[:280], (), events.OpenedBy.HAND, "", "", by="Ada"))
    told = timeline(log.incident)
    text = timeline_text.render_text(told)
    assert max(map(cell_len, text.splitlines())) <= WIDTH
    assert "…" in text.partition("\n\n")[0]
    whole = text.replace("\n", "").replace(" ", "")
    assert title[:280] in whole, "where the opening is told"
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, markup=False, highlight=False, emoji=False)
    incidents.print_list(past_incidents([log.incident]), (), console, as_json=False)
    assert "…" in out.getvalue()
    assert max(map(cell_len, out.getvalue().splitlines())) <= WIDTH


@pytest.mark.parametrize("title", [WIDE, LONG])
def test_a_message_has_a_title_of_so_many_columns(title: str) -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened(title, (), events.OpenedBy.HAND, "", "", by="Ada"))
    alert = events.Alert("f1", events.AlertStatus.FIRING, title, {}, {"summary": title[:200]})
    log.add(1, events.ALERTED, events.AlertsReceived("k", "on-call", (alert,)))
    for telling in notices(log.incident):
        assert cell_len(telling.message) <= TITLE
        for receiver in RECEIVERS[:2]:
            message = MAKERS[receiver.kind](log.incident, telling, receiver)
            assert message is not None
            body = json.loads(message.body)
            shown = body.get("text") or body["payload"]["summary"]
            assert shown.endswith(telling.message)
            assert cell_len(shown.removesuffix(telling.message)) <= TITLE + 2
    assert len(slack.escaped(title, slack.MAX_HEADER)) <= slack.MAX_HEADER


@pytest.mark.parametrize("name", ["a" * 100, WIDE, "ab", "文a" * 30])
def test_a_name_by_its_two_ends(name: str) -> None:
    shown = shortened(name, 33)
    assert cell_len(shown) <= 33
    assert name.startswith(shown.partition("…")[0])
    assert name.endswith(shown.rpartition("…")[2])
