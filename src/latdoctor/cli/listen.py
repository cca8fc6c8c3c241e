"""What `latdoctor listen` does: a receiver on threads of its own, and the looks in this one."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from latdoctor import pipeline
from latdoctor.cli import options
from latdoctor.cli.config import TargetSettings, configuration
from latdoctor.cli.console import say
from latdoctor.cli.diagnose_watch import pause_of
from latdoctor.cli.interrupt import ended_by_sigterm
from latdoctor.cli.notifier import notifying
from latdoctor.cli.options import Given
from latdoctor.cli.remediation_session import own_folder
from latdoctor.cli.request import Ask, Looked, Need, ask, settings_of, unread, why_unread
from latdoctor.cli.session import rule_set, stamp
from latdoctor.cli.sop import Sops
from latdoctor.cli.sop_actions import procedures
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Clock
from latdoctor.collectors.promql.client import authorization
from latdoctor.collectors.runner import SystemClock, collect_bundle
from latdoctor.diagnosis.diagnose import diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Evidence, Window
from latdoctor.http.address import mask_credentials
from latdoctor.incident import events
from latdoctor.incident.alert_intake import (
    AlertedIncident,
    Bodies,
    IncidentTemplate,
    Intake,
    IntakeResult,
    confirmation_of,
    not_observed,
)
from latdoctor.incident.events import AlertsReceived
from latdoctor.incident.evidence_store import store_evidence
from latdoctor.incident.slo_samples import sample_of, with_previous_pages
from latdoctor.incident.sop import loader
from latdoctor.incident.timeline_entries import truncation_note
from latdoctor.incident.webhook_server import serve_webhook
from latdoctor.journal import state_dir
from latdoctor.journal.store import Journal
from latdoctor.sanitize import clean, fitted

Say = Callable[[str], None]


class ServiceMonitor:
    """Of what `given` names, for as long as it runs. `wake` is called when an incident was opened."""

    def __init__(self, given: Given, rules: RuleSet, intake: Intake, every: float, clock: Clock, say: Say) -> None:
        self._given = given
        self._rules = rules
        self._intake = intake
        self._every = every
        self._clock = clock
        self._say = say
        self._woken = threading.Event()
        self._before: Bundle | None = None
        self._read = True  # whether the last look saw anything of what is named

    def wake(self) -> None:
        self._woken.set()

    def go_on(self) -> None:
        """Until it is interrupted."""
        while True:
            begun = time.monotonic()
            period = self.turn()
            self._woken.wait(max(0.0, period - (time.monotonic() - begun)))
            self._woken.clear()

    def turn(self) -> float:
        """One look, where an incident is open, and what it says, journaled. Gives the seconds to the next turn.

        Whatever fails is told, and tried again then.
        """
        try:
            incident = self._intake.watched()
            if incident is not None:
                return max(self._every, self._look(incident))
            self._before, self._read = None, True
        except LatdoctorError as error:
            self._say(str(error))
        return self._every

    def _look(self, incident: AlertedIncident) -> float:
        """Gives how many seconds it speaks of, where that is a history's window: the next must not overlap with it."""
        wanted = ask(self._given, Need.IF_THERE)  # each time: what is configured, and what "now" is, may have changed
        bundle = collect_bundle(COLLECTORS, wanted.request, wanted.context, self._clock, baseline=wanted.baseline)
        whole = with_previous_pages(bundle, self._before)
        self._before = bundle
        evidence, _ = pipeline.seen(whole)
        looked = Looked(bundle, wanted.named)
        if self._was_read(incident, looked, evidence):  # else the time is left out: nobody has seen it
            sampled = sample_of(evidence, _window(whole, wanted), wanted.context.slo_p99)
            self._intake.journal.append(incident.id, events.SAMPLED, sampled)
        if incident.confirmed != events.REAL:
            self._confirm(incident, looked)
        return wanted.request.prometheus.window if wanted.request.prometheus else 0.0

    def _was_read(self, incident: AlertedIncident, looked: Looked, evidence: Evidence) -> bool:
        """Whether anything that was named could be read; told where that has changed."""
        read = not _nothing_read(looked, evidence)
        if read != self._read:
            said = "the service is read again" if read else f"the service cannot be read: {why_unread(looked)}"
            self._say(f"{incident.id}: {said}")
        self._read = read
        return read

    def _confirm(self, incident: AlertedIncident, looked: Looked) -> None:
        """Journals what the look says of the alert, unless it adds nothing to what was said before."""
        diagnosis = self._diagnosis(looked)
        said = not_observed(why_unread(looked)) if diagnosis is None else confirmation_of(diagnosis)
        if said.status == incident.confirmed or (said.status == events.UNKNOWN and incident.confirmed):
            return
        bodies: Bodies = [(incident.id, events.CONFIRMED, said)]
        if diagnosis is not None:
            told = store_evidence(self._intake.place, incident.id, looked.bundle, diagnosis)
            bodies.append((incident.id, events.DIAGNOSED, told.diagnosed))
            for trouble in told.troubles:
                self._say(f"{incident.id}: {trouble}")
        self._intake.journal.append_all(bodies)
        self._say(f"{incident.id}: {_WORDS[said.status]}: {said.message}")

    def _diagnosis(self, looked: Looked) -> Diagnosis | None:
        """None where nothing that was named could be read."""
        evidence, coverage = pipeline.seen(looked.bundle)
        if _nothing_read(looked, evidence):
            return None
        return diagnose(pipeline.case(looked.bundle, evidence, coverage), self._rules, stamp())


