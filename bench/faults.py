"""Every scenario played for real, and what was seen before, during and after its incident: one table.

Usage: python bench/faults.py [SCENARIO …] [--seed 1] [--output FILE]
For each phase the machine is looked at as `latdoctor diagnose` looks at it (baseline: the phase before the incident).
A fault moves its evidence where findings that its cause expects fire during the incident, and are clear again after.
Prints a line a scenario while it goes on, and JSON at the end. The whole takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from latdoctor.cli.answering import look_now, rule_set, seen, the_diagnosis
from latdoctor.cli.options import Given
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import LatdoctorError
from latdoctor.evidence import baseline as baselines
from latdoctor.evidence.baseline import Baseline
from latdoctor.lab.playing import PlayReport, Stage, play
from latdoctor.lab.scenario import Scenario, find, names

SETTLING = 2.5  # seconds at the edges of a phase that are not looked at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=list(names()))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    rows = []
    for name in chosen.scenarios:
        try:
            rows.append(_row(find(name), chosen.seed))
        except LatdoctorError as error:
            rows.append({"scenario": name, "error": str(error)})
        print(_line(rows[-1]), file=sys.stderr, flush=True)
    text = json.dumps(rows, indent=1)
    print(text)
    if chosen.output:
        chosen.output.write_text(text + "\n")


def _row(scenario: Scenario, seed: int) -> dict[str, object]:
    stages: Queue[Stage | None] = Queue()
    looks: dict[str, Diagnosis] = {}
    baseline: Baseline | None = None
    seconds = {phase.name: phase.seconds for phase in scenario.phases}
    with ThreadPoolExecutor(1) as beside:
        playing = beside.submit(play, scenario, seed, on_stage=stages.put)
        playing.add_done_callback(lambda _: stages.put(None))
        while (stage := stages.get()) is not None:
            looks[stage.phase], remembered = _look(stage, seconds[stage.phase], baseline)
            baseline = baseline or remembered
        report = playing.result()
    return _told(scenario, report, looks)


def _look(stage: Stage, seconds: float, baseline: Baseline | None) -> tuple[Diagnosis, Baseline]:
    import time
    from dataclasses import replace

    window = max(1.0, seconds - 2 * SETTLING)
    time.sleep(min(SETTLING, seconds / 4))
    given = Given(server=(f"{stage.url}/metrics",), pid=stage.pid, nvml=False, window=f"{window}s", slo="500ms")
    bundle = replace(look_now(given), baseline=baseline)
    evidence, _ = seen(bundle)
    return the_diagnosis(bundle, rule_set(())), baselines.record(evidence, "before", "")


def _told(scenario: Scenario, report: PlayReport, looks: Mapping[str, Diagnosis]) -> dict[str, object]:
    expected = {name for cause in scenario.truth for name in rule_set(()).cause[cause].expects}
    fired = {
        phase: sorted(check.id for check in look.checks if check.status == "fired" and check.id in expected)
        for phase, look in looks.items()
    }
    named = {phase: [cause.id for cause in look.causes if cause.named] for phase, look in looks.items()}
    return {
        "scenario": scenario.id,
        "truth": scenario.truth,
        "rate": round(report.rate, 1),
        "p99_ms": {phase.name: None if phase.p99 is None else round(phase.p99 * 1000) for phase in report.phases},
        "expected_findings_fired": fired,
        "named": named,
        "verdict": {phase: look.verdict.level for phase, look in looks.items()},
        "spoiled": report.spoiled,
    }


def _line(row: Mapping[str, object]) -> str:
    if "error" in row:
        return f"{row['scenario']}: {row['error']}"
    named = row["named"]
    incident = named.get("incident", []) if isinstance(named, dict) else []
    return f"{row['scenario']}: P99 {row['p99_ms']} truth {row['truth']} named {incident}"


if __name__ == "__main__":
    main()
