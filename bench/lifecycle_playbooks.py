"""The playbooks of session state and model lifecycle, end to end: incident, diagnosis, fix, rollback on command.

    python -m bench.lifecycle_playbooks [--only ROW ...] [--at-once 3] [--keep FOLDER] [--output text|json]

For each row a service is started, loaded at a constant rate, and its baseline recorded by `latdoctor baseline record`.
Then the fault is injected; `latdoctor diagnose` has to name its cause, `latdoctor remediate --from` (or `--playbook`,
where another playbook of the cause comes first) plans, applies and verifies, and `latdoctor rollback` restores the
configuration. A Prometheus has the history of each service, of half a minute before the incident. Clients measure P99
and lost requests throughout. The model sleeps instead of computing, so that the capacity does not depend on what else
the machine does; server, router, Redis, metrics and commands are the real ones.

A further row is one entry of ROWS in `lifecycle_incidents`. Exits 1 where a row was not verified and rolled back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.harness import arguments, log, markdown, print_result
from bench.lifecycle_incidents import ROWS, TOKEN, Row, Service
from bench.prometheus_process import prometheus
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.evaluation.ground_truth import TimeRange
from latdoctor.evaluation.remediation.run_record import within
from latdoctor.lab.admin_client import AdminClient
from latdoctor.load.arrivals import Constant
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import start_load
from latdoctor.load.summary import LoadResult

SLICE = 4.0  # seconds: any time of the run has an exact P99
BEFORE, LASTS = 32.0, 588.0  # seconds
_HEALTHY, _LOOK, _HURTS, _AFTER = 10.0, 10.0, 20.0, 3 * SLICE  # seconds of the baseline, the diagnosis, …
_COMMAND = 420.0  # seconds
_SCRAPE = 5.0  # seconds


class PlaybookRun(Struct, frozen=True):
    """One run. Times in seconds; `exit_code` of `remediate --apply`, `restored`: by `latdoctor rollback`."""

    row: str
    playbook: str
    p99_before: float | None = None
    p99_incident: float | None = None
    p99_after: float | None = None
    requests: int = 0
    lost: int = 0
    named: tuple[str, ...] = ()
    proposed: str = ""  # the playbook of the Fix line
    planned: bool = False
    verified: bool = False
    seconds: float | None = None  # of `remediate --apply`, until it was verified
    restored: bool = False
    exit_code: int = -1
    reason: str = ""


class _Commands:
    """`latdoctor` with a journal of its own, for one service."""

    def __init__(self, row: Row, service: Service, clients: str, history: str, folder: Path) -> None:
        self._row, self._folder = row, folder
        self._history = (f"--prometheus={history}", '--select={job="service"}')
        pages = (*service.pages, clients)
        self._sources = [f"--server={page.rstrip('/')}/metrics" for page in pages]
        self._slo = f"--slo={row.slo * 1000:g}ms"
        self._admin = f"--admin={service.url}"

    def baseline(self) -> Path:
        path = self._folder / "healthy.json"
        self._run("baseline", "record", "--to", str(path), f"--window={_HEALTHY:g}s", *self._sources)
        return path

    def diagnose(self, baseline: Path) -> dict[str, Any]:
        options = (*self._sources, self._slo, f"--baseline={baseline}", f"--window={_LOOK:g}s", "-o", "json")
        done = self._run("diagnose", *options)
        if not done.stdout.strip():
            raise OperationError(f"nothing was diagnosed: {done.stderr.strip()[-300:]}")
        (self._folder / "diagnosis.json").write_text(done.stdout)
        return dict(json.loads(done.stdout))

    def fix_line(self) -> str:
        """The playbook that the report of the diagnosis proposes."""
        causes = json.loads((self._folder / "diagnosis.json").read_text())["causes"]
        return next((one["playbooks"][0] for one in causes if one["named"] and one["playbooks"]), "")

    def remediate(self, *, given: bool, baseline: Path, apply: bool) -> tuple[int, dict[str, Any]]:
        chosen = ["--playbook", self._row.playbook] if given else ["--from", str(self._folder / "diagnosis.json")]
        settings = [f"--set={name}={value}" for name, value in self._row.settings.items()]
        ways = ["--apply", "--yes", "--wait"] if apply else []
        options = (*settings, *self._sources, *self._history, self._admin, self._slo, f"--baseline={baseline}")
        done = self._run("remediate", *chosen, *ways, *options, "--no-incident", "-o", "json")
        document = json.loads(done.stdout) if done.stdout.strip() else {}
        found = document["results"][0] if document.get("results") else document
        return done.returncode, {"reason": done.stderr.strip()[-300:], **found}

    def roll_back(self, run: str) -> int:
        return self._run("rollback", run, "-o", "json").returncode

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        state = {"LATDOCTOR_STATE": str(self._folder / "state"), "LATDOCTOR_ADMIN_TOKEN": TOKEN}
        command = [sys.executable, "-m", "latdoctor", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **state}, timeout=_COMMAND
        )
        log(f"{self._row.name}: latdoctor {words[0]}: exit {done.returncode}")
        (self._folder / f"{words[0]}.txt").write_text(f"{done.stdout}\n{done.stderr}")
        return done


def _plan(row: Row) -> LoadPlan:
    healthy = LoadPhase("before", BEFORE, Constant(row.rate), row.mix)
    slices = (
        LoadPhase(f"incident-{number}", SLICE, Constant(row.rate * row.rises), row.mix)
        for number in range(round(LASTS / SLICE))
    )
    return LoadPlan((healthy, *slices), seed=1, timeout_s=15.0, slo_s=row.slo)


def run(row: Row, folder: Path) -> PlaybookRun:
    """One incident and its remediation. Raises LatdoctorError where the service does not start."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as ends:
        service = ends.enter_context(row.service(folder))
        history = ends.enter_context(prometheus(service.url, "service", _SCRAPE))
        load = ends.enter_context(start_load(_plan(row), service.url, metrics_port=0, report_s=SLICE))
        begins = load.wait_started() + BEFORE
        commands = _Commands(row, service, load.metrics, history, folder)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(load.wait)
            try:
                found, moments = _incident(row, commands, service, begins)
            finally:
                load.stop()
            return _with_latency(found, result.result(), moments)


