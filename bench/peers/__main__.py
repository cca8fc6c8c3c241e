"""Runs the comparison; see README.md."""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path

import msgspec

from bench.harness import arguments, log, print_result
from bench.peers import search
from bench.peers.cost import cost
from bench.peers.environment import REQUIREMENTS, ready
from bench.peers.servers import BENTOML, LITSERVE, OURS
from bench.peers.table import Machine, Report, lines, ratios
from latdoctor.load import machine_state

QUICK_SECONDS, FULL_SECONDS = 280.0, 1900.0  # measured, for the first estimates of the time left


class Progress:
    """Logs lines with the time elapsed and an estimate of the time left."""

    def __init__(self, steps: int, seconds: float) -> None:
        self._began = time.monotonic()
        self._steps, self._seconds, self._done = steps, seconds, 0

    def __call__(self, text: str) -> None:
        self._done += 1
        gone = time.monotonic() - self._began
        share = min(1.0, self._done / self._steps)
        whole = (1 - share) * self._seconds + share * gone / share  # the estimate at first, then the measured pace
        left = max(0.0, (1 - share) * whole)
        log(f"[{gone / 60:4.1f} min, about {left / 60:.1f} left] {text}")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="a first impression in five minutes")
    parser.add_argument("--slo-ms", type=float, default=500.0, help="the P99 limit")
    chosen = parser.parse_args()
    programs = ready()
    effort = search.quick() if chosen.quick else search.full()
    say = Progress(search.expected_steps(effort), QUICK_SECONDS if chosen.quick else FULL_SECONDS)
    report = _measured(effort, programs, chosen.slo_ms / 1000, say, quick=chosen.quick)
    print_result(report, chosen.output, "\n".join(lines(report)))


def _measured(effort: search.Effort, programs: Path, slo: float, say: Progress, *, quick: bool) -> Report:
    since = machine_state.usage(time.time())
    screenings = search.screen(effort, programs, slo, say)
    chosen = search.finalists(screenings)
    sustained = search.search(chosen, effort, programs, slo, say)
    costs = []
    for setting in dict.fromkeys(each.setting for each in sustained.values() if not each.setting.grouped):
        null = msgspec.structs.replace(setting, null=True)
        costs.append(cost(null, programs, effort.null))
        say(f"{setting.server:10} {setting.label:40} own cost {costs[-1].cpu_per_request * 1000:.2f} ms")
    own, strict = ratios(sustained)
    return Report(
        quick=quick,
        slo=slo,
        versions=_versions(),
        machine=_machine(since),
        screenings=screenings,
        sustained=sustained,
        costs=tuple(costs),
        ratio=own,
        strict=strict,
    )


def _machine(since: machine_state.Usage | None) -> Machine:
    stolen = machine_state.steal(since, machine_state.usage(time.time()))
    return Machine(machine_state.model() or "unknown", os.cpu_count() or 1, machine_state.load_average(), stolen)


def _versions() -> dict[str, str]:
    pinned = dict(line.split("==") for line in REQUIREMENTS.read_text().split() if "==" in line)
    return {
        OURS: version("latdoctor"),
        LITSERVE: pinned["litserve"],
        BENTOML: pinned["bentoml"],
        "torch": version("torch"),
    }


if __name__ == "__main__":
    main()
