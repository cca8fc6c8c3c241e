"""A soak: a real server under mixed load for minutes, with misbehaving clients and changing configuration.

    python -m bench.soak                               # ten minutes
    python -m bench.soak --minutes 2 --seed 7 --output json

The load is open-loop: short and long, text and audio, conversations, malformed bodies, bursts, retries. Other clients
disconnect early, send slowly or send invalid data. At the end the server gets SIGTERM under load. The exit code is 0 if
memory, threads and files stay flat, every request is accounted for on both sides, and the drain is clean; else 1, with
a list of the failures.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.harness import arguments, log, print_result
from bench.soak import clients, knobs, verdict, watching
from bench.soak.drain import Drained, drain
from latdoctor.lab.processes import ServerProcess
from latdoctor.lab.server.config import ModelSettings, ServerConfig
from latdoctor.load.arrivals import Arrivals, Gamma, OnOff, Poisson, Ramp
from latdoctor.load.mix import Mix
from latdoctor.load.openloop import Progress
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy
from latdoctor.load.process import saturate, start_load
from latdoctor.load.summary import LoadResult

MEAN_SHARE = 0.35  # of the saturated rate: every scheduler and memory mode must sustain the mean
_MIXED = Mix(long_share=0.1, audio_share=0.3, malformed_share=0.05, sessions=1000)
_LONG = Mix(long_share=0.3, audio_share=0.5, malformed_share=0.02, sessions=100)
_REST = 60.0  # seconds until the server must be at rest
_LONGEST_PHASE = 15.0
_FEWEST_FLOORS = 4  # with fewer, one window decides the slope: runs below nine minutes have none


class Soak(Struct, frozen=True):
    """The result; `wrong` has the failures."""

    seed: int
    minutes: float
    rate: float
    counted: verdict.Counted
    crowd: dict[str, int]
    knobs_turned: int
    changes_refused: int
    rss_mib: tuple[float, float, float]  # first, most, last
    rss_slope_mib_per_minute: float | None  # of its floor over the second half; None: the run is too short
    rss_floors_mib: tuple[float, ...]  # of the windows of the second half
    allocated_mib: tuple[float, float]  # by the allocator, at rest at the beginning and the end
    threads: tuple[int, int]  # most in the first half, at rest at the end
    files: tuple[int, int]  # at rest at the beginning and the end
    deepest_queue: int
    most_sessions: int
    pages: int
    drained: Drained
    spoiled: tuple[str, ...]
    wrong: tuple[str, ...]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="a small model: more requests, less computing")
    chosen = parser.parse_args()
    settings = ModelSettings(layers=1, width=64, precision="fp32") if chosen.small else ModelSettings()
    found = soak(msgspec.structs.replace(knobs.START, model=settings), chosen.minutes, chosen.seed)
    print_result(msgspec.to_builtins(found), chosen.output)
    for each in found.wrong:
        log(f"failed: {each}")
    sys.exit(1 if found.wrong else 0)


def soak(config: ServerConfig, minutes: float, seed: int) -> Soak:
    """The whole run. Raises OperationError if the server or the generator fails."""
    with ServerProcess(config, faults=False) as server, watching.output_of(server.pid) as output:
        server.wait_ready()
        full = saturate(_plan(100.0, 5.0, seed), server.url, min(3.0, minutes * 10), phase="even-0").rate
        log(f"the server completes {full:.0f} requests a second; {full * MEAN_SHARE:.0f} are offered in the mean")
        before = _at_rest(server)
        files = watching.sample(server.pid, 0).files
        plan = _plan(full, minutes * 60, seed)
        watch = watching.Watch(server.url, server.pid, every=min(1.0, minutes), page_every=min(5.0, minutes * 5))
        turner = knobs.Turner(server.admin, seed, every=max(1.0, min(2.0, minutes * 0.2)))
        crowd = clients.Crowd(server.port, seed, rate=2.0, patient_slow=minutes >= 1)
        with watch.running(), watching.beside(turner.turn), watching.beside(partial(_run, crowd)):
            result = _loaded(plan, server.url)
        turner.back()
        after = _at_rest(server)
        last = watching.sample(server.pid, 0)
        counted = _counted(result, crowd.account, before, after)
        drained = drain(server.url, server.pid, seed, rate=min(100.0, full * MEAN_SHARE), burst=round(min(200.0, full)))
        pages = before, after
        return _judged(plan, seed, watch, turner, crowd, counted, drained, result, (files, last), pages, output()[1:])


def _judged(
    plan: LoadPlan,
    seed: int,
    watch: watching.Watch,
    turner: knobs.Turner,
    crowd: clients.Crowd,
    counted: verdict.Counted,
    drained: Drained,
    result: LoadResult,
    at_rest: tuple[int, watching.Sample],
    pages: tuple[watching.Page, watching.Page],
    output: list[str],
) -> Soak:
    files, last = at_rest
    half = plan.seconds / 2
    first_half = [sample for sample in watch.samples if sample.at <= half]
    second_half = [(sample.at, float(sample.rss)) for sample in watch.samples if sample.at > half]
    lowest = verdict.floors(second_half, turner.round_seconds)
    rising = verdict.slope(lowest) if len(lowest) >= _FEWEST_FLOORS else None
    threads = max(sample.threads for sample in first_half)
    wrong = [
        *verdict.accounts(counted),
        *drained.wrong(),
        *(f"crowd: {each}" for each in crowd.account.wrong),
        *(f"admin: {each}" for each in turner.wrong),
        *(f"the metrics page could not be read: {each}" for each in watch.unread),
        *(f"the server printed: {line}" for line in output[:20]),  # its address is not among them
    ]
    if rising is not None and verdict.grows(rising):
        wrong.append(f"memory grows by {verdict.mib_per_minute(rising)}, more than {verdict.MOST_MIB_PER_MINUTE:g}")
    if left := int(pages[1]("ref_queue_depth")):
        wrong.append(f"{left} requests are queued at rest at the end")
    if last.threads > threads:
        wrong.append(f"{last.threads} threads at rest at the end, {threads} at most in the first half")
    if last.files > files:
        wrong.append(f"{last.files} open files at rest at the end, {files} at the beginning")
    if watch.most_sessions > knobs.MOST_SESSIONS:
        wrong.append(f"{watch.most_sessions} sessions were kept; the limit is {knobs.MOST_SESSIONS}")
    allocated = [round(page("ref_allocated_bytes") / verdict.MIB, 1) for page in pages]
    rss = [sample.rss / verdict.MIB for sample in watch.samples]
    return Soak(
        seed=seed,
        minutes=plan.seconds / 60,
        rate=counted.requests / plan.seconds,
        counted=counted,
        crowd=dict(crowd.account.done),
        knobs_turned=turner.turned,
        changes_refused=turner.refused,
        rss_mib=(round(rss[0], 1), round(max(rss), 1), round(rss[-1], 1)),
        rss_slope_mib_per_minute=None if rising is None else round(rising * 60 / verdict.MIB, 3),
        rss_floors_mib=tuple(round(value / verdict.MIB, 1) for _, value in lowest),
        allocated_mib=(allocated[0], allocated[1]),
        threads=(threads, last.threads),
        files=(files, last.files),
        deepest_queue=watch.deepest_queue,
        most_sessions=watch.most_sessions,
        pages=watch.pages,
        drained=drained,
        spoiled=tuple(problem.text for problem in result.problems),
        wrong=tuple(wrong),
    )


def _plan(full: float, seconds: float, seed: int) -> LoadPlan:
    """Phases in turn, each with a mean of about `MEAN_SHARE` of the saturated rate."""
    mean = full * MEAN_SHARE
    kinds: tuple[tuple[str, Arrivals, Mix], ...] = (
        ("even", Poisson(mean), _MIXED),
        ("bursts", OnOff(on_rate=mean * 2.8, on_s=1.0, off_s=3.0, off_rate=mean * 0.4), _MIXED),
        ("clumps", Gamma(mean, cv=4.0), _MIXED),
        ("rising", Ramp(mean * 0.2, mean * 1.8), _MIXED),
        ("long", Poisson(mean * 0.6), _LONG),
    )
    count = max(len(kinds), round(seconds / _LONGEST_PHASE))
    return LoadPlan(
        phases=tuple(
            LoadPhase(f"{kinds[number % len(kinds)][0]}-{number}", seconds / count, *kinds[number % len(kinds)][1:])
            for number in range(count)
        ),
        seed=seed,
        timeout_s=5.0,
        retry=RetryPolicy(kind=RetryKind.BACKOFF, attempts=3),
    )


def _at_rest(server: ServerProcess) -> watching.Page:
    """The page once no request is in flight and every connection but the page's own is closed."""
    give_up = time.monotonic() + _REST
    while True:
        page = watching.page(server.url)
        answered = sum(page.split("ref_requests_total").values()) + page("ref_requests_cancelled_total")
        if page("ref_arrivals_total") == answered and page("ref_queue_depth") == 0 and not _connections(server):
            return page
        if time.monotonic() > give_up:
            return page  # the verdict reports differences
        time.sleep(0.2)


