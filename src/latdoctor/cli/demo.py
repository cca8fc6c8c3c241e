"""`latdoctor demo`: the field's incident on this machine, live: diagnosed, mended, and proved to be."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from latdoctor.cli.options import Given
    from latdoctor.evidence.bundle import Bundle
    from latdoctor.lab.processes import Deployment
    from latdoctor.load.summary import LoadResult

SCENARIO = "promo-rush"
SLO = "500ms"
WINDOW = "5s"
SETTLING = 2.0  # seconds after the load's beginning that are not looked at
DEVELOPS = 5.0  # seconds between the beginning of the incident and the look: a queue has to build up
AFTERWARDS = 6.0  # seconds of load after it was verified, so that the clients tell of it as well


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="PATH", help="Keep what was seen in the incident, as a bundle.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the load.")] = 1,
) -> None:
    """Play a real incident live, diagnose it and mend it.

    The scenario is promo-rush: a real server, a real rush, a look at it while it happens, and the playbook that mends
    it, which proves itself or is taken back. It takes some two minutes, and leaves nothing behind.

    Exit codes: 0 played, and the server is mended · 1 server or generator broke, or nothing was changed · 2 the
    laboratory's packages are missing · 3 no playbook was found, or it was not verified and taken back · 4 held for a
    human · 5 refused by a guard · 6 NOT taken back: see the commands it prints.
    """
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.cli.lab import need_extra
    from latdoctor.evidence.bundle_files import must_be_new

    need_extra()
    if keep is not None:
        must_be_new(keep)
    with ended_by_sigterm():
        raise typer.Exit(_played(seed, keep))


@dataclass(frozen=True, slots=True)
class _Room:
    """What an operator knows of the service, and where she looks at what."""

    given: Given
    url: str
    screen: Console


def _played(seed: int, keep: Path | None) -> int:
    """The exit code."""
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
        rate = calibrated(scenario, deployment, seed, RunObserver(say=notices.print))
        with start_load(sliced_load(scenario.plan(rate, seed)), deployment.address, metrics_port=0) as load:
            begun = load.wait_started()
            room = _Room(_asked(deployment, load.metrics), deployment.servers[0], screen)
            with ThreadPoolExecutor(1) as beside:
                clients = beside.submit(load.wait)
                try:
                    code = _story(room, begun, begun + calm, keep)
                    time.sleep(AFTERWARDS)
                finally:
                    load.stop()
                _told_by_clients(screen, clients.result(), BEFORE)
    screen.print("\nThat server is gone, and its journal with it. Next, of your own: latdoctor diagnose --server URL")
    return code


def _story(room: _Room, begun: float, incident: float, keep: Path | None) -> int:
    """Healthy, then the incident: its diagnosis, the playbook, and what the journal says of it."""
    from latdoctor import __version__
    from latdoctor.cli.session import rule_set, the_diagnosis
    from latdoctor.evidence.bundle_files import save
    from latdoctor.pipeline import remedy_of
    from latdoctor.report import console

    _until(begun + SETTLING)
    room.screen.print(f"While all is well: {the_diagnosis(_look(room), rule_set(())).verdict.message}\n")
    _until(incident + DEVELOPS)
    room.screen.print("The rush is on:\n")
    bundle = _look(room)
    diagnosis = the_diagnosis(bundle, rule_set(()))
    console.render(diagnosis, room.screen)
    if keep is not None:
        save(bundle, keep, __version__)
    remedy = remedy_of(diagnosis)
    if remedy is None:
        room.screen.print("\nNothing was named that a playbook mends.")
        return 3
    return _mended(room, remedy[0])


def _mended(room: _Room, playbook: str) -> int:
    from latdoctor.cli.remediation_session import Mending, mend, own_folder
    from latdoctor.journal.state_dir import JOURNAL
    from latdoctor.journal.store import Journal
    from latdoctor.remediation import run_history
    from latdoctor.report import remediation

    command = f"$ latdoctor remediate --playbook {playbook} --server {room.url}/metrics --slo {SLO}"
    room.screen.print(f"\n{command}\n")
    mend(room.given, Mending(playbook))
    room.screen.print(f"\n{command} --apply --yes\n")
    code = mend(room.given, Mending(playbook, apply=True, yes=True))
    entries = Journal.reading(own_folder() / JOURNAL).entries()
    for run in run_history.runs(entries):
        room.screen.print(f"\n$ latdoctor runs show {run.id}\n")
        remediation.run(run, [entry for entry in entries if entry.run == run.id], room.screen, as_json=False)
    return code


def _told_by_clients(screen: Console, result: LoadResult, before: str) -> None:
    """What the clients had of it: before, in the worst stretch of the incident, and in the last one."""
    from rich.table import Table

    seen = [phase for phase in result.phases if phase.whole.counts.requests]
    slices = [phase for phase in seen if phase.name != before]
    worst = max(slices, key=lambda phase: phase.whole.p99 or 0.0)
    rows = {"before the rush": result.phase(before), "in the rush, at its worst": worst, "mended": slices[-2]}
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what clients saw")
    for heading in ("requests", "within the SLO", "P99"):
        table.add_column(heading, justify="right")
    for name, phase in rows.items():
        counts = phase.whole.counts
        p99 = "–" if phase.whole.p99 is None else f"{phase.whole.p99 * 1000:.0f} ms"
        table.add_row(name, str(counts.requests), f"{counts.good / counts.requests:.0%}", p99)
    screen.print()
    screen.print(table)


def _look(room: _Room) -> Bundle:
    """What `latdoctor diagnose --server URL --pid N --slo 500ms` looks at now."""
    from latdoctor.cli.session import look_now

    return look_now(room.given)


def _asked(deployment: Deployment, clients: str) -> Given:
    from latdoctor.cli.options import Given

    pages = tuple(f"{page}/metrics" for page in (*deployment.pages, clients))
    return Given(server=pages, pid=deployment.pids[0], nvml=False, window=WINDOW, slo=SLO)


@contextmanager
def _own_state(token: str) -> Iterator[None]:
    """A state folder that goes with the demonstration, and the token of its server, for the commands it runs."""
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
