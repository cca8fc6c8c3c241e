"""Every scenario played for real, and what was seen before, during and after its incident: one table.

Usage: python bench/faults.py [SCENARIO …] [--seed 1] [--confirm] [--output FILE] [--table FILE] [--keep FOLDER]
For each phase the machine is looked at as `latdoctor diagnose` looks at it (baseline: the phase before the incident).
A fault moves its evidence where findings that its cause expects fire during the incident and did not before; taking it
away brings that back where they no longer fire in the phase after. A finding is the cause's own where at most
three causes expect it; the others are symptoms that many share.
A line for each scenario is printed while it goes on. What FILE of --output holds already (JSON lines) is not played
again, so the whole (about 40 minutes, on a machine that does nothing else) can be done in several goes. FOLDER of
--keep holds every look as a bundle; the table is made from these by the rules of today, so that a changed rule needs no
run of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue

import msgspec
from msgspec import Struct

from latdoctor import __version__
from latdoctor.cli.options import Given
from latdoctor.cli.session import look_now, rule_set, seen, the_diagnosis
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import LatdoctorError
from latdoctor.evidence import baseline as baselines
from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.lab.run_report import CauseEffect
from latdoctor.lab.runner import PhaseStart, RunObserver, confirm_causes, run_scenario
from latdoctor.lab.scenario import INCIDENT, Scenario, find, names

SETTLING = 1.0  # seconds at the beginning of a phase that are not looked at, and at its end
FEW = 3  # causes that may share a finding for it to count as their own
LOOKED = ("before", INCIDENT, "after")


class Row(Struct, frozen=True):
    """One scenario. `p99` in seconds by phase; findings by phase, as far as a cause of the truth expects them."""

    scenario: str
    seed: int
    rate: float
    p99: dict[str, float | None]
    truth: tuple[CauseEffect, ...]
    fired: dict[str, tuple[str, ...]]
    named: dict[str, tuple[str, ...]]
    verdict: dict[str, str]
    recovered: bool | None
    spoiled: tuple[str, ...]

    @property
    def moved(self) -> tuple[str, ...]:
        """What fired during the incident and did not before."""
        return tuple(name for name in self.fired.get(INCIDENT, ()) if name not in self.fired.get("before", ()))

    @property
    def stayed(self) -> tuple[str, ...]:
        """What still fires afterwards."""
        return tuple(name for name in self.moved if name in self.fired.get("after", ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--confirm", action="store_true", help="play again without each cause that can be left out")
    parser.add_argument("--output", type=Path, help="JSON lines; what it holds is not played again")
    parser.add_argument("--table", type=Path, help="the table, as Markdown")
    parser.add_argument("--keep", type=Path, help="a folder for what was seen in each phase, as bundles")
    chosen = parser.parse_args()
    rows = _known(chosen.output)
    wanted = chosen.scenarios or list(names())
    for name in wanted:
        if any(row.scenario == name and row.seed == chosen.seed for row in rows):
            continue
        try:
            row = _row(find(name), chosen.seed, chosen.confirm, chosen.keep)
        except LatdoctorError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        rows.append(row)
        print(_line(row), file=sys.stderr, flush=True)
        if chosen.output:
            with chosen.output.open("ab") as kept:
                kept.write(msgspec.json.encode(row) + b"\n")
    shown = [_judged_again(row, chosen.keep) for row in rows if row.scenario in wanted]
    table = "\n".join(_table(shown)) + "\n"
    sys.stdout.write(table)
    if chosen.table:
        chosen.table.write_text(table)


def _known(kept: Path | None) -> list[Row]:
    if kept is None or not kept.exists():
        return []
    return [msgspec.json.decode(line, type=Row) for line in kept.read_bytes().splitlines()]


def _row(scenario: Scenario, seed: int, confirming: bool, keep: Path | None) -> Row:
    stages: Queue[PhaseStart | None] = Queue()
    looks: dict[str, Diagnosis] = {}
    baseline: Baseline | None = None
    seconds = {phase.name: phase.seconds for phase in scenario.phases}
    with ThreadPoolExecutor(1) as beside:
        playing = beside.submit(run_scenario, scenario, seed, RunObserver(on_phase=stages.put))
        playing.add_done_callback(lambda _: stages.put(None))
        while (stage := stages.get()) is not None:
            if stage.phase in LOOKED:
                bundle = _look(stage, seconds[stage.phase], baseline)
                baseline = baseline or baselines.record(seen(bundle)[0], "before", "")
                looks[stage.phase] = the_diagnosis(bundle, rule_set(()))
                if keep is not None:
                    save(bundle, _kept(keep, scenario.id, seed, stage.phase), __version__)
        report = playing.result()
    if confirming:
        report = confirm_causes(scenario, report)
    row = Row(
        scenario=scenario.id,
        seed=seed,
        rate=report.rate,
        p99={phase.name: phase.p99 for phase in report.phases},
        truth=report.truth,
        fired={},
        named={},
        verdict={},
        recovered=report.recovered,
        spoiled=tuple(problem.text for problem in report.problems),
    )
    return _with_looks(row, looks)


def _with_looks(row: Row, looks: Mapping[str, Diagnosis]) -> Row:
    expected = {name for truth in row.truth for name in rule_set(()).cause[truth.cause].expects}
    return msgspec.structs.replace(
        row,
        fired={
            phase: tuple(sorted(check.id for check in look.checks if check.status == "fired" and check.id in expected))
            for phase, look in looks.items()
        },
        named={phase: tuple(cause.id for cause in look.causes if cause.named) for phase, look in looks.items()},
        verdict={phase: look.verdict.level for phase, look in looks.items()},
    )


def _judged_again(row: Row, kept: Path | None) -> Row:
    """`row` as the rules of today judge what was seen, where it was kept."""
    if kept is None:
        return row
    looks = {}
    for phase in LOOKED:
        with opened(_kept(kept, row.scenario, row.seed, phase)) as bundle:
            looks[phase] = the_diagnosis(bundle, rule_set(()))
    return _with_looks(row, looks)


def _kept(folder: Path, scenario: str, seed: int, phase: str) -> Path:
    return folder / f"{scenario}-{seed}-{phase}.tar.zst"


def _look(stage: PhaseStart, seconds: float, baseline: Baseline | None) -> Bundle:
    settling = min(SETTLING, seconds / 4)
    time.sleep(settling)
    given = Given(
        server=tuple(f"{page}/metrics" for page in stage.pages),
        pid=stage.pids[0],
        nvml=False,
        window=f"{max(1.0, seconds - 2 * settling)}s",
        slo="500ms",
    )
    return replace(look_now(given), baseline=baseline)


def _own() -> frozenset[str]:
    shared = Counter(name for cause in rule_set(()).cause.values() for name in cause.expects)
    return frozenset(name for name, causes in shared.items() if causes <= FEW)


def _line(row: Row) -> str:
    tail = " → ".join(f"{name} {_ms(row.p99[name])}" for name in row.p99)
    truth = ", ".join(f"{one.cause} ({_moves(one)})" for one in row.truth) or "nothing"
    seen_ = f"moved {', '.join(row.moved) or 'nothing'}; stayed {', '.join(row.stayed) or 'nothing'}"
    return (
        f"{row.scenario}: {tail} | {truth} | {seen_} | named {', '.join(row.named.get(INCIDENT, ())) or 'nothing'}"
        + (f" | SPOILED {'; '.join(row.spoiled)}" if row.spoiled else "")
    )


def _table(rows: Sequence[Row]) -> Iterator[str]:
    own = _own()
    yield "| scenario | P99 before → incident → after | put in (alone moves P99) | evidence that moved | back |"
    yield "|---|---|---|---|---|"
    for row in sorted(rows, key=lambda one: (one.scenario, one.seed)):
        tail = " → ".join(_ms(row.p99.get(name)) for name in LOOKED)
        truth = ", ".join(f"`{one.cause}` ({_moves(one)})" for one in row.truth) or "nothing"
        moved = ", ".join(f"**{name}**" if name in own else name for name in row.moved) or "-"
        back = "no: " + ", ".join(row.stayed) if row.stayed else "yes" if row.moved else "-"
        yield f"| {row.scenario}{' (spoiled)' if row.spoiled else ''} | {tail} | {truth} | {moved} | {back} |"
    told = [row for row in rows if row.truth]
    counts: Mapping[str, int] = {
        "move evidence of their own": sum(any(name in own for name in row.moved) for row in told),
        "see it come back": sum(bool(row.moved) and not row.stayed for row in told),
        "move P99 by each cause alone": sum(all(one.moves for one in row.truth) for row in told),
        "are named first in the incident": sum(
            row.named.get(INCIDENT, ("",))[:1] in [(one.cause,) for one in row.truth] for row in told
        ),
    }
    yield ""
    yield f"Of {len(told)} runs with something put in: " + ", ".join(f"{n} {what}" for what, n in counts.items()) + "."


def _moves(one: CauseEffect) -> str:
    return {True: "yes", False: "no", None: "not tried"}[one.moves]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


if __name__ == "__main__":
    main()
