"""`latdoctor demo`: runs the promo-rush incident on this machine, diagnoses it, remediates it, and verifies the fix."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from latdoctor.cli.options import SourceOptions
    from latdoctor.evidence.bundle import Bundle
    from latdoctor.lab.processes import Deployment
    from latdoctor.load.summary import LoadProblem, LoadResult

SCENARIO = "promo-rush"
SLO = "500ms"
WINDOW = "5s"
SETTLING = 2.0  # seconds at the start of the load that are not observed
DEVELOPS = 5.0  # seconds from the start of the incident to its diagnosis: the queue must build up
AFTERWARDS = 6.0  # seconds of load after verification, for the clients' figures


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="PATH", help="Keep the evidence of the incident as a bundle.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the load.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Run it although the machine is busy.")] = False,
) -> None:
    """Run a real incident, diagnose it and remediate it.

    The scenario is promo-rush: a real server under a rush of long requests, its diagnosis while it is slow, and the
    playbook that fixes it, which is verified or rolled back. It takes about four minutes and leaves nothing behind. On
    a busy machine, where its timing would mean nothing, it does not start, or ends when the machine becomes busy.

    Exit codes: 0 remediated and verified · 1 the machine is busy, server or generator failed, or nothing was changed ·
    2 the lab packages are missing · 3 no playbook was found, or it was not verified and rolled back · 4 held for a
    human · 5 refused by a guard · 6 the rollback failed.
    """
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.cli.lab import need_extra
    from latdoctor.evidence.bundle_files import must_be_new

    need_extra()
    if keep is not None:
        must_be_new(keep)
    machine = BusyMachine(force)
    machine.check_start()
    with ended_by_sigterm():
        raise typer.Exit(_run(seed, keep, machine))


class BusyMachine:
    """The use of this machine by other processes since the demo began. `force`: only report it."""

    def __init__(self, force: bool) -> None:
        from latdoctor.load import machine_state

        self._state = machine_state
        self._force = force
        self._began = machine_state.usage(time.time())

    def check_start(self) -> None:
        """Raises OperationError where the machine is too busy to begin."""
        if reason := self._state.busy():
            self._report(reason)

    def check(self) -> None:
        """Raises OperationError where the machine has become too busy to go on."""
        limit = self._state.BUSY_SHARE
        if not self._force and (share := self._others()) > limit:
            self._report(self._state.other_load(share, limit))

    def check_result(self, problems: Sequence[LoadProblem]) -> None:
        """For a fix that was not verified: raises OperationError where that is the machine's fault."""
        from latdoctor.load.summary import LoadProblemCode

        late = (LoadProblemCode.NOT_SENT, LoadProblemCode.GENERATOR_LATE, LoadProblemCode.GENERATOR_BUSY)
        reasons = [problem.text for problem in problems if problem.code in late][:1]
        if (share := self._others()) > self._state.OTHERS:
            reasons.append(self._state.other_load(share))
        if reasons:
            self._report("; ".join(reasons))

    def _others(self) -> float:
        now, processors = self._state.usage(time.time()), os.cpu_count() or 1
        return self._state.others(self._began, now, processors) or 0.0

    def _report(self, reason: str) -> None:
        from latdoctor.cli.console import notice_console
        from latdoctor.errors import OperationError

        if not self._force:
            raise OperationError(
                f"the machine is too busy for the demo: {reason}",
                next_step="stop other work, or run it anyway: --force",
            )
        notice_console().print(f"the machine is busy: {reason}; the times of this run mean little")


@dataclass(frozen=True, slots=True)
class _Session:
    """The options of the commands that the demo runs, the server's address, and the screen."""

    sources: SourceOptions
    url: str
    screen: Console


def _run(seed: int, keep: Path | None, machine: BusyMachine) -> int:
    """The exit code. Raises OperationError where the machine is too busy."""
    from concurrent.futures import ThreadPoolExecutor

    from latdoctor.cli.console import notice_console, result_console
    from latdoctor.evaluation.remediation.run_specs import sliced_load, unattended_scenario
    from latdoctor.lab.processes import Deployment
    from latdoctor.lab.run_report import BEFORE
    from latdoctor.lab.runner import RunObserver, calibrated
    from latdoctor.load.process import start_load

    notices, screen = notice_console(), result_console()
    scenario = unattended_scenario(SCENARIO)
    calm = sum(phase.seconds for phase in scenario.phases[:-1])
    notices.print("starting the server")
    with Deployment(scenario) as deployment, _own_state(deployment.token):
        rate = calibrated(scenario, deployment, seed, RunObserver(log=notices.print))
        machine.check()
        with start_load(sliced_load(scenario.plan(rate, seed)), deployment.address, metrics_port=0) as load:
            begun = load.wait_started()
            session = _Session(_options(deployment, load.metrics), deployment.servers[0], screen)
            with ThreadPoolExecutor(1) as pool:
                clients = pool.submit(load.wait)
                try:
                    code = _incident(session, begun, begun + calm, keep, machine)
                    time.sleep(AFTERWARDS)
                finally:
                    load.stop()
                result = clients.result()
                _print_client_figures(screen, result, BEFORE, verified=code == 0)
    if code != 0:
        machine.check_result(result.problems)
    screen.print("\nThe demo's server and journal are gone; commands above that name them no longer apply.")
    screen.print("Next, for your own server: latdoctor diagnose --server URL")
    return code


