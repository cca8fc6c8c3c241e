"""What a timeline tells, when, by whose clock, and what of it is a fact."""

from __future__ import annotations

import msgspec
import pytest

from latdoctor.incident import events
from latdoctor.incident.timeline import of_run, timeline
from latdoctor.incident.timeline_model import OWN, Basis, Timeline
from latdoctor.remediation.run_result import Outcome
from latdoctor.report import timeline as timeline_report
from tests.incident.scenarios import (
    BEGAN,
    BOOK,
    CAUSE,
    ID,
    RUN,
    Log,
    carried_out,
    cause,
    diagnosed,
    promo_rush,
    sampled,
)


def told(log: Log) -> Timeline:
    return timeline(log.incident)


def test_every_entry_has_an_event() -> None:
    log = promo_rush()
    page = told(log)
    seen = {moment.digest for moment in page.moments} | {sample.digest for sample in page.samples}
    assert [entry.kind for entry in log.entries if entry.digest not in seen] == []
    assert len({moment.id for moment in page.moments}) == len(page.moments)
    assert (page.last.seq, page.last.digest) == (log.entries[-1].seq, log.entries[-1].digest)


def test_timeline_starts_at_the_alert_start_time() -> None:
    page = told(promo_rush())
    assert (page.start.at, page.start.clock) == ("2026-11-22T06:49:00.000000Z", "alertmanager")
    began = next(moment for moment in page.moments if moment.part == "began")
    assert (began.seconds, began.measured, began.clock) == (0.0, "wall", "alertmanager")
    opened = next(moment for moment in page.moments if moment.kind == events.OPENED and not moment.part)
    assert (opened.seconds, opened.measured, opened.clock) == (pytest.approx(12.0), "monotonic", OWN)


def test_inferred_onset_is_placed_by_its_time() -> None:
    since = told(promo_rush()).moments[0]
    assert (since.part, since.basis, since.clock, since.seconds) == ("since", Basis.INFERENCE, "the evidence", -15.0)


def test_facts_inferences_and_reports_are_distinct() -> None:
    moments = told(promo_rush()).moments
    inferred = {(moment.kind, moment.part) for moment in moments if moment.basis == Basis.INFERENCE}
    assert inferred == {(events.DIAGNOSED, "since"), (events.DIAGNOSED, "cause"), ("run.opened", "because")}
    said = {moment.kind: moment.by for moment in moments if moment.basis == Basis.REPORTED}
    assert said == {events.NOTED: "Ada", events.MARKED: "Ada"}
    assert {moment.basis for moment in moments} == {Basis.FACT, Basis.INFERENCE, Basis.REPORTED}


SAYS = [
    (events.OPENED, "incident opened by an alert: P99 over SLO (of checkout)"),
    (events.ALERTED, "alert: 1 firing: LatencyHigh; 2 more were left out by the sender"),
    (events.ALERTED, "alert over: 1 resolved: LatencyHigh"),
    (events.CONFIRMED, "the alert is real: P99 is 3.2 s"),
    (events.DIAGNOSED, "diagnosed checkout: critical: P99 is 3.2 s"),
    (
        events.DIAGNOSED,
        f"({CAUSE}, 94 %) on replica/0, because batch sizes peak at 1 and 5; against it: no GPU was seen",
    ),
    (events.PLANNED, f"planned, nothing changed: Bound batches ({BOOK}) on checkout, risk low"),
    (events.SAMPLED, "the service is over the SLO: P99 3.2 s, the SLO is 500 ms"),
    (events.SAMPLED, "the service is within the SLO: P99 310 ms"),
    (events.NOTED, "the sale has begun"),
    (events.MARKED, "stage mitigated is met: quiet now"),
    (events.NOTIFIED, "could NOT notify pagerduty: resolve (it is down)"),
    (events.CLOSED, "incident closed: resolved: all is well"),
    ("evidence.kept", "evidence from before the change is stored"),
    (
        "change.made",
        "changed scheduler: batching.scheduler long-alone → token-budget, batching.max_batch_tokens not set → 1024",
    ),
    ("verify.passed", f"{BOOK}: verified"),
    ("run.closed", "ended: verified (it says why)"),
]


