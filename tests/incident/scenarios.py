"""Incidents as tests need them: entries that follow each other as in a journal, without the file.

`promo_rush` is one from its alert to its end; any text in it can be replaced by another.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from msgspec import Struct

from latdoctor.incident import events
from latdoctor.incident.state import Incident, incidents_in
from latdoctor.journal.entry import JournalEntry, Moment, encode_body, next_entry
from latdoctor.remediation.change import Change, Field
from latdoctor.remediation.observation import ConditionResult
from latdoctor.remediation.planner import DiagnosisRef, Plan, StagePlan
from latdoctor.remediation.run_history import ChangeRef, RunClosed, RunOpened
from latdoctor.remediation.run_result import Measure, Outcome, WindowResult
from latdoctor.remediation.target import Target

BEGAN = 1_795_330_140.0  # 2026-11-22 06:49:00 UTC
ID = "inc-20261122-0650-4f2a"
RUN = "20261122-065500-abcdef"
CAUSE = "app.batching.long-alone"
BOOK = "app.batching.token-budget"


class Log:
    """Entries, one after the other; `at` is seconds after BEGAN."""

    def __init__(self, run: str = ID, boot: str = "boot-1") -> None:
        self.run = run
        self.boot = boot
        self.set_by = 0.0  # by which the wall clock was set
        self.entries: list[JournalEntry] = []

    def add(self, at: float, kind: str, body: Struct | Mapping[str, object], run: str = "") -> JournalEntry:
        last = self.entries[-1] if self.entries else None
        wall = datetime.datetime.fromtimestamp(BEGAN + at + self.set_by, datetime.UTC)
        moment = Moment(wall.isoformat(timespec="microseconds").replace("+00:00", "Z"), 5000.0 + at, self.boot)
        entry = next_entry(last, run or self.run, kind, encode_body(body), moment)
        self.entries.append(entry)
        return entry

    @property
    def incident(self) -> Incident:
        (one,) = incidents_in(self.entries)
        return one


def plan(text: str = "", *, because: bool = True) -> Plan:
    change = Change(
        step=f"scheduler{text}",
        action="server.config.set",
        resource=f"http://127.0.0.1:8080/admin/config{text}",
        fields=(
            Field(f"batching.scheduler{text}", "long-alone", f"token-budget{text}"),
            Field("batching.max_batch_tokens", None, 1024),
        ),
        undo="restore",
    )
    why = DiagnosisRef("d1a9", f"{CAUSE}{text}", 0.94, BEGAN + 110) if because else None
    target = Target(f"checkout{text}", "reference", admin="http://127.0.0.1:8080")
    stages = (StagePlan(BOOK, {}, (change,)),)
    title = f"Bound batches by tokens{text}"
    return Plan(f"{BOOK}{text}", "0" * 64, title, target, "low", "none", "", stages, BEGAN + 120, why)


def cause(name: str = CAUSE, *, text: str = "", named: bool = True, probability: float = 0.94) -> events.CauseRecord:
    return events.CauseRecord(
        id=f"{name}{text}",
        title=f"Long requests run alone{text}",
        tier="application",
        probability=probability,
        named=named,
        subjects=(f"replica/0{text}",),
        because=(f"batch sizes peak at 1 and 5{text}",),
        against=(f"no GPU was seen{text}",),
        playbooks=(BOOK,),
    )


def diagnosed(
    *causes: events.CauseRecord, text: str = "", fired: tuple[str, ...] = ("batch-sizes-bimodal",)
) -> events.DiagnosisRecord:
    return events.DiagnosisRecord(
        run_id=f"d1a9{text}",
        target=f"checkout{text}",
        level="critical",
        message=f"P99 is 3.2 s, the SLO is 500 ms{text}",
        answer="named",
        causes=causes or (cause(text=text),),
        unseen=(f"no GPU metrics were given{text}",),
        seen_from=BEGAN + 60,
        seen_until=BEGAN + 70,
        since=BEGAN - 15,
        document=f"incidents/{ID}/looks/1.json{text}",
        bundle=f"incidents/{ID}/looks/1.tar.zst{text}",
        fired=fired,
    )


def sampled(
    p99: float | None, *, slo: float | None = 0.5, seconds: float = 10.0, text: str = ""
) -> events.ServiceSampled:
    values = {f"service{text}": {} if p99 is None else {"latency.p99": p99, "queue.depth": 40.0}}
    late = None if p99 is None else 120.0 if slo is not None and p99 > slo else 0.0
    return events.ServiceSampled(seconds, values, None if p99 is None else 400.0, late, slo)


def carried_out(log: Log, at: float, *, text: str = "", outcome: Outcome = Outcome.VERIFIED, run: str = RUN) -> None:
    """A run from its opening to its end, within half a minute."""
    made = plan(text)
    log.add(at, "run.opened", RunOpened(made, made.digest, 1), run)
    log.add(at + 10, "evidence.kept", {"path": f"/var/lib/latdoctor/runs/{run}/before.tar.zst{text}"}, run)
    before = Measure("latency.p99", f"service{text}", 3.2)
    log.add(at + 10, "before.measured", {"measures": [before]}, run)
    log.add(at + 11, "change.intended", ChangeRef(0, 0), run)
    log.add(at + 11.2, "change.made", ChangeRef(0, 0), run)
    after = {"measures": [Measure("latency.p99", f"service{text}", 3.2, 0.31)]}
    verified = outcome is Outcome.VERIFIED
    judged = ConditionResult("latency.p99 < slo.p99", "holds" if verified else "fails", f"latency.p99 is 310 ms{text}")
    window = WindowResult(BEGAN + at + 12, BEGAN + at + 17, "success" if verified else "failure", (judged,))
    log.add(at + 17, "verify.window", window, run)
    if verified:
        log.add(at + 17.1, "verify.passed", after, run)
    else:
        log.add(at + 17.1, "verify.failed", {"reason": f"it has not helped{text}", **after}, run)
        log.add(at + 17.2, "rollback.begun", {"reason": f"it has not helped{text}"}, run)
        log.add(at + 17.3, "undo.intended", ChangeRef(0, 0), run)
        log.add(at + 17.6, "undo.made", ChangeRef(0, 0), run)
    log.add(at + 18, "run.closed", RunClosed(outcome, f"it says why{text}"), run)


def promo_rush(text: str = "", *, run: str = RUN, incident: str = ID) -> Log:
    """`text` is added to everything that comes from outside."""
    log = Log(incident)
    opened = events.IncidentOpened(
        f"P99 over SLO{text}",
        (f"checkout{text}",),
        events.OpenedBy.ALERT,
        "promo",
        "a" * 64,
        BEGAN,
        f"alertmanager{text}",
        "",
        "k",
    )
    log.add(12, events.OPENED, opened)
    labels = {"severity": "critical", f"service{text}": f"checkout{text}"}
    alert = events.Alert(
        "f1", events.AlertStatus.FIRING, f"LatencyHigh{text}", labels, {"summary": f"slow{text}"}, BEGAN
    )
    log.add(12.5, events.ALERTED, events.AlertsReceived("k", f"on-call{text}", (alert,), 2))
    log.add(20, events.SAMPLED, sampled(3.2, text=text))
    log.add(29, events.CONFIRMED, events.AlertConfirmed(events.Confirmation.CONFIRMED, f"P99 is 3.2 s{text}", "d1a9"))
    log.add(30, events.SAMPLED, sampled(3.1, text=text))
    log.add(70, events.DIAGNOSED, diagnosed(text=text))
    log.add(80, events.NOTED, events.NoteAdded(f"the sale has begun{text}", f"Ada{text}"))
    log.add(
        90,
        events.PLANNED,
        events.PlanRecord(f"{BOOK}{text}", f"Bound batches{text}", "c" * 64, f"checkout{text}", "low"),
    )
    log.add(100, events.RUN_JOINED, events.RunJoined(run))
    carried_out(log, 100.1, text=text, run=run)
    log.add(119, events.MARKED, events.StageMarked("mitigated", f"Ada{text}", f"quiet now{text}"))
    log.add(130, events.SAMPLED, sampled(0.31, text=text))
    log.add(
        131,
        events.NOTIFIED,
        events.NotificationSent(f"pagerduty{text}", f"resolve{text}", "k", False, f"it is down{text}"),
    )
    resolved = events.Alert("f1", events.AlertStatus.RESOLVED, f"LatencyHigh{text}", labels, {}, BEGAN, BEGAN + 125)
    log.add(132, events.ALERTED, events.AlertsReceived("k", f"on-call{text}", (resolved,)))
    log.add(140, events.SAMPLED, sampled(0.3, text=text))
    log.add(150, events.CLOSED, events.IncidentClosed("resolved", f"all is well{text}", f"Ada{text}"))
    return log


def long(count: int) -> Log:
    """An incident of `count` entries: samples, windows of verification, notes, alerts and diagnoses by turns."""
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("a long one", ("checkout",), events.OpenedBy.HAND, "", ""))
    made = plan()
    log.add(1, events.RUN_JOINED, events.RunJoined(RUN))
    log.add(1, "run.opened", RunOpened(made, made.digest, 1), RUN)
    window = (
        ConditionResult("latency.p99 < 0.5 x before", "fails", "latency.p99 is 2 s, wanted < 1.6 s (0.5 x before)"),
    )
    alert = events.Alert("f1", events.AlertStatus.FIRING, "LatencyHigh", {"severity": "critical"}, {}, BEGAN)
    while len(log.entries) < count:
        at = 2.0 + len(log.entries)
        match len(log.entries) % 5:
            case 0:
                log.add(at, events.SAMPLED, sampled(3.2 if len(log.entries) % 2 else 0.3, seconds=5))
            case 1:
                log.add(at, "verify.window", WindowResult(BEGAN + at - 5, BEGAN + at, "failure", window), RUN)
            case 2:
                log.add(
                    at,
                    events.NOTED,
                    events.NoteAdded(f"looked at replica {len(log.entries)}: nothing odd → next one", "Ada"),
                )
            case 3:
                log.add(at, events.ALERTED, events.AlertsReceived("k", "on-call", (alert,)))
            case _:
                log.add(at, events.DIAGNOSED, diagnosed())
    return log
