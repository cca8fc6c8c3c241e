"""The pieces of an answer: what is cut, what is put together, and that nothing is lost by it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from latdoctor.conditions.evaluator import FAILS, HOLDS
from latdoctor.diagnosis import document
from latdoctor.diagnosis.result import Diagnosis, RuledOut
from latdoctor.evidence.model import Distribution, Event, Evidence, Gap, Origin, Reading, Series, Window
from latdoctor.report import diagnosis_text, markdown, subject_names
from latdoctor.report.diagnosis_text import gap_lines, unexplained
from latdoctor.units import percent
from tests.cli.running import run

INCIDENTS = Path(__file__).parents[2] / "fixtures" / "incidents"


@pytest.mark.parametrize(
    ("probability", "shown"),
    [(0, "< 1 %"), (0.004, "< 1 %"), (0.01, "1 %"), (0.5, "50 %"), (0.99, "99 %"), (0.995, "> 99 %"), (1, "> 99 %")],
)
def test_no_probability_is_shown_as_certain(probability: float, shown: str) -> None:
    assert percent(probability) == shown


@pytest.mark.parametrize("incident", sorted(path.name for path in INCIDENTS.iterdir()))
def test_a_named_cause_comes_with_the_next_look_and_its_cost(incident: str) -> None:
    """However sure it is: on the screen and as JSON."""
    command = ["diagnose", str(INCIDENTS / incident)]
    found = document.parse_diagnosis(run([*command, "-o", "json"]).out.encode())
    assert found.next_looks, "files hold no more than some of the sources"
    assert [look.bits for look in found.next_looks] == sorted((look.bits for look in found.next_looks), reverse=True)
    assert all(look.ask.startswith("--") and look.cost and look.checks for look in found.next_looks)
    first = found.next_looks[0]
    shown = " ".join(run([*command, "-v"]).out.partition("\nNext\n")[2].split())
    assert f"collect with {first.ask}: it {first.cost} and would evaluate {first.checks[0]}" in shown


def test_where_nothing_is_left_to_look_at_that_is_said(diagnosis: Diagnosis) -> None:
    assert diagnosis.answer.causes
    said = "no other source would change this ranking"
    assert said not in diagnosis_text.next_steps(diagnosis)
    assert said in diagnosis_text.next_steps(msgspec.structs.replace(diagnosis, next_looks=()))


@given(st.text(max_size=200), st.integers(5, 60))
def test_a_shortened_name_fits_and_keeps_its_ends(name: str, width: int) -> None:
    short = subject_names.shortened(name, width)
    assert cell_len(short) <= width + 1
    cuts = [place for place, char in enumerate(short) if char == "…"]
    kept = [(name.startswith(short[:place]), name.endswith(short[place + 1 :])) for place in cuts]
    assert short == name or (True, True) in kept


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("queue.depth > 5", "queue.depth > 5"),
        ("count(log.xid, code in [79])", "count(log.xid, code in [79])"),
        ("count(a, b in [1, 2, 3, 4])", "count(a, b in [1, 2, 3, 4])"),
        ("count(a, b in [1, 2, 3, 4, 5, 6])", "count(a, b in [1, 2, 3, … 3 more])"),
        ("count(a, b not in [one two, c, d, e, f, g])", "count(a, b not in [one two, c, d, … 3 more])"),
    ],
)
def test_long_lists_of_codes_are_cut(condition: str, shown: str) -> None:
    assert diagnosis_text.listed(condition) == shown


def test_the_evidence_tells_the_time_of_all_its_pieces() -> None:
    origin = Origin("a")
    seen = Evidence(
        readings=(Reading("queue.depth", "m", 1.0, origin, Window(None, 30.0)), Reading("x", "m", 1.0, origin)),
        series=(Series("queue.depth", "m", (25.0, 40.0), (1.0, 2.0), origin),),
        distributions=(Distribution("latency", "m", (), origin, window=Window(20.0, 30.0)),),
        events=(Event("log.xid", "gpu/0", origin, time=10.0), Event("log.xid", "gpu/0", origin)),
    )
    assert seen.time == Window(10.0, 40.0)
    assert Evidence().time == Window()


def _with(diagnosis: Diagnosis, *gaps: Gap) -> Diagnosis:
    return msgspec.structs.replace(diagnosis, gaps=gaps)


def test_what_fired_shows_the_numbers_that_hold(diagnosis: Diagnosis) -> None:
    """One of several reasons suffices, and what is within its limit is none."""
    check = next(check for check in diagnosis.checks if check.status == "fired" and check.atoms)
    holds = msgspec.structs.replace(check.atoms[0], status=HOLDS, shown="held")
    fails = msgspec.structs.replace(check.atoms[0], status=FAILS, shown="failed")
    for status, atoms, shown in (
        ("fired", (fails, holds), ["held"]),
        ("fired", (fails,), ["failed"]),
        ("clear", (fails, holds), ["failed", "held"]),
    ):
        told = diagnosis_text.details(msgspec.structs.replace(check, status=status, atoms=atoms))
        assert [line.split(" = ")[1].split(" (limit")[0] for line in told] == shown


@pytest.mark.parametrize(
    ("probability", "message"), [(0.46, " (nearest: {first}, 46 %)"), (0.1, " (nearest: {first}, 10 %)"), (0.09, "")]
)
def test_an_answer_that_names_nothing_tells_what_is_nearest(
    diagnosis: Diagnosis, probability: float, message: str
) -> None:
    first = msgspec.structs.replace(diagnosis.causes[0], named=False, probability=probability)
    answer = msgspec.structs.replace(diagnosis.answer, kind="unexplained", causes=())
    line = diagnosis_text.answer_line(msgspec.structs.replace(diagnosis, answer=answer, causes=(first,)))
    assert line == "no cause of the catalogue explains the findings" + message.format(first=first.id)
    assert "nearest" not in diagnosis_text.answer_line(msgspec.structs.replace(diagnosis, answer=answer, causes=()))


def test_what_is_unexplained_tells_what_it_fits_and_what_rules_that_out(diagnosis: Diagnosis) -> None:
    left, other, by = (check.id for check in diagnosis.checks[:3])
    message = {check.id: check.message for check in diagnosis.checks}
    ruled_out = (RuledOut("likelier", (left,), (by,)), RuledOut("last", (left,), (other,)))
    named = msgspec.structs.replace(diagnosis.answer, unexplained=(left, other), ruled_out=ruled_out)
    assert unexplained(msgspec.structs.replace(diagnosis, answer=named)) == (message[left], message[other])
    nothing = msgspec.structs.replace(named, kind="unexplained", causes=())
    told = unexplained(msgspec.structs.replace(diagnosis, answer=nothing))
    assert told == (f"{message[left]} (fits likelier, which is ruled out: {message[by]})", message[other])


def test_gaps_that_say_the_same_share_a_line(diagnosis: Diagnosis) -> None:
    made = _with(
        diagnosis,
        Gap("nvml", "no NVLink is up", subject="gpu/0"),
        Gap("nvml", "no NVLink is up", subject="gpu/1"),
        *(Gap("prometheus", f"page: not exported: m{n}", next_step="export it") for n in range(6)),
        Gap("prometheus", "page: not exported: other", next_step="another hint"),
        Gap("derived", "latency: 1 observed", subject="model/a"),
    )
    assert gap_lines(made, every=False) == (
        "nvml: gpu/0, gpu/1: no NVLink is up",
        "prometheus: page: not exported: m0; m1; m2; m3 and 2 more — export it",
        "prometheus: page: not exported: other — another hint",
        "model/a: latency: 1 observed",
    )
    assert "m0; m1; m2; m3; m4; m5 — export it" in gap_lines(made, every=True)[1]


def test_every_gap_of_a_diagnosis_is_told(diagnosis: Diagnosis) -> None:
    told = "\n".join(gap_lines(diagnosis, every=True))
    for gap in diagnosis.gaps:
        assert gap.reason.rpartition(": ")[2] in told
        assert gap.next_step in told


@given(st.text(max_size=80))
def test_markdown_escapes_and_loses_nothing(text: str) -> None:
    escaped = markdown.escape(text)
    assert re.sub(r"\\(.)", r"\1", escaped) == text
    for active in "`*_{}[]<>()#+!|~&@":
        assert escaped.count(f"\\{active}") >= text.count(active)