@pytest.mark.parametrize(("kind", "message"), SAYS, ids=[f"{kind}-{number}" for number, (kind, _) in enumerate(SAYS)])
def test_event_texts(kind: str, message: str) -> None:
    found = [moment.message for moment in told(promo_rush()).moments if moment.kind == kind]
    assert any(message in one for one in found), found


def test_evidence_is_named_by_its_path_in_the_state_folder() -> None:
    moments = told(promo_rush()).moments
    kept = next(moment for moment in moments if moment.kind == "evidence.kept")
    assert kept.evidence == (f"runs/{RUN}/before.tar.zst",)
    cause = next(moment for moment in moments if moment.part == "cause")
    assert cause.evidence == (f"incidents/{ID}/looks/1.tar.zst", f"incidents/{ID}/looks/1.json")


def test_sample_is_an_event_only_on_slo_state_change() -> None:
    page = told(promo_rush())
    assert len(page.samples) == 4
    assert [moment.message[:27] for moment in page.moments if moment.kind == events.SAMPLED] == [
        "the service is over the SLO",
        "the service is within the S",
    ]


def test_the_time_between_entries_does_not_follow_a_clock_that_is_set() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.set_by = -3600
    log.add(10, events.NOTED, events.NoteAdded("one"))
    log.set_by = 7200
    log.add(20, events.NOTED, events.NoteAdded("two"))
    moments = told(log).moments
    assert [moment.message for moment in moments[1:]] == ["one", "two"]
    assert [(moment.seconds, moment.measured) for moment in moments[1:]] == [(10.0, "monotonic"), (20.0, "monotonic")]


def test_after_another_start_of_the_machine_the_wall_clock_is_all_there_is() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.boot = "boot-2"
    log.add(60, events.NOTED, events.NoteAdded("back"))
    log.boot, log.set_by = "boot-3", -3600
    log.add(120, events.NOTED, events.NoteAdded("lost"))
    back, lost = told(log).moments[1:]
    assert (back.seconds, back.measured) == (60.0, "wall")
    assert (lost.seconds, lost.message) == (None, "lost")  # it came after, and when is not known


def test_a_run_alone_has_a_timeline() -> None:
    log = Log()
    carried_out(log, 0)
    page = of_run(RUN, log.entries)
    assert (page.subject, page.outcome, page.measures, page.open) == ("run", "verified", (), False)
    assert page.title == "Bound batches by tokens"
    assert page.impact.within == pytest.approx(5.0)
    (run,) = page.runs
    assert [(one.name, one.before, one.after, one.stands) for one in run.changes] == [
        ("batching.scheduler", "long-alone", "token-budget", True),
        ("batching.max_batch_tokens", "not set", "1024", True),
    ]
    assert [(one.signal, one.before, one.after) for one in run.figures] == [("latency.p99", 3.2, 0.31)]


def test_rolled_back_change_is_not_in_place() -> None:
    log = Log()
    carried_out(log, 0, outcome=Outcome.ROLLED_BACK)
    (run,) = of_run(RUN, log.entries).runs
    assert (run.outcome, run.stands, {one.stands for one in run.changes}) == ("rolled-back", False, {False})


def test_refused_run_has_its_reason() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(1, events.RUN_JOINED, events.RunJoined("r2"))
    log.add(2, "run.refused", {"guard": "cooldown", "reason": "too soon"}, "r2")
    page = told(log)
    assert [(run.id, run.outcome, run.reason) for run in page.runs] == [("r2", "refused", "cooldown: too soon")]
    assert page.moments[-1].message == "refused: too soon (guard cooldown)"


def test_an_entry_of_another_version_hides_no_other() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(1, events.NOTED, {"words": 1})
    log.add(2, events.DIAGNOSED, {"verdict": "?"})
    log.add(3, events.SAMPLED, {"seconds": "ten"})
    log.add(4, "of.tomorrow", {"any": 1})
    log.add(5, events.NOTED, events.NoteAdded("all well"))
    page = told(log)
    assert [moment.message for moment in page.moments[1:]] == [
        "note.made: an entry of another version, not readable here",
        "diagnosis.made: an entry of another version, not readable here",
        "service.sampled: an entry of another version, not readable here",
        "of.tomorrow",
        "all well",
    ]
    assert (page.looks, page.samples) == ((), ())


