"""Requests per second that one core sends on time, for three generators; and from that, what a large rate needs.

    python -m bench.load_rate [--seconds 6] [--only k6] [--rate 100000] [--latency 0.2]

The server answers at once on processor 0, the generator has processor 1 for itself. A rate is sent where 99 % of the
requests were; it is kept where none was dropped and P99 (and the lateness, where the generator reports it) is at most
10 ms. Rates grow by a half until one is not sent, then the gap above the highest that was kept is halved twice. Two
trials must agree on each rate; those not kept while other processes used the machine are repeated, at most five in all.
LATDOCTOR_LOCUST names a Python that has latdoctor[locust], k6 is looked for as LATDOCTOR_K6 and on the path: what is
missing is listed. About five minutes on a quiet machine.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from bench.harness import arguments, log, markdown, print_result
from bench.load_rate import trials
from bench.load_rate.sizing import Sizing, sizing
from bench.load_rate.trials import Trial
from latdoctor.load import machine_state

_FIRST, _GROWTH, _HALVINGS, _HIGHEST = 600.0, 1.5, 2, 10_000.0  # a plan has no higher rate
_QUIET, _TRIES = 0.08, 5  # share of all processors that others may use in a trial; tries of one rate
_SERVER, _GENERATOR = 0, 1
_CLOSED_USERS = 20

Attempt = Callable[[float], Trial]


def highest(attempt: Attempt) -> tuple[Trial, Trial]:
    """The trial of the highest rate that was kept, and that of the highest rate that was sent at all.

    Where even the first rate was not kept, that is both.
    """
    ladder = [tried(attempt, _FIRST)]
    while ladder[-1].sent and ladder[-1].rate < _HIGHEST:
        ladder.append(tried(attempt, min(_HIGHEST, round(ladder[-1].rate * _GROWTH))))
    kept = max((one for one in ladder if one.kept), key=lambda one: one.rate, default=ladder[0])
    above = [one.rate for one in ladder if one.rate > kept.rate]
    if kept.kept and above:
        failed = min(above)
        for _ in range(_HALVINGS):
            found = tried(attempt, round((kept.rate + failed) / 2))
            ladder.append(found)
            kept, failed = (found, failed) if found.kept else (kept, found.rate)
    return kept, max((one for one in ladder if one.sent), key=lambda one: one.rate, default=ladder[0])


def tried(attempt: Attempt, rate: float) -> Trial:
    """A trial of a rate that shows what two trials of it showed: kept, or (on a quiet machine) not.

    A generator that has fallen behind stays behind, so near its limit some trials are kept and others not. One that was
    not kept while other processes used the machine is not counted, for as long as there are tries.
    """
    kept: list[Trial] = []
    other: list[Trial] = []
    for number in range(_TRIES):
        before = machine_state.usage(time.time())
        found = attempt(rate)
        others = machine_state.others(before, machine_state.usage(time.time()), os.cpu_count() or 1)
        found = _logged(msgspec.structs.replace(found, others=others))
        if found.kept:
            kept.append(found)
        elif not found.spoiled(_QUIET) or number >= _TRIES - 2:
            other.append(found)
        if max(len(kept), len(other)) == 2:
            break
    return (kept if len(kept) >= 2 else other or kept)[-1]


def _logged(found: Trial) -> Trial:
    delay = max(found.late_p99 or 0.0, found.p99 or 0.0) * 1000
    log(
        f"{found.generator}: {found.rate:.0f}/s planned, {found.achieved:.0f} sent, {delay:.1f} ms, "
        f"{found.not_sent} not sent, generator {found.generator_cpu:.0%}, server {found.server_cpu:.0%}: "
        f"{'kept' if found.kept else 'not kept'}; others {0.0 if found.others is None else found.others:.1%}"
    )
    return found


def generators(seconds: float, server: int | None) -> Iterator[tuple[str, Attempt | None]]:
    """The generators of this machine; None for one that is not installed."""
    yield "latdoctor lab load", lambda rate: trials.latdoctor(rate, seconds, server)
    python, program = locust_python(), k6_program()
    yield "Locust, exported plan", partial(_of, trials.locust, python, seconds, server) if python else None
    yield "k6, exported plan", partial(_of, trials.k6, program, seconds, server) if program else None


def _of(
    trial: Callable[[Path, float, float, int | None], Trial],
    program: Path,
    seconds: float,
    server: int | None,
    rate: float,
) -> Trial:
    return trial(program, rate, seconds, server)


def locust_python() -> Path | None:
    named = os.environ.get("LATDOCTOR_LOCUST", "")
    return Path(named).absolute() if named else None


def k6_program() -> Path | None:
    found = os.environ.get("LATDOCTOR_K6") or shutil.which("k6")
    return Path(found).absolute() if found else None


def pinned() -> int | None:
    """Puts this process and its children on their processor; the server's, or None on a machine with only one."""
    if not hasattr(os, "sched_setaffinity") or not os.sched_getaffinity(0) >= {_SERVER, _GENERATOR}:
        return None
    os.sched_setaffinity(0, {_GENERATOR})
    return _SERVER