def _incident(row: Row, commands: _Commands, service: Service, begins: float) -> tuple[PlaybookRun, tuple[float, ...]]:
    """The run without its latencies; in Unix seconds when the fault and the playbook began, its proof and all ended."""
    _until(begins - _HEALTHY - 3.0)
    baseline = commands.baseline()
    _until(begins)
    if row.rises != 1.0 and time.time() > begins + SLICE:
        raise OperationError("the machine was too busy: the load rose before the baseline was recorded")
    with ExitStack() as undo:
        row.inject(service, undo)
        injected = time.time()
        _until(injected + _HURTS)
        named = tuple(commands.diagnose(baseline)["answer"]["causes"])
        acting, first = time.time(), commands.fix_line()
        before = _configuration(service)
        given = first != row.playbook
        planned, _ = commands.remediate(given=given, baseline=baseline, apply=False)
        code, applied = commands.remediate(given=given, baseline=baseline, apply=True)
        verified = time.time()
        restored = False
        if code == 0:
            time.sleep(_AFTER + SLICE)
            rolled_back = commands.roll_back(applied["run"])
            restored = rolled_back == 0 and _configuration(service) == before
        ended = verified + _AFTER + SLICE
    found = PlaybookRun(
        row.name,
        row.playbook,
        named=named,
        proposed=first,
        planned=planned == 0,
        verified=code == 0,
        seconds=applied.get("seconds") if code == 0 else None,
        restored=restored,
        exit_code=code,
        reason=str(applied.get("reason", "")),
    )
    return found, (injected, acting, verified, ended)


def _with_latency(found: PlaybookRun, result: LoadResult, moments: tuple[float, ...]) -> PlaybookRun:
    injected, acting, verified, ended = (moment - result.started for moment in moments)
    spans = (TimeRange(0.0, BEFORE), TimeRange(injected + SLICE, acting), TimeRange(verified, ended))
    before, incident, after = (within(result, span) for span in spans)
    whole = within(result, TimeRange(0.0, ended))
    return msgspec.structs.replace(
        found,
        p99_before=before.p99 if before else None,
        p99_incident=incident.p99 if incident else None,
        p99_after=after.p99 if after and found.verified else None,
        requests=whole.counts.requests if whole else 0,
        lost=whole.counts.requests - whole.counts.answered if whole else 0,
    )


def _configuration(service: Service) -> object:
    return json.loads(AdminClient(service.url, TOKEN).ask("GET", "/admin/config")[1])


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


COLUMNS = (
    *("incident", "named", "playbook", "P99 before", "in the incident", "after", "requests lost"),
    *("seconds until verified", "verified", "rolled back on command"),
)


def cells(one: PlaybookRun) -> tuple[str, ...]:
    p99s = (f"{value * 1000:.0f} ms" if value else "–" for value in (one.p99_before, one.p99_incident, one.p99_after))
    seconds = f"{one.seconds:.0f}" if one.seconds else "–"
    named = ", ".join(f"`{name}`" for name in one.named) or "nothing"
    answers = ("yes" if value else "no" for value in (one.verified, one.restored))
    return (one.row, named, f"`{one.playbook}`", *p99s, f"{one.lost} of {one.requests}", seconds, *answers)


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="rows that run at the same time")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="what the commands printed and journaled")
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="latdoctor-lifecycle-") as name:
        folder = options.keep or Path(name)

        def one(row: str) -> PlaybookRun:
            try:
                found = run(ROWS[row], folder.absolute() / row)
            except LatdoctorError as error:
                found = PlaybookRun(row, ROWS[row].playbook, reason=str(error))  # the other rows go on
            log(f"{found}")
            return found

        with ThreadPoolExecutor(options.at_once) as pool:
            runs = list(pool.map(one, options.only))
    print_result(runs, options.output, "\n".join(markdown(COLUMNS, map(cells, runs))))
    return 0 if all(one.verified and one.restored for one in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
