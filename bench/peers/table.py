"""The comparison as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from bench.peers.cost import Cost
from bench.peers.search import Screening, Sustained
from bench.peers.servers import OURS
from bench.peers.trials import QUIET

SPINS = 0.5  # of a processor without requests: the cost of a request cannot be separated from that
TARGET = 1.2


class Machine(Struct, frozen=True):
    """The machine. `load`: runnable tasks over a minute; `steal`: the steal share of processor time; None: unknown."""

    model: str
    processors: int
    load: float | None
    steal: float | None


class Report(Struct, frozen=True):
    """All results. `slo` in seconds; `ratio`: ours to the best of the peers' own settings; `strict`:
    to the best of all, our grouping inside theirs included."""

    quick: bool
    slo: float
    versions: dict[str, str]
    machine: Machine
    screenings: tuple[Screening, ...]
    sustained: dict[str, Sustained]
    costs: tuple[Cost, ...]
    ratio: float
    strict: float


def ratios(sustained: Mapping[str, Sustained]) -> tuple[float, float]:
    """Ours to the best of their own settings, and to the best of all."""
    others = [each for each in sustained.values() if each.setting.server != OURS]
    own = max(each.rate for each in others if not each.setting.grouped)
    return sustained["ours"].rate / own, sustained["ours"].rate / max(each.rate for each in others)


def lines(report: Report) -> Iterable[str]:
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    load = "unknown" if machine.load is None else f"{machine.load:.1f}"
    steal = "unknown" if machine.steal is None else f"{machine.steal:.1%}"
    yield f"{versions}; {machine.processors} × {machine.model}, load {load}, steal {steal}"
    yield "Mix: 85 % of 20–60 tokens, 15 % of 300–500; Poisson arrivals, open loop; one torch thread everywhere."
    yield ""
    yield f"{'Sweep (short runs)':52} {'saturated/s':>12} {'good at/s':>10}"
    for each in report.screenings:
        yield f"{each.setting.server + ', ' + each.setting.label:52} {each.capacity:12.1f} {each.score:10.1f}"
    yield ""
    yield f"{f'Sustained at P99 ≤ {report.slo * 1000:.0f} ms':52} {'rate/s':>12} {'P99 ms':>10}  setting"
    for name, found in report.sustained.items():
        doubt = {True: "", False: " (not confirmed)", None: " (not repeated)"}[found.confirmed]
        yield f"{name:52} {found.rate:12.1f} {_milliseconds(found.p99):>10}  {found.setting.label}{doubt}"
    yield ""
    yield f"{'Own cost of a request (null model)':52} {'CPU ms':>12} {'P50 ms':>10}  idle, share of a core"
    for cost in report.costs:
        cpu = "spins" if cost.idle > SPINS else f"{cost.cpu_per_request * 1000:.2f}"
        name = f"{cost.setting.server}, {cost.setting.label}"
        yield f"{name:52} {cpu:>12} {cost.p50 * 1000:10.2f}  {cost.idle:.3f}"
    yield ""
    runs = [run for found in report.sustained.values() for run in found.trials]
    disturbed = sum(run.neighbours > QUIET for run in runs)
    if disturbed:
        yield f"{disturbed} of {len(runs)} runs were disturbed by other processes even when repeated: not reliable."
    yield (
        f"Ours to the best of their own settings: {report.ratio:.2f} (target {TARGET}: "
        f"{'met' if report.ratio >= TARGET else 'missed'}); with our grouping inside theirs: {report.strict:.2f}"
    )
    if report.quick:
        yield "Quick form: runs of less than 20 s, hardly repeated; for a first impression only."


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}" if math.isfinite(seconds) else "-"