_WORDS = {events.REAL: "confirmed", events.FALSE_ALARM: "a false alarm", events.UNKNOWN: "not known whether it is real"}


def _nothing_read(looked: Looked, evidence: Evidence) -> bool:
    return bool(looked.asked) and len(unread(looked, evidence)) == len(looked.asked)


def _window(bundle: Bundle, wanted: Ask) -> Window:
    history = wanted.request.prometheus
    if history is None or wanted.request.servers:
        return bundle.window
    return Window(history.until - history.window, history.until)


AUTH, AUTH_FILE = "LATDOCTOR_LISTEN_AUTH", "LATDOCTOR_LISTEN_AUTH_FILE"
BY = "latdoctor listen"


@dataclass(frozen=True, slots=True)
class ListenRequest:
    """What was asked of `listen`, as given."""

    place: str
    auth_file: Path | None
    close_on_resolve: bool
    sop: str
    sops: tuple[Path, ...]
    every: str
    rules: tuple[Path, ...]


def listen_until_ended(given: Given, how: ListenRequest) -> None:
    """Until Ctrl-C or SIGTERM. Raises LatdoctorError for what can be known to be wrong before."""
    configuration()  # whom it would tell: what is wrong with that is told before an incident, not in it
    host, port = _place(how.place)
    secret = authorization(how.auth_file, os.environ, AUTH, AUTH_FILE, bare=True)
    _must_be_guarded(host, secret)
    rules, every = rule_set(how.rules), pause_of(how.every)
    settings = settings_of(given)
    looks = given.any_source or bool(settings.name)
    wanted = ask(given, Need.IF_THERE) if looks else None
    about = IncidentTemplate(
        targets=_targets(wanted, settings) if wanted else (),
        sop=loader.find(procedures(how.sops), how.sop or loader.USUAL),
        by=BY,
        close_on_resolve=how.close_on_resolve,
    )
    folder = own_folder()
    intake = Intake(Journal.opened(folder / state_dir.JOURNAL), folder, about)

    def heard(text: str) -> None:
        """What a look said has just been journaled."""
        _say(text)
        poke()

    attendance = ServiceMonitor(given, rules, intake, every, SystemClock(), heard) if looks else None

    def take(alerted: AlertsReceived) -> IntakeResult:
        taken = intake.take(alerted)
        _tell(alerted, taken)
        poke()
        if taken.opened and attendance:
            attendance.wake()
        return taken

    with (
        contextlib.suppress(KeyboardInterrupt),
        ended_by_sigterm(),
        notifying(_say) as poke,
        serve_webhook(host, port, secret, take, _say) as url,
    ):
        poke()  # what was not sent when it ended the last time
        say(f"alerts are taken in at {url}; Ctrl-C ends")
        if attendance is None:
            say("no source was given: alerts are not confirmed, and nothing is sampled (--server URL, --target NAME)")
            threading.Event().wait()
        else:
            attendance.go_on()


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(
            f"{clean(text, 80)!r} is no place to listen at",
            where="--listen",
            next_step="write it such as 127.0.0.1:9095",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _must_be_guarded(host: str, secret: str) -> None:
    """Raises UsageError where anybody in the network could open incidents."""
    try:
        own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = host == "localhost"
    if not own and not secret:
        raise UsageError(
            f"anybody could send alerts to {clean(host, 80)}",
            where="--listen",
            next_step=f"put a token into a file and name it with --auth-file or in {AUTH_FILE}, or put it into {AUTH}",
        )


def _targets(wanted: Ask, settings: TargetSettings) -> tuple[str, ...]:
    """By which commands find the incident: the target's name, and where it is looked at and changed.

    A name that was made up of addresses (`a:8000 and 1 more`) is none that a command takes.
    """
    name = settings.name or ("" if wanted.request.servers else wanted.context.target)
    found = (name, *wanted.request.servers, *settings.admin)
    return tuple(dict.fromkeys(mask_credentials(clean(one, 200)) for one in found if one))


def _tell(alerted: AlertsReceived, taken: IntakeResult) -> None:
    names = ", ".join(dict.fromkeys(fitted(alert.name or alert.fingerprint, 80) for alert in alerted.alerts[:3]))
    if taken.opened:
        _say(f"{taken.incident}: opened by {names}. Next: latdoctor sop status --incident {taken.incident}")
    elif taken.new:
        _say(f"{taken.incident}: {taken.new} new of {names}")
    if taken.new and (cut := truncation_note(alerted.alerts)):
        _say(f"{taken.incident}: {cut}")
    if taken.closed:
        _say(f"{taken.incident}: every alert is resolved; closed")
    elif taken.resolved and taken.new:
        _say(
            f"{taken.incident}: every alert is resolved; it stays open until the fix is verified:"
            f" latdoctor sop close --incident {taken.incident}"
        )


def _say(text: str) -> None:
    say(mask_credentials(clean(text)))


PLACE = "127.0.0.1:9095"
_HOW = "What comes in"

Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.", rich_help_panel=_HOW)]
AuthFile = Annotated[
    Path | None,
    typer.Option(
        "--auth-file",
        metavar="FILE",
        readable=False,
        help="What a sender has to show: a token, or `Basic USER:PASSWORD`.",
        rich_help_panel=_HOW,
    ),
]
CloseOnResolve = Annotated[
    bool,
    typer.Option(
        "--close-on-resolve",
        help="Close an incident when its last alert is resolved. Without: it waits for `sop close`.",
        rich_help_panel=_HOW,
    ),
]
Every = Annotated[
    str, typer.Option("--every", metavar="TIME", help="How often the service is sampled while an incident is open.")
]
SopOption = Annotated[
    str | None, typer.Option("--sop", metavar="ID", help="The SOP that is followed (default slow-inference).")
]


def listen(
    place: Listen = PLACE,
    auth_file: AuthFile = None,
    close_on_resolve: CloseOnResolve = False,
    sop: SopOption = None,
    sops: Sops = None,
    every: Every = "10s",
    server: options.Server = None,
    log: options.Log = None,
    prometheus: options.Prometheus = None,
    select: options.Select = None,
    log_pattern: options.LogPattern = None,
    changes: options.Changes = None,
    pid: options.Pid = None,
    nvml: options.Nvml = None,
    target: options.Target = None,
    window: options.WindowOption = None,
    slo: options.Slo = None,
    slo_errors: options.SloErrors = None,
    baseline: options.BaselineOption = None,
    rules: options.Rules = None,
) -> None:
    """Take alerts in, confirm them, and watch the incident.

    An Alertmanager sends its notifications to /alerts here (webhook_config). A new alert opens an incident, others of
    its group join it, repetitions add nothing; what was answered 200 is in the journal. With a source given (as for
    diagnose) the service is looked at: is the alert real, what is wrong, and how it goes on, until Ctrl-C.

    The token may also stand in LATDOCTOR_LISTEN_AUTH, or in a file that LATDOCTOR_LISTEN_AUTH_FILE names; one is needed
    unless it listens on the loopback interface.

    Exit codes: 0 ended by Ctrl-C or SIGTERM · 1 it cannot listen there · 2 usage, or an invalid file.
    """
    pass  # import of a merged module

    asked = options.given(
        server, None, None, log, prometheus=prometheus, select=select, log_pattern=log_pattern, changes=changes,
        pid=pid, nvml=nvml, target=target, window=window, slo=slo, slo_errors=slo_errors, baseline=baseline,
    )  # fmt: skip
    how = ListenRequest(place, auth_file, close_on_resolve, sop or "", tuple(sops or ()), every, tuple(rules or ()))
    listen_until_ended(asked, how)