def test_non_finite_value_is_missing() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(
        10, events.SAMPLED, msgspec.structs.replace(sampled(None), values={"service": {"latency.p99": float("nan")}})
    )
    page = told(log)
    assert page.samples[0].values == {"service": {}}
    assert page.impact.over is None
    assert "not to be judged" in page.moments[-1].message


def test_impossible_time_uses_the_entry_time() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(10, events.DIAGNOSED, msgspec.structs.replace(diagnosed(), since=1e300))
    page = told(log)
    since = next(moment for moment in page.moments if moment.part == "since")
    assert (since.seconds, since.clock) == (10.0, OWN)
    assert page.looks[0].since is None


def test_truncated_journal_gives_a_prefix_of_the_timeline() -> None:
    log = promo_rush()
    before: set[str] = set()
    for count in range(1, len(log.entries) + 1):
        part = Log()
        part.entries = log.entries[:count]
        page = told(part)
        now = {moment.id for moment in page.moments} | {sample.digest for sample in page.samples}
        assert before <= now
        assert page.last.seq == count
        before = now
    assert page == told(log)


def test_each_cause_that_was_named_is_a_moment_of_its_own() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(1, events.DIAGNOSED, diagnosed(cause(), cause("app.load.burst"), cause("infra.gpu.lost", named=False)))
    moments = told(log).moments
    assert [(one.part, one.message.split("(")[1][:14]) for one in moments if one.part.startswith("cause")] == [
        ("cause", "app.batching.l"),
        ("cause-2", "app.load.burst"),
    ]


def test_a_change_of_the_service_is_a_moment_at_its_own_time_and_once() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    deploy = events.ChangeRecord(BEGAN - 40.0, "change.deploy", "deploy of v1.9")
    record = msgspec.structs.replace(diagnosed(cause()), changes=(deploy,))
    log.add(1, events.DIAGNOSED, record)
    log.add(20, events.DIAGNOSED, record)
    changed = [one for one in told(log).moments if one.part == "change"]
    assert [(one.message, one.clock) for one in changed] == [("changed: deploy of v1.9", "the evidence")]
    assert told(log).moments[0] == changed[0], "it was before the incident was opened"


UNNAMED = [
    ("one-of", "one of: app.batching.long-alone (94 %)"),
    ("none", "no cause found"),
    ("unexplained", "no known cause"),
]


@pytest.mark.parametrize(("answer", "message"), UNNAMED)
def test_unnamed_answer_text(answer: str, message: str) -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(1, events.DIAGNOSED, msgspec.structs.replace(diagnosed(cause(named=False)), answer=answer))
    assert told(log).moments[-1].message.startswith(message)


def test_a_command_that_acts_by_itself_is_no_responder() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.ALERT, "", "", by="latdoctor listen"))
    log.add(1, events.NOTED, events.NoteAdded("one", "Ada"))
    log.add(2, events.MARKED, events.StageMarked("confirmed", "Grace"))
    log.add(3, events.NOTED, events.NoteAdded("two", "Ada"))
    assert told(log).responders == ("Ada", "Grace")


def test_whose_clock_a_beginning_is_by_makes_a_sentence() -> None:
    for clock, message in (
        ("given by hand", "as given by hand"),
        ("alertmanager", "by the clock of alertmanager"),
        ("", "by a clock that was not named"),
    ):
        log = Log()
        log.add(5, events.OPENED, events.IncidentOpened("slow", (), events.OpenedBy.HAND, "", "", BEGAN, clock))
        page = told(log)
        for text in (timeline_report.render_text(page), timeline_report.render_markdown(page).replace("\\", "")):
            words = " ".join(text.split())
            assert f"the trouble began, {message})." in words
            assert "clock of given" not in words
            assert "clock of not" not in words
