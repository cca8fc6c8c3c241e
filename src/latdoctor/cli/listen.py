"""`latdoctor listen`: a webhook server in background threads, and the monitoring of the service in this one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from latdoctor import case_from_bundle
from latdoctor.cli import options
from latdoctor.cli.collect_and_diagnose import rule_set, stamp
from latdoctor.cli.config_file import TargetSettings, configuration
from latdoctor.cli.configured_target import settings_of
from latdoctor.cli.console import notice
from latdoctor.cli.diagnose_watch import pause_of
from latdoctor.cli.interrupt import ended_by_sigterm
from latdoctor.cli.listen_access import (
    PANEL,
    AccessOptions,
    AuthFile,
    ClientCa,
    HostName,
    TlsCert,
    TlsKey,
    access_of,
    address,
)
from latdoctor.cli.notifier import notifying
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.resolve_request import (
    BaselineNeed,
    CollectedEvidence,
    ResolvedRequest,
    resolve_request,
    unread_reason,
    unread_sources,
)
from latdoctor.cli.sop import Sops
from latdoctor.cli.sop_incident import procedures
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import Clock
from latdoctor.collectors.outage import outage_artifacts
from latdoctor.collectors.runner import SystemClock, collect_bundle
from latdoctor.diagnosis.diagnose import diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import LatdoctorError
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Evidence, Window
from latdoctor.http.safe_address import mask_credentials
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
from latdoctor.incident.events import AlertsReceived, AlertStatus, Confirmation
from latdoctor.incident.evidence_store import store_evidence
from latdoctor.incident.journal_entry_texts import truncation_note
from latdoctor.incident.slo_samples import sample_of, with_previous_pages
from latdoctor.incident.sop import loader
from latdoctor.incident.webhook_server import serve_webhook
from latdoctor.journal import state_dir
from latdoctor.journal.store import Journal
from latdoctor.sanitize import clean, fitted

Say = Callable[[str], None]


class ServiceMonitor:
    """Monitor of the sources in `options`. `wake` interrupts the pause when an incident was opened."""

    def __init__(
        self, options: SourceOptions, rules: RuleSet, intake: Intake, every: float, clock: Clock, log: Say
    ) -> None:
        self._options = options
        self._rules = rules
        self._intake = intake
        self._every = every
        self._clock = clock
        self._log = log
        self._woken = threading.Event()
        self._before: Bundle | None = None
        self._read = True  # whether the last observation had any evidence

    def wake(self) -> None:
        self._woken.set()

    def run(self) -> None:
        """Until it is interrupted."""
        while True:
            started = time.monotonic()
            period = self.observe_once()
            self._woken.wait(max(0.0, period - (time.monotonic() - started)))
            self._woken.clear()

    def observe_once(self) -> float:
        """Observe once if an incident is open, and journal the result for each. Return the seconds to the next turn.

        Errors are logged, and the next turn tries again.
        """
        try:
            incidents = self._intake.monitored_incidents()
            if incidents:
                return max(self._every, self._observe(incidents))
            self._before, self._read = None, True
        except LatdoctorError as error:
            self._log(str(error))
        return self._every

    def _observe(self, incidents: Sequence[AlertedIncident]) -> float:
        """Observe; return the length of a history's window in seconds, with which the next must not overlap."""
        # Resolved each time: the configuration and "now" may have changed.
        request = resolve_request(self._options, BaselineNeed.IF_PRESENT)
        bundle = collect_bundle(COLLECTORS, request.request, request.context, self._clock, baseline=request.baseline)
        whole = with_previous_pages(bundle, self._before)
        self._before = bundle
        evidence, _ = case_from_bundle.seen(whole)
        observation = CollectedEvidence(bundle, request.named)
        if self._note_readability(incidents[0], observation, evidence):  # otherwise the time stays unmeasured
            sampled = sample_of(evidence, _window(whole, request), request.context.slo_p99)
            self._intake.journal.append_all([(one.id, events.SAMPLED, sampled) for one in incidents])
        waiting = [one for one in incidents if one.confirmed != Confirmation.CONFIRMED or one.unexamined]
        diagnosis = self._diagnosis(observation) if waiting else None
        for incident in waiting:
            self._confirm(incident, observation, diagnosis)
        return request.request.prometheus.window if request.request.prometheus else 0.0

    def _note_readability(self, incident: AlertedIncident, observation: CollectedEvidence, evidence: Evidence) -> bool:
        """Whether any named source could be read; a change is logged."""
        read = not _nothing_read(observation, evidence)
        if read != self._read:
            confirmation = (
                "the service is read again" if read else f"the service cannot be read: {unread_reason(observation)}"
            )
            self._log(f"{incident.id}: {confirmation}")
        self._read = read
        return read

    def _confirm(self, incident: AlertedIncident, observation: CollectedEvidence, diagnosis: Diagnosis | None) -> None:
        """Journal the confirmation, unless it adds nothing to the previous one.

        After a further alert the diagnosis is journaled in any case: it may be of another trouble, with other advice.
        """
        confirmation = not_observed(unread_reason(observation)) if diagnosis is None else confirmation_of(diagnosis)
        repeated = confirmation.status == incident.confirmed or (
            confirmation.status == Confirmation.UNKNOWN and bool(incident.confirmed)
        )
        further = incident.unexamined and diagnosis is not None
        if repeated and not further:
            return
        bodies: Bodies = [] if repeated else [(incident.id, events.CONFIRMED, confirmation)]
        if diagnosis is not None:
            stored = store_evidence(self._intake.place, incident.id, observation.bundle, diagnosis)
            bodies.append((incident.id, events.DIAGNOSED, stored.diagnosed))
            for trouble in stored.troubles:
                self._log(f"{incident.id}: {trouble}")
        self._intake.journal.append_all(bodies)
        said = "diagnosed again, as another alert fires" if repeated else _WORDS[confirmation.status]
        self._log(f"{incident.id}: {said}: {confirmation.message}")

    def _diagnosis(self, observation: CollectedEvidence) -> Diagnosis | None:
        """None where no named source could be read, other than that a server does not answer."""
        evidence, coverage = case_from_bundle.seen(observation.bundle)
        if _nothing_read(observation, evidence) and not outage_artifacts(observation.bundle):
            return None
        return diagnose(case_from_bundle.case(observation.bundle, evidence, coverage), self._rules, stamp())