def _incident(session: _Session, begun: float, incident: float, keep: Path | None, machine: BusyMachine) -> int:
    """Diagnoses the healthy server, then the incident, and runs the playbook. Returns the exit code."""
    from latdoctor import __version__
    from latdoctor.case_from_bundle import remedy_of
    from latdoctor.cli.collect_and_diagnose import diagnosis_of, rule_set
    from latdoctor.evidence.bundle_files import save
    from latdoctor.report import console

    _until(begun + SETTLING)
    session.screen.print(f"Before the rush: {diagnosis_of(_look(session), rule_set(())).verdict.message}\n")
    machine.check()
    _until(incident + DEVELOPS)
    session.screen.print("The rush has started:\n")
    bundle = _look(session)
    diagnosis = diagnosis_of(bundle, rule_set(()))
    console.render(diagnosis, session.screen)
    if keep is not None:
        save(bundle, keep, __version__)
    remedy = remedy_of(diagnosis)
    if remedy is None:
        session.screen.print("\nNo named cause has a playbook.")
        return 3
    return _remediate(session, remedy[0])


def _remediate(session: _Session, playbook: str) -> int:
    from latdoctor.cli.remediation_session import RemediateOptions, remediate
    from latdoctor.journal.state_dir import JOURNAL, private_folder
    from latdoctor.journal.store import Journal
    from latdoctor.remediation import run_history
    from latdoctor.report import remediation

    command = f"$ latdoctor remediate --playbook {playbook} --server {session.url}/metrics --slo {SLO}"
    session.screen.print(f"\n{command}\n")
    server = (session.url,)  # the token is for it alone, not for the page of its clients
    remediate(session.sources, RemediateOptions(playbook, admin=server))
    session.screen.print(f"\n{command} --apply --yes\n")
    code = remediate(session.sources, RemediateOptions(playbook, admin=server, apply=True, yes=True, wait=True))
    entries = Journal.reading(private_folder() / JOURNAL).entries()
    for run in run_history.runs(entries):
        session.screen.print(f"\n$ latdoctor runs show {run.id} -v\n")
        remediation.run(
            run, [entry for entry in entries if entry.run == run.id], session.screen, verbose=True, next_step=False
        )
    return code


def _print_client_figures(screen: Console, result: LoadResult, before: str, *, verified: bool) -> None:
    """Prints the clients' figures: before, in the worst slice of the incident, and at the end."""
    from rich.table import Table

    phases = [phase for phase in result.phases if phase.whole.counts.requests]
    slices = [phase for phase in phases if phase.name != before]
    worst = max(slices, key=lambda phase: phase.whole.p99 or 0.0)
    last = "after the fix" if verified else "at the end"
    rows = {"before the rush": result.phase(before), "worst slice of the rush": worst, last: slices[-2]}
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("clients")
    for heading in ("requests", "within the SLO", "P99"):
        table.add_column(heading, justify="right")
    for name, phase in rows.items():
        counts = phase.whole.counts
        p99 = "–" if phase.whole.p99 is None else f"{phase.whole.p99 * 1000:.0f} ms"
        table.add_row(name, str(counts.requests), f"{counts.good / counts.requests:.0%}", p99)
    screen.print()
    screen.print(table)


def _look(session: _Session) -> Bundle:
    """Collects what `latdoctor diagnose --server URL --pid N --slo 500ms` collects."""
    from latdoctor.cli.collect_and_diagnose import collect_bundle_now

    return collect_bundle_now(session.sources)


def _options(deployment: Deployment, clients: str) -> SourceOptions:
    from latdoctor.cli.options import SourceOptions

    pages = tuple(f"{page}/metrics" for page in (*deployment.pages, clients))
    return SourceOptions(server=pages, pid=deployment.pids[0], nvml=False, window=WINDOW, slo=SLO)


@contextmanager
def _own_state(token: str) -> Iterator[None]:
    """A temporary state folder and the server's token, as environment variables for the commands that the demo runs."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="latdoctor-demo-") as folder:
        ours = {"LATDOCTOR_STATE": folder, "LATDOCTOR_ADMIN_TOKEN": token}
        before = {name: os.environ.pop(name, None) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name in ours:
                del os.environ[name]
            os.environ.update({name: text for name, text in before.items() if text is not None})


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))
