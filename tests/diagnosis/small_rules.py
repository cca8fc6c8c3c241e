"""A small world of rules, so that these tests stay true while the shipped rules change.

Findings are named by what they are; each looks at one signal of `model/a`: over 10 it fires with λ = 1000, at 1 it is
clear with λ = 1/1000, and without a reading it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.evaluate import Provider
from latdoctor.diagnosis.result import Check, Diagnosis, RankedCause
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.model import Coverage, Evidence, Origin, Reading, Window

SIGNAL = {
    "slow": "latency.p99",
    "backlog": "queue.depth",
    "failing": "error.ratio",
    "xid": "gpu.ecc.uncorrectable",
    "hot": "gpu.foreign_processes",
    "power": "gpu.processes",
    "launches": "trace.kernels",
    "copies": "launch.count",
    "syncs": "alloc.device_calls",
    "long": "input.length.mean",
    "lonely": "batch.size.mean",
    "shared": "requests.running",
    "off": "requests.limit",
}

FINDINGS = """
- {id: slow, message: "P99: {latency.p99}", when: latency.p99 > 10s, kind: symptom, required: true, severity: critical,
   usual: 50%, leak: 2%}
- {id: backlog, message: "{queue.depth} wait", when: queue.depth > 10, kind: symptom, usual: 50%, leak: 3%}
- {id: failing, message: requests fail, when: error.ratio > 10%, kind: error, severity: critical, usual: 10%, leak: 1%}
- {id: xid, message: an Xid, when: gpu.ecc.uncorrectable > 10, tier: infrastructure, severity: critical, leak: 0.1%}
- {id: hot, message: hot, when: gpu.foreign_processes > 10, tier: infrastructure, leak: 2%}
- {id: power, message: short of power, when: gpu.processes > 10, tier: infrastructure, leak: 2%}
- {id: launches, message: many launches, when: trace.kernels > 10, tier: framework, leak: 2%,
   not_applicable_when: server.backend = cpu}
- {id: copies, message: many copies, when: launch.count > 10, tier: framework, leak: 2%,
   not_applicable_when: server.backend = cpu}
- {id: long, message: long inputs, when: input.length.mean > 10, tier: application, leak: 2%}
- {id: lonely, message: runs alone, when: batch.size.mean > 10, tier: application, leak: 2%}
- {id: shared, message: both expect it, when: requests.running > 10, tier: application, leak: 2%}
- {id: "off", message: batching is off, when: requests.limit > 10, tier: application, leak: 2%}
"""

CAUSES = {
    "infra.heat": ("infrastructure", "critical", "{hot: 95%, power: 90%}", ""),
    "infra.dead": ("infrastructure", "critical", "{xid: 99%}", ""),
    "fw.bound": ("framework", "warning", "{launches: 95%, copies: 90%}", ""),
    "app.alone": ("application", "warning", "{long: 95%, lonely: 90%, shared: 80%}", "excluded_by: [off]"),
    "app.twin": ("application", "warning", "{shared: 80%, backlog: 90%}", ""),
}

CAUSE = """
id: {id}
title: {id} is the matter
tier: {tier}
severity: {severity}
prior: 3
expects: {expects}
explanation: why
confirm: how
remediation: what
status: test
{more}
"""


def written(folder: Path, findings: str = FINDINGS, causes: Mapping[str, str] | None = None) -> Path:
    """A folder of rules: `findings` as one file, `causes` as file name → text (the small world's where None)."""
    (folder / "findings").mkdir(parents=True, exist_ok=True)
    (folder / "causes").mkdir(exist_ok=True)
    (folder / "findings" / "small.yaml").write_text(findings, encoding="utf-8")
    if causes is None:
        causes = {name: cause(name, *row) for name, row in CAUSES.items()}
    for name, text in causes.items():
        (folder / "causes" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def cause(
    name: str, tier: str = "application", severity: str = "warning", expects: str = "{long: 90%}", more: str = ""
) -> str:
    return CAUSE.format(id=name, tier=tier, severity=severity, expects=expects, more=more)


def small_rules(folder: Path) -> RuleSet:
    return rule_loader.read([written(folder)])


ALL_CLEAR: Mapping[str, bool | None] = {name: False for name in SIGNAL if name != "syncs"}


def evidence(states: Mapping[str, bool | float | None], *more: Reading) -> Evidence:
    """Findings as they shall come out: True fires, False is clear, None is unknown; a number is the value itself."""
    readings = []
    for name, state in states.items():
        if state is None:
            continue
        value = (100.0 if state else 1.0) if isinstance(state, bool) else state
        readings.append(at(SIGNAL[name], value / 100 if name == "failing" and isinstance(state, bool) else value))
    return Evidence(readings=(*readings, *more))


def at(signal: str, value: float | str, subject: str = "model/a") -> Reading:
    return Reading(signal, subject, value, Origin("page.txt", signal))


def diagnosed(
    rules: RuleSet,
    seen: Evidence,
    *,
    providers: tuple[Provider, ...] = (),
    coverage: tuple[Coverage, ...] = (),
    context: Context | None = None,
    baseline: Mapping[tuple[str, str], float] | None = None,
) -> Diagnosis:
    case = Case(context or Context("small"), Window(), seen, baseline or {}, coverage, providers)
    return diagnose(case, rules, Stamp("1", ""))


def told(rules: RuleSet, clear: Mapping[str, bool | None] = ALL_CLEAR, **states: bool | float | None) -> Diagnosis:
    """The diagnosis where all findings are clear except for `states`."""
    return diagnosed(rules, evidence({**clear, **states}))


def check_of(diagnosis: Diagnosis, name: str) -> Check:
    return next(check for check in diagnosis.checks if check.id == name)


def cause_of(diagnosis: Diagnosis, name: str) -> RankedCause:
    return next(found for found in diagnosis.causes if found.id == name)