def table(kept: list[Trial]) -> list[str]:
    rows = [
        (
            one.generator,
            f"{one.achieved:.0f}",
            "–" if one.late_p99 is None else f"{one.late_p99 * 1000:.1f} ms",
            "–" if one.p99 is None else f"{one.p99 * 1000:.1f} ms",
            f"{one.generator_cpu:.0%}",
            f"{one.server_cpu:.0%}",
            f"{one.bytes_in:.0f} + {one.bytes_out:.0f}",
        )
        for one in kept
    ]
    return markdown(
        ("generator, on one core", "requests/s", "late P99", "P99", "its core", "server's core", "bytes"), rows
    )


def sizing_table(found: list[Sizing]) -> list[str]:
    rows = [
        (
            one.generator,
            one.cores,
            one.machines,
            f"{one.in_flight:.0f}",
            f"{one.in_flight / one.machines:.0f}",
            f"{one.gbit_out:.2f} + {one.gbit_in:.2f}",
        )
        for one in found
    ]
    return markdown(("generator", "cores", "machines", "in flight", "of each machine", "Gbit/s out + in"), rows)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each trial")
    parser.add_argument("--only", choices=("latdoctor", "locust", "k6"), help="measure one generator")
    parser.add_argument("--rate", type=float, default=100_000.0, help="the rate to plan for")
    parser.add_argument("--latency", type=float, default=0.2, help="mean seconds of an answer of the planned service")
    options = parser.parse_args()
    state, server = machine_state.state(), pinned()
    kept: list[Trial] = []
    most: list[Trial] = []
    missing: list[str] = []
    for name, attempt in generators(options.seconds, server):
        if options.only and options.only not in name.lower():
            continue
        if attempt is None:
            missing.append(name)
            continue
        on_time, sent = highest(attempt)
        kept, most = [*kept, on_time], [*most, sent]
    plans = [sizing(one, options.rate, options.latency) for one in kept]
    closed = []
    if (python := locust_python()) and options.only in (None, "locust"):
        closed = [tried(lambda users: trials.locust_closed(python, int(users), options.seconds, server), _CLOSED_USERS)]
    found_all = {
        "machine": state,
        "pinned": server is not None,
        "kept": kept,
        "closed": closed,
        "missing": missing,
    }
    lines = ["on time:", *table(kept), "", "the most that was sent, however late:", *table(most + closed)]
    lines += ["", f"{options.rate:.0f} per second:", *sizing_table(plans)]
    lines += [f"\nnot installed here: {', '.join(missing)}"] if missing else []
    print_result({**found_all, "sizing": plans}, options.output, "\n".join(lines))


if __name__ == "__main__":
    main()