def _connections(server: ServerProcess) -> int:
    """Connections of the server's port that are open at its end (proc(5), net/tcp; state 01 is established)."""
    port = f":{server.port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[1].endswith(port) and row[3] in {"01", "08"} for row in rows)


def _counted(
    result: LoadResult, crowd: clients.Account, before: watching.Page, after: watching.Page
) -> verdict.Counted:
    counts = result.total.counts

    def risen(name: str) -> dict[str, int]:
        return watching.rise(before.split(name), after.split(name))

    return verdict.Counted(
        requests=counts.requests,
        endings={
            name: getattr(counts, name)
            for name in ("answered", "refused", "rejected", "failed", "timed_out", "not_sent")
        },
        attempts=counts.attempts,
        client=result.total.statuses,
        crowd=dict(crowd.statuses),
        crowd_arrived=crowd.arrived,
        crowd_vanished=crowd.vanished,
        crowd_unknown=crowd.unknown,
        arrivals=int(after("ref_arrivals_total") - before("ref_arrivals_total")),
        cancelled=int(after("ref_requests_cancelled_total") - before("ref_requests_cancelled_total")),
        server=risen("ref_requests_total"),
        shed=risen("ref_requests_shed_total"),
        rejected=risen("ref_rejected_total"),
    )


def _loaded(plan: LoadPlan, url: str) -> LoadResult:
    with start_load(plan, url, report_s=10.0) as load:
        return load.wait(_progress)


def _run(crowd: clients.Crowd, end: threading.Event) -> None:
    """The crowd on an event loop of its own, until `end` is set and its last client has left."""

    async def until_the_end() -> None:
        run = asyncio.create_task(crowd.run())
        await asyncio.to_thread(end.wait)
        crowd.stop()
        await run

    asyncio.run(until_the_end())


def _progress(progress: Progress) -> None:
    log(
        f"{progress.elapsed:4.0f} of {progress.of:.0f} s: {progress.sent} sent, {progress.in_flight} in flight, "
        f"{progress.errors} refused, failed or late"
    )


if __name__ == "__main__":
    main()