_WORDS = {
    Confirmation.CONFIRMED: "confirmed",
    Confirmation.FALSE_ALARM: "a false alarm",
    Confirmation.UNKNOWN: "not known whether it is real",
}


def _nothing_read(observation: CollectedEvidence, evidence: Evidence) -> bool:
    return bool(observation.requested) and len(unread_sources(observation, evidence)) == len(observation.requested)


def _window(bundle: Bundle, request: ResolvedRequest) -> Window:
    history = request.request.prometheus
    if history is None or request.request.servers:
        return bundle.window
    return Window(history.until - history.window, history.until)


BY = "latdoctor listen"


@dataclass(frozen=True, slots=True)
class ListenRequest:
    """Options of `listen`."""

    place: str
    access: AccessOptions
    close_on_resolve: bool
    sop: str
    sops: tuple[Path, ...]
    every: str
    rules: tuple[Path, ...]


def listen_until_ended(options: SourceOptions, request_options: ListenRequest) -> None:
    """Serve until Ctrl-C or SIGTERM. Raises LatdoctorError for invalid options."""
    configuration()  # errors in the receivers are reported now, not during an incident
    host, port = address(request_options.place)
    access = access_of(host, request_options.access)
    rules, every = rule_set(request_options.rules), pause_of(request_options.every)
    settings = settings_of(options)
    has_source = options.any_source or bool(settings.name)
    request = resolve_request(options, BaselineNeed.IF_PRESENT) if has_source else None
    about = IncidentTemplate(
        targets=_targets(request, settings) if request else (),
        sop=loader.find(procedures(request_options.sops), request_options.sop or loader.USUAL),
        by=BY,
        close_on_resolve=request_options.close_on_resolve,
    )
    folder = state_dir.private_folder()
    intake = Intake(Journal.opened(folder / state_dir.JOURNAL), folder, about)

    def log_confirmation(text: str) -> None:
        """Log a journaled confirmation, and send notifications."""
        _log(text)
        poke()

    attendance = ServiceMonitor(options, rules, intake, every, SystemClock(), log_confirmation) if has_source else None

    def take(alerted: AlertsReceived) -> IntakeResult:
        taken = intake.take(alerted)
        _log_intake(alerted, taken)
        poke()
        if taken.unexamined and attendance:
            attendance.wake()
        return taken

    with (
        contextlib.suppress(KeyboardInterrupt),
        ended_by_sigterm(),
        notifying(_log) as poke,
        serve_webhook(host, port, access, take, _log) as url,
    ):
        poke()  # messages left from the last time
        notice(f"listening for alerts at {url}; Ctrl-C ends")
        if attendance is None:
            notice("no source: alerts are not confirmed, and nothing is sampled (--server URL, --target NAME)")
            threading.Event().wait()
        else:
            attendance.run()


