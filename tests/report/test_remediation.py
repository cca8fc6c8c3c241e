"""Plans, runs and outcomes as printed: on one screen and in full."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from msgspec import Raw
from rich.console import Console

from latdoctor.journal.entry import JournalEntry, Moment
from latdoctor.remediation.change import Change, Field
from latdoctor.remediation.planner import Plan, StagePlan
from latdoctor.remediation.playbook_library import shipped
from latdoctor.remediation.run_history import RunState, entry_text
from latdoctor.remediation.run_result import Measure, Outcome, Reason, Result
from latdoctor.remediation.target import Target
from latdoctor.report import remediation
from latdoctor.report.remediation_plan import Planned
from latdoctor.report.remediation_steps import of_result

HOSTILE = "evil\x1b[31m\x1b]8;;http://x\x07[bold red]name"
OPENED = Moment("2026-02-02T02:40:00.000000Z", 1.0, "boot")
CHANGE = Change("scheduler", "server.config.set", "http://x/admin/config", (Field("a", "old", HOSTILE),), "restore")


def plan(playbook: str = "promo-rush-sop") -> Plan:
    book = shipped().find(playbook)
    stages = tuple(StagePlan(one.playbook, {}, (CHANGE,)) for one in book.stages) or (
        StagePlan(playbook, {}, (CHANGE,)),
    )
    target = Target(HOSTILE, "reference", admin="http://x")
    return Plan(playbook, book.digest, book.title, target, book.risk, book.disruption, str(book.effect), stages, 1.77e9)


def shown(*, width: int = 80) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, highlight=False, markup=False, emoji=False), out


def harmless(text: str) -> bool:
    return "\x1b" not in text and "\x07" not in text and max(map(len, text.splitlines())) <= 80


def planned(playbook: str = "promo-rush-sop") -> Planned:
    return Planned(plan(playbook), shipped().find(playbook))


@pytest.mark.parametrize("verbose", [False, True])
def test_plan_shows_old_and_new_values_verification_undo_and_that_nothing_was_changed(verbose: bool) -> None:
    console, out = shown()
    remediation.plans([planned()], console, verbose=verbose)
    text = out.getvalue()
    assert harmless(text)
    assert verbose or len(text.splitlines()) <= 24
    for part in ("old", "evil", "for 10 s", "rolled back", "restored", "within 30 s", "nothing was changed", "--apply"):
        assert part in text
    for stage in shipped().find("promo-rush-sop").stages:
        assert (stage.playbook if verbose else shipped().find(stage.playbook).title) in text


def test_a_plan_as_json_is_planned_and_never_succeeded() -> None:
    console, out = shown()
    remediation.plans([planned()], console, as_json=True)
    document = json.loads(out.getvalue())
    assert document["outcome"] == "planned"
    assert document["plans"][0]["digest"] == plan().digest


@pytest.mark.parametrize("outcome", list(Outcome), ids=str)
def test_each_outcome_is_printed_with_the_next_command(outcome: Outcome) -> None:
    console, out = shown()
    manual = ("curl -X PATCH http://x",) if outcome is Outcome.INCOMPLETE else ()
    measures = (Measure("latency.p99", HOSTILE, 3.0, 0.3), Measure("queue.depth", "replica/0", 600.0))
    result = Result("r1", outcome, f"because {HOSTILE}", manual=manual, measures=measures, seconds=34.0)
    remediation.results([of_result(result)], console, verbose=True)
    text = out.getvalue()
    assert harmless(text)
    assert "Next: latdoctor" in text
    assert "300 ms" in text
    assert "not measured" in text  # a missing measurement is not zero
    assert ("curl -X PATCH" in text) == (outcome is Outcome.INCOMPLETE)
    console, out = shown()
    remediation.results([of_result(result)], console)
    text = out.getvalue()
    assert harmless(text)
    assert len(text.splitlines()) <= 24
    assert " Next    latdoctor" in text
    assert ("curl -X PATCH" in text) == (outcome is Outcome.INCOMPLETE)


def test_inconclusive_run_names_what_would_decide_it() -> None:
    found = {}
    for code in (Reason.INCONCLUSIVE, Reason.NO_IMPROVEMENT):
        console, out = shown()
        remediation.results([of_result(Result("r1", Outcome.ROLLED_BACK, "too little", code=code))], console)
        found[code] = "--prometheus URL" in out.getvalue()
    assert found == {Reason.INCONCLUSIVE: True, Reason.NO_IMPROVEMENT: False}


def entry(kind: str, **body: object) -> JournalEntry:
    raw = Raw(json.dumps(body).encode())
    return JournalEntry(1, "r1", "2026-11-22T09:16:12.000000+00:00", 1.0, "boot", kind, raw, "0" * 64, "1" * 64)


CONDITION = {"text": "latency.p99 < 0.5 x before", "status": "fails", "shown": "latency.p99 is 2 s, wanted < 1 s"}
LINES = [
    (entry("change.intended", stage=0, index=0), "changing scheduler"),
    (entry("undo.made", stage=0, index=0), "undone scheduler"),
    (entry("settled", settled=False), "did not settle in time"),
    (entry("before.history", seconds=100.0, source="127.0.0.1:9090"), "history before the change: 100 s from 127.0"),
    (entry("before.history", seconds=0.0, source=""), "no history before the change"),
    (entry("verify.window", status="failure", conditions=[CONDITION]), "latency.p99 is 2 s, wanted < 1 s"),
    (entry("verify.window", status="unknown", why="page gone"), "page gone"),
    (entry("verify.window", status="unproven", until=1_764_205_630.0), "window: unproven, until 01:07:10 UTC"),
    (entry("verify.window", status="success", until=1_764_205_630.0), "window: success"),
    (entry("proof.pending", deadline=1_764_205_630.0), "the proof goes on, until 01:07:10 UTC at the latest"),
    (entry("run.opened", before=10.0), "run r1: observing before the change for 10 s"),
    (entry("run.opened"), "run r1: observing before the change"),
    (entry("rollback.begun", reason="it has not helped"), "it has not helped"),
    (entry("undo.failed", step="scheduler", why="hung"), "NOT rolled back"),
    (entry("undo.left", stage=0, index=0, step="scheduler", why="it is theirs"), "left as it is: scheduler"),
    (entry("run.refused", guard="lock", reason="held"), "refused: held (guard lock)"),
    (entry("run.closed", outcome="rolled-back", reason=""), "rolled-back"),
    (entry("of.tomorrow", any=1), "of.tomorrow"),
]


@pytest.mark.parametrize(("one", "said"), LINES, ids=[one.kind for one, _ in LINES])
def test_journal_entry_as_a_line(one: JournalEntry, said: str) -> None:
    assert said in entry_text(one, plan())


def test_a_run_in_full_has_every_entry() -> None:
    console, out = shown()
    state = RunState("r1", plan(), OPENED, 1, outcome=Outcome.VERIFIED)
    remediation.run(state, [one for one, _ in LINES], console, verbose=True)
    text = out.getvalue()
    assert harmless(text)
    assert "Next: latdoctor diagnose" in text
    assert text.count("09:16:12") == len(LINES)


def test_runs_are_listed_with_the_next_command() -> None:
    console, out = shown()
    remediation.runs([RunState("r1", plan(), OPENED, 1)], console, as_json=False)
    assert "latdoctor recover" in out.getvalue()
    assert harmless(out.getvalue())


def test_run_list_keeps_the_name_of_a_run_on_one_line() -> None:
    console, out = shown(width=50)
    name = "20260202-024000-a1b2c3"
    remediation.runs([RunState(name, plan(), OPENED, 1)], console, as_json=False)
    assert name in out.getvalue().partition("Next:")[0]


def test_commands_are_on_one_line() -> None:
    """Broken over two lines it cannot be pasted."""
    console, out = shown()
    command = f"curl -X PATCH {'x' * 100} -d {'y' * 100}"
    result = Result("r1", Outcome.INCOMPLETE, "hung", f"latdoctor runs show {'r' * 80}", (command,))
    remediation.results([of_result(result)], console)
    lines = out.getvalue().splitlines()
    assert f"  {command}" in lines
    assert any(line.endswith(result.next_step) for line in lines)


def test_a_result_says_what_it_is_of() -> None:
    console, out = shown()
    result = Result("r1", Outcome.VERIFIED, "", target="bot", playbook="p", unmet=("P99 2 s is still over",))
    remediation.results([of_result(result)], console, verbose=True, untried=["other"])
    text = out.getvalue()
    for part in ("p on bot", "but P99 2 s is still over", "not tried: other"):
        assert part in text


def test_a_run_at_work_is_waited_for() -> None:
    running = replace(of_result(Result("r1", Outcome.HELD, "it is at work")), at_work=True)
    for verbose, said in ((True, "RUNNING: wait"), (False, "RUNNING  another run")):
        console, out = shown()
        remediation.results([running], console, verbose=verbose)
        assert said in out.getvalue()
        assert "operator" not in out.getvalue()


def test_without_a_run_no_run_is_shown() -> None:
    console, out = shown()
    remediation.results([of_result(Result("", Outcome.FAILED, "no answer"))], console)
    assert "Next    latdoctor runs list" in out.getvalue()


@pytest.mark.parametrize(
    ("playbook", "noted"), [("app.governance.retry-budget", True), ("app.batching.token-budget", False)]
)
def test_plan_says_beforehand_where_retries_that_are_not_counted_leave_it_open(playbook: str, noted: bool) -> None:
    console, out = shown()
    remediation.plans([planned(playbook)], console)
    assert ("does not count its retries" in " ".join(out.getvalue().split())) is noted
