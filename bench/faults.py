"""Runs every scenario and diagnoses it before, during and after its incident: one table.

Usage: python -m bench.faults [SCENARIO …] [--seed 1] [--confirm] [--results FILE] [--table FILE] [--keep FOLDER]
Each phase is diagnosed as by `latdoctor diagnose` (baseline: the phase before the incident). A fault moves its evidence
where findings that its cause expects fire during the incident and did not before; the evidence recovers where they no
longer fire in the phase after. A finding is specific where at most three causes expect it.
A line is logged for each scenario. Scenarios in FILE of --results (JSON lines) are not repeated, so the whole (about 40
minutes on an idle machine) can run in several steps. FOLDER of --keep has the evidence of each phase as bundles; the
table is computed from these with the current rules, so a changed rule needs no new run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue

import msgspec
from msgspec import Struct

from bench.harness import arguments, log, markdown, print_result
from latdoctor import __version__
from latdoctor.cli.collect_and_diagnose import collect_bundle_now, diagnosis_of, rule_set, seen
from latdoctor.cli.options import SourceOptions
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import LatdoctorError
from latdoctor.evidence import baseline as baselines
from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.lab.run_report import CauseEffect
from latdoctor.lab.runner import PhaseStart, RunObserver, confirm_causes, run_scenario
from latdoctor.lab.scenario import INCIDENT, Scenario, find, names

SETTLING = 1.0  # seconds at either end of a phase that are not observed
FEW = 3  # causes that may share a finding for it to count as their own
OBSERVED = ("before", INCIDENT, "after")


class Row(Struct, frozen=True):
    """One scenario. `p99` in seconds by phase; findings by phase, as far as an injected cause expects them."""

    scenario: str
    seed: int
    rate: float
    p99: dict[str, float | None]
    injected: tuple[CauseEffect, ...]
    fired: dict[str, tuple[str, ...]]
    named: dict[str, tuple[str, ...]]
    verdict: dict[str, str]
    recovered: bool | None
    spoiled: tuple[str, ...]

    @property
    def moved(self) -> tuple[str, ...]:
        """The findings that fired during the incident and not before."""
        return tuple(name for name in self.fired.get(INCIDENT, ()) if name not in self.fired.get("before", ()))

    @property
    def stayed(self) -> tuple[str, ...]:
        """Those that still fire afterwards."""
        return tuple(name for name in self.moved if name in self.fired.get("after", ()))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--confirm", action="store_true", help="repeat without each cause that can be left out")
    parser.add_argument("--results", type=Path, help="JSON lines; its scenarios are not repeated")
    parser.add_argument("--table", type=Path, help="the table, as Markdown")
    parser.add_argument("--keep", type=Path, help="a folder for the evidence of each phase, as bundles")
    chosen = parser.parse_args()
    rows = _known(chosen.results)
    scenarios = chosen.scenarios or list(names())
    for name in scenarios:
        if any(row.scenario == name and row.seed == chosen.seed for row in rows):
            continue
        try:
            row = _row(find(name), chosen.seed, chosen.confirm, chosen.keep)
        except LatdoctorError as error:
            log(f"{name}: {error}")
            continue
        rows.append(row)
        log(_line(row))
        if chosen.results:
            with chosen.results.open("ab") as kept:
                kept.write(msgspec.json.encode(row) + b"\n")
    shown = [_diagnosed_again(row, chosen.keep) for row in rows if row.scenario in scenarios]
    table = "\n".join(_table(shown)) + "\n"
    print_result(shown, chosen.output, table)
    if chosen.table:
        chosen.table.write_text(table)


def _known(kept: Path | None) -> list[Row]:
    if kept is None or not kept.exists():
        return []
    return [msgspec.json.decode(line, type=Row) for line in kept.read_bytes().splitlines()]


def _row(scenario: Scenario, seed: int, confirming: bool, keep: Path | None) -> Row:
    stages: Queue[PhaseStart | None] = Queue()
    diagnoses: dict[str, Diagnosis] = {}
    baseline: Baseline | None = None
    seconds = {phase.name: phase.seconds for phase in scenario.phases}
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run_scenario, scenario, seed, RunObserver(on_phase=stages.put))
        running.add_done_callback(lambda _: stages.put(None))
        while (stage := stages.get()) is not None:
            if stage.phase in OBSERVED:
                bundle = _observe(stage, seconds[stage.phase], baseline)
                baseline = baseline or baselines.record(seen(bundle)[0], "before", "")
                diagnoses[stage.phase] = diagnosis_of(bundle, rule_set(()))
                if keep is not None:
                    save(bundle, _kept(keep, scenario.id, seed, stage.phase), __version__)
        report = running.result()
    if confirming:
        report = confirm_causes(scenario, report)
    row = Row(
        scenario=scenario.id,
        seed=seed,
        rate=report.rate,
        p99={phase.name: phase.p99 for phase in report.phases},
        injected=report.truth,
        fired={},
        named={},
        verdict={},
        recovered=report.recovered,
        spoiled=tuple(problem.text for problem in report.problems),
    )
    return _with_diagnoses(row, diagnoses)


def _with_diagnoses(row: Row, diagnoses: Mapping[str, Diagnosis]) -> Row:
    expected = {name for effect in row.injected for name in rule_set(()).cause[effect.cause].expects}
    return msgspec.structs.replace(
        row,
        fired={
            phase: tuple(
                sorted(check.id for check in diagnosis.checks if check.status == "fired" and check.id in expected)
            )
            for phase, diagnosis in diagnoses.items()
        },
        named={
            phase: tuple(cause.id for cause in diagnosis.causes if cause.named)
            for phase, diagnosis in diagnoses.items()
        },
        verdict={phase: diagnosis.verdict.level for phase, diagnosis in diagnoses.items()},
    )


def _diagnosed_again(row: Row, kept: Path | None) -> Row:
    """`row` diagnosed again with the current rules, where its evidence was kept."""
    if kept is None:
        return row
    diagnoses = {}
    for phase in OBSERVED:
        with opened(_kept(kept, row.scenario, row.seed, phase)) as bundle:
            diagnoses[phase] = diagnosis_of(bundle, rule_set(()))
    return _with_diagnoses(row, diagnoses)


def _kept(folder: Path, scenario: str, seed: int, phase: str) -> Path:
    return folder / f"{scenario}-{seed}-{phase}.tar.zst"


def _observe(stage: PhaseStart, seconds: float, baseline: Baseline | None) -> Bundle:
    settling = min(SETTLING, seconds / 4)
    time.sleep(settling)
    options = SourceOptions(
        server=tuple(f"{page}/metrics" for page in stage.pages),
        pid=stage.pids[0],
        nvml=False,
        window=f"{max(1.0, seconds - 2 * settling)}s",
        slo="500ms",
    )
    return replace(collect_bundle_now(options), baseline=baseline)


def _own() -> frozenset[str]:
    shared = Counter(name for cause in rule_set(()).cause.values() for name in cause.expects)
    return frozenset(name for name, causes in shared.items() if causes <= FEW)


def _line(row: Row) -> str:
    tail = " → ".join(f"{name} {_ms(row.p99[name])}" for name in row.p99)
    injected = ", ".join(f"{one.cause} ({_moves(one)})" for one in row.injected) or "nothing"
    findings = f"moved {', '.join(row.moved) or 'nothing'}; stayed {', '.join(row.stayed) or 'nothing'}"
    named = ", ".join(row.named.get(INCIDENT, ())) or "nothing"
    spoiled = f" | SPOILED {'; '.join(row.spoiled)}" if row.spoiled else ""
    return f"{row.scenario}: {tail} | {injected} | {findings} | named {named}{spoiled}"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    own = _own()
    columns = (
        "scenario",
        "P99 before → incident → after",
        "injected (raises P99 alone)",
        "changed evidence",
        "recovered",
    )
    ordered = sorted(rows, key=lambda one: (one.scenario, one.seed))
    yield from markdown(columns, [_cells(row, own) for row in ordered])
    injected = [row for row in rows if row.injected]
    counts: Mapping[str, int] = {
        "change specific evidence": sum(any(name in own for name in row.moved) for row in injected),
        "recover": sum(bool(row.moved) and not row.stayed for row in injected),
        "raise P99 by each cause alone": sum(all(one.moves for one in row.injected) for row in injected),
        "are named first in the incident": sum(
            row.named.get(INCIDENT, ("",))[:1] in [(one.cause,) for one in row.injected] for row in injected
        ),
    }
    yield ""
    yield f"Of {len(injected)} runs with a fault: " + ", ".join(f"{n} {what}" for what, n in counts.items()) + "."


def _cells(row: Row, own: Set[str]) -> tuple[str, ...]:
    return (
        f"{row.scenario}{' (spoiled)' if row.spoiled else ''}",
        " → ".join(_ms(row.p99.get(name)) for name in OBSERVED),
        ", ".join(f"`{one.cause}` ({_moves(one)})" for one in row.injected) or "nothing",
        ", ".join(f"**{name}**" if name in own else name for name in row.moved) or "-",
        "no: " + ", ".join(row.stayed) if row.stayed else "yes" if row.moved else "-",
    )


def _moves(one: CauseEffect) -> str:
    return {True: "yes", False: "no", None: "not tested"}[one.moves]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


if __name__ == "__main__":
    main()