def _targets(request: ResolvedRequest, settings: TargetSettings) -> tuple[str, ...]:
    """Targets by which commands find the incident: the target's name and its addresses.

    A name composed of addresses (`a:8000 and 1 more`) is left out, because no command accepts it.
    """
    name = settings.name or ("" if request.request.servers else request.context.target)
    found = (name, *request.request.servers, *settings.admin)
    return tuple(dict.fromkeys(mask_credentials(clean(one, 200)) for one in found if one))


def _log_intake(alerted: AlertsReceived, taken: IntakeResult) -> None:
    names = ", ".join(dict.fromkeys(fitted(alert.name or alert.fingerprint, 80) for alert in alerted.alerts[:3]))
    if taken.opened:
        _log(f"{taken.incident}: opened by {names}. Next: latdoctor sop status --incident {taken.incident}")
    elif taken.new:
        firing = any(alert.status == AlertStatus.FIRING for alert in alerted.alerts)
        _log(f"{taken.incident}: {taken.new} {'new' if firing else 'resolved'} of {names}")
    if taken.new and (cut := truncation_note(alerted.alerts)):
        _log(f"{taken.incident}: {cut}")
    if taken.closed:
        _log(f"{taken.incident}: every alert is resolved; closed")
    elif taken.resolved and taken.new:
        _log(
            f"{taken.incident}: every alert is resolved; it stays open until the fix is verified:"
            f" latdoctor sop close --incident {taken.incident}"
        )


def _log(text: str) -> None:
    notice(mask_credentials(clean(text)))


PLACE = "127.0.0.1:9095"

Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen at.", rich_help_panel=PANEL)
]
CloseOnResolve = Annotated[
    bool,
    typer.Option(
        "--close-on-resolve",
        help="Close an incident when its last alert is resolved. Without: it waits for `sop close`.",
        rich_help_panel=PANEL,
    ),
]
Every = Annotated[
    str, typer.Option("--every", metavar="TIME", help="How often the service is sampled while an incident is open.")
]
SopOption = Annotated[
    str | None, typer.Option("--sop", metavar="ID", help="The SOP that is followed (default slow-inference).")
]


@options.source_options(without=("metrics", "trace", "nsys", "tensorrt", "torch_memory", "since", "until"))
def listen(
    *,
    place: Listen = PLACE,
    auth_file: AuthFile = None,
    host_name: HostName = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: ClientCa = None,
    close_on_resolve: CloseOnResolve = False,
    sop: SopOption = None,
    sops: Sops = None,
    every: Every = "10s",
    sources: SourceOptions,
    rules: options.Rules = None,
) -> None:
    """Receive alerts, confirm them, and monitor the incident.

    An Alertmanager sends its notifications to /alerts here (webhook_config). A new alert opens an incident, others of
    its group join it, repetitions add nothing; after an answer of 200 it is in the journal. With a source (as for
    diagnose) the service is observed until Ctrl-C: is the alert real, what is the cause, and how does it develop.

    The token can also be in LATDOCTOR_LISTEN_AUTH, or in a file named by LATDOCTOR_LISTEN_AUTH_FILE. Unless the server
    listens on the loopback interface, it or client certificates (--client-ca) are required.

    Exit codes: 0 ended by Ctrl-C or SIGTERM · 1 it cannot listen there · 2 usage, or an invalid file.
    """
    request_options = ListenRequest(
        place=place,
        access=AccessOptions(auth_file, tuple(host_name or ()), tls_cert, tls_key, client_ca),
        close_on_resolve=close_on_resolve,
        sop=sop or "",
        sops=tuple(sops or ()),
        every=every,
        rules=tuple(rules or ()),
    )
    listen_until_ended(sources, request_options)
