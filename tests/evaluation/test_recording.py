"""Sampling during a run, spoiled runs, and one run on a real server."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from latdoctor.collectors.base import Collector, CollectRequest, CollectResult, SourceReader
from latdoctor.errors import UsageError
from latdoctor.evaluation import recording, run_matrix
from latdoctor.evaluation.baselines.inputs import signals
from latdoctor.evaluation.ground_truth import RunKind, split
from latdoctor.evaluation.recording import RecordingAttempt, SourceSampler, sampling
from latdoctor.evaluation.run_spec import LONG, RunSpec, injected_causes, scenario_of
from latdoctor.evaluation.scoring import PAIR_RUNS
from latdoctor.evaluation.store import RecordingStore, recordings
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Gap
from latdoctor.lab.run_report import CauseEffect, PhaseReport, RunReport
from latdoctor.lab.scenario import LoadSettings, Scenario, ScenarioPhase, find
from latdoctor.load import machine_state
from latdoctor.load.summary import LoadProblem, LoadProblemCode
from tests.evaluation.samples import attempt


class FixedClock:
    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        raise AssertionError("one moment takes no time")


def collector(name: str) -> Collector:
    def collect(request: CollectRequest, clock: FixedClock) -> CollectResult:
        assert request.window == 0
        sources = request.servers if name == "prometheus" else ("/proc",)
        pages = [
            Artifact(f"{name}/{n}-h-00.prom", name, f"{n}-h" if name == "prometheus" else name, source, clock.at, b"1")
            for n, source in enumerate(sources, 1)
        ]
        return CollectResult(tuple(pages), (Gap(name, "one"),))

    return Collector(
        name=name,
        title=name,
        signals=frozenset,
        is_requested=lambda request: bool(request.servers),
        reader=lambda: SourceReader(
            collect,  # type: ignore[arg-type]
            lambda artifacts: pytest.fail("nothing is parsed while it is recorded"),
            lambda: (),
        ),
        option="",
        cost="",
    )


def test_snapshots_have_unique_names_and_a_server_keeps_its_group() -> None:
    clock = FixedClock()
    watch = SourceSampler(clock)
    watch.snapshot(collector("prometheus"))
    assert watch.artifacts == []
    watch.aim(("http://a:1", "http://b:1/"), 7)
    watch.snapshot(collector("prometheus"))
    watch.snapshot(collector("host"))
    clock.at = 101.0
    watch.aim(("http://b:1",), 8)
    watch.snapshot(collector("prometheus"))
    watch.snapshot(collector("host"))
    assert [(one.name, one.group, one.source) for one in watch.artifacts] == [
        ("prometheus/1-h-00000.prom", "1-h", "http://a:1/metrics"),
        ("prometheus/2-h-00001.prom", "2-h", "http://b:1/metrics"),
        ("host/00002.json", "host-7", "/proc"),
        ("prometheus/2-h-00003.prom", "2-h", "http://b:1/metrics"),
        ("host/00004.json", "host-8", "/proc"),
    ]
    assert [one.at for one in watch.gaps] == [100.0, 100.0, 101.0, 101.0]


PHASE = PhaseReport(
    name="incident", requests=100, answered=100, refused=0, failed=0, timed_out=0, good=100, p50=0.1, p95=0.2, p99=0.3,
    goodput=10.0, forward_calls=10.0, calls_per_answer=1.0, padding_waste=0.0, batch_size_mean=1.0,
    allocations_per_call=None, page_faults_per_call=None, queue_depth=0.0,
)  # fmt: skip


def late(phase: str = "") -> LoadProblem:
    return LoadProblem(LoadProblemCode.GENERATOR_LATE, "late", phase)


def report(*ground_truth: CauseEffect, problems: tuple[LoadProblem, ...] = (), good: int = 100) -> RunReport:
    phase = msgspec.structs.replace(PHASE, good=good)
    draining = msgspec.structs.replace(PHASE, name="draining")
    return RunReport("x", 1, 10.0, 0.0, 0.5, "incident", (phase, draining), problems, None, ground_truth)


@pytest.mark.parametrize(
    ("played", "others", "reported"),
    [
        (report(), 0.02, []),
        (report(), None, []),
        (report(CauseEffect("a", 0.1, True)), 0.0, []),
        (report(CauseEffect("a")), 0.0, []),
        (report(CauseEffect("a", 0.1, True), CauseEffect("b", 0.3, False)), 0.0, []),
        (report(CauseEffect("a", 0.3, False)), 0.0, ["had an effect"]),
        (report(problems=(late(),)), 0.0, ["late"]),
        (report(problems=(late("draining"), late("incident"))), 0.0, ["incident: late"]),
        (report(), 0.4, ["40%"]),
        (report(good=50), 0.0, ["only 50 of 100"]),
        (report(CauseEffect("a", 0.1, True), good=50), 0.0, []),
    ],
)
def test_run_is_spoiled_before_diagnosis(played: RunReport, others: float | None, reported: list[str]) -> None:
    reasons = list(recording.spoiled(played, others))
    assert len(reasons) == len(reported)
    assert all(part in reason for part, reason in zip(reported, reasons, strict=True))


def proc(root: Path, busy: int, processes: Mapping[int, tuple[int, int]]) -> Path:
    """A /proc with so many busy ticks, and for each process its parent and its own ticks."""
    root.mkdir(exist_ok=True)
    (root / "stat").write_text(f"cpu  {busy} 0 0 500 7 0 0 0 99 0\ncpu0 1 1\n")
    for pid, (parent, ticks) in processes.items():
        (root / str(pid)).mkdir(exist_ok=True)
        (root / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 1 1 0 -1 0 1 0 2 0 {ticks} 0 0 0 20 0\n")
    return root


def test_what_others_take_is_all_that_neither_we_nor_our_children_take(tmp_path: Path) -> None:
    import os

    tick = os.sysconf("SC_CLK_TCK")
    first = machine_state.usage(0.0, proc(tmp_path, 0, {1: (0, 0), 10: (1, 0), 11: (10, 0), 12: (11, 0)}), pid=10)
    later = {1: (0, 3 * tick), 10: (1, tick), 11: (10, 2 * tick), 12: (11, 4 * tick)}
    last = machine_state.usage(5.0, proc(tmp_path, 10 * tick, later), pid=10)
    assert machine_state.others(first, last, processors=2) == pytest.approx(0.3)
    assert machine_state.others(first, first, 2) is None
    assert machine_state.usage(0.0, tmp_path / "nowhere") is None


def test_what_others_take_in_the_incident_alone_is_not_watered_down_by_what_was_before() -> None:
    def used(at: float, busy: float, own: float) -> machine_state.Usage:
        return machine_state.Usage(at, busy, own, whole=2 * at, stolen=0)

    with sampling() as watch:
        stages = recording._PhaseTimes(watch)
    stages.usages += [("before", used(0, 0, 0)), ("incident", used(10, 10, 10)), ("", used(20, 26, 20))]
    assert stages.others(find("no-timer"), processors=2) == pytest.approx(0.3)
    stages.usages[1:] = [("incident", None), ("", used(20, 26, 20))]
    assert stages.others(find("no-timer"), processors=2) is None


def test_what_the_host_gave_to_others_and_what_the_processors_are(tmp_path: Path) -> None:
    def read(stat: str) -> machine_state.Usage | None:
        (tmp_path / "stat").write_text(stat)
        return machine_state.usage(0.0, tmp_path, pid=1)

    first, last = read("cpu  10 0 0 80 10 0 0 0 7 0\n"), read("cpu  20 0 0 120 15 0 0 45 9 0\n")
    assert machine_state.steal(first, last) == pytest.approx(0.45), "guests are counted once"
    assert machine_state.steal(first, first) is None
    assert machine_state.steal(None, last) is None
    assert machine_state.model(tmp_path) == ""
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Some CPU: 2 GHz\nmodel name : other\n")
    assert machine_state.model(tmp_path) == "Some CPU: 2 GHz"


def test_unknown_machine_properties_are_empty(tmp_path: Path) -> None:
    reported = machine_state.state(tmp_path)
    assert (reported["model"], reported["load_average"], reported["psi_cpu"]) == ("", None, "")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text("some avg10=1.50 avg60=0.00 avg300=0.00 total=1\n")
    (tmp_path / "loadavg").write_text("0.52 2.01 1.83 1/79 3265\n")
    reported = machine_state.state(tmp_path)
    assert (reported["load_average"], reported["psi_cpu"]) == (0.52, "avg10=1.50")


@pytest.mark.parametrize("name", tuple(run_matrix.Matrix))
def test_every_run_of_a_matrix_is_valid_and_has_a_unique_name(name: str) -> None:
    cells = run_matrix.planned_runs(name)
    assert len({cell.run for cell in cells}) == len(cells)
    for cell in cells:
        if cell.kind == RunKind.LIVE:
            scenario = scenario_of(cell)
            assert scenario.incident.name == "incident"
            assert not (cell.calm and scenario.truth)
            assert len(scenario.causes) == 2 or not cell.beside


def test_the_protocol_of_rca_llm_lasts_as_published() -> None:
    for cell in run_matrix.planned_runs("rca-llm"):
        scenario = scenario_of(cell)
        assert scenario.replicas == 4
        assert [(phase.name, phase.seconds) for phase in scenario.phases[:2]] == [("before", 285), ("incident", 60)]


def test_the_matrices_grow_and_the_hour_takes_about_one() -> None:
    quick, hour, full = (set(run_matrix.planned_runs(name)) for name in ("quick", "hour", "full"))
    assert hour <= full
    assert len(quick) < len(hour) < len(full)
    assert sum(run.seconds for run in quick) < 6 * 60
    assert 40 * 60 < sum(run.seconds for run in hour) < 60 * 60


def test_every_kind_of_run_is_there_for_every_seed() -> None:
    played = [cell for cell in run_matrix.planned_runs("full") if cell.kind == RunKind.LIVE]
    calm = Counter(cell.seed for cell in played if cell.calm)
    together = Counter(cell.seed for cell in played if cell.beside)
    long = Counter(cell.seed for cell in played if cell.long)
    assert set(calm) == set(together) == {1, 2, 3, 4}
    assert len(set(calm.values())) == 1
    assert min(calm.values()) > 20
    assert set(together.values()) == {len(run_matrix.COMBINED)}
    assert long == {1: len(run_matrix.STEADY), 2: len(run_matrix.STEADY)}
    plain = [cell for cell in played if not (cell.calm or cell.beside or cell.long)]
    ill = {cell.scenario for cell in plain if injected_causes(cell)}
    for seed in (1, 2, 3, 4):
        for severity in run_matrix.SEVERITIES:
            there = {cell.scenario for cell in plain if (cell.seed, cell.severity) == (seed, severity)}
            assert ill <= there, (seed, severity)
    well = Counter(cell.scenario for cell in plain if not injected_causes(cell))
    assert set(well) == {"busy", "no-fault"}
    assert sum(well.values()) >= 60


def test_no_other_matrix_has_a_fresh_seed() -> None:
    seen = {(cell.kind, cell.seed) for name in ("quick", "hour", "full") for cell in run_matrix.planned_runs(name)}
    fresh = run_matrix.planned_runs("fresh", run_matrix.FRESH_SEED)
    assert not seen & {(cell.kind, cell.seed) for cell in fresh}
    assert {cell.scenario for cell in run_matrix.planned_runs("full")} == {cell.scenario for cell in fresh}
    assert {cell.severity for cell in fresh if cell.kind == RunKind.LIVE} == set(run_matrix.SEVERITIES)
    other = run_matrix.planned_runs("fresh", run_matrix.FRESH_SEED + len(run_matrix.SEVERITIES))
    assert not set(fresh) & set(other), "a seed further on is fresh again"
    with pytest.raises(UsageError, match="may have been used"):
        run_matrix.planned_runs("fresh", run_matrix.FRESH_SEED - 1)


def test_confusable_causes_have_enough_runs() -> None:
    cells = run_matrix.planned_runs("full")
    runs = Counter(cause for cell in cells for cause in injected_causes(cell))
    for group in split().pairs:
        for cause in group:
            assert runs[cause] >= PAIR_RUNS, cause
    apart = Counter(pair for cell in cells for pair in run_matrix.separating_pairs(cell))
    assert min(apart.values()) >= PAIR_RUNS
    both_ways = {way for one, other in split().pairs for way in ((one, other), (other, one))}
    assert both_ways == set(apart)


def test_a_beginning_of_the_full_matrix_is_balanced() -> None:
    cells = run_matrix.planned_runs("full")
    hour = run_matrix.planned_runs("hour")
    assert cells[: len(hour)] == hour
    fresh = [cell for cell in cells[len(hour) :] if cell.kind == RunKind.LIVE]
    ill = {cell.scenario for cell in hour if cell.kind == RunKind.LIVE and injected_causes(cell)}
    second, then = fresh[: len(ill)], fresh[len(ill) :]
    assert {(cell.scenario, cell.severity, cell.seed) for cell in second} == {(name, "usual", 2) for name in ill}
    kinds = [
        "well" if not injected_causes(cell) else "together" if cell.beside else cell.severity
        for cell in then
        if not cell.long
    ]
    assert list(dict.fromkeys(kinds)) == ["well", "together", "mild", "severe", "usual"]


def test_run_with_both_causes_of_a_pair_separates_nothing() -> None:
    promo = run_matrix.separating_pairs(RunSpec(RunKind.LIVE, "promo-rush", "usual", 1))
    assert ("app.batching.long-alone", "app.batching.count-only") in promo
    assert ("app.batching.long-alone", "framework.alloc.storm") not in promo
    assert run_matrix.separating_pairs(RunSpec(RunKind.LIVE, "loop-block", "usual", 1, calm=True)) == frozenset()
    assert injected_causes(RunSpec(RunKind.SYNTHETIC, "healthy", "0.7", 1)) == ()


def test_faults_together_are_left_out_one_at_a_time() -> None:
    both = scenario_of(RunSpec(RunKind.LIVE, "dependency-slow", "usual", 1, beside="network-jitter"))
    assert both.clients_proxy
    assert both.dependency is not None
    assert len(both.incident.faults) == 2
    left = [ground_truth.without["incident"].faults for ground_truth in both.causes]
    assert left == [both.incident.faults[1:], both.incident.faults[:1]]


def test_a_long_run_keeps_its_faults_for_as_long() -> None:
    long = scenario_of(RunSpec(RunKind.LIVE, "network-jitter", "usual", 1, long=True))
    assert long.incident.seconds == LONG
    assert long.incident.faults[0].toxic.lifetime > LONG  # type: ignore[union-attr]


def test_synthetic_run_is_recorded_with_separate_ground_truth(tmp_path: Path) -> None:
    cell = RunSpec(RunKind.SYNTHETIC, "infra.gpu.thermal-throttle", "0.7", 1)
    made = recording.RunRecorder().attempt(cell, print)
    assert made.ground_truth.causes == ("infra.gpu.thermal-throttle",)
    assert made.context.incident is None
    RecordingStore(tmp_path).keep(made)
    (kept,) = recordings(tmp_path)
    assert all(len(before) == 0 for before, _ in signals(kept).values())


def test_a_rate_is_measured_again_after_an_hour_for_another_severity_and_where_a_run_was_spoiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    def played(cell: RunSpec, _say: object, rate: float) -> RecordingAttempt:
        given.append(rate)
        return dataclasses.replace(attempt(cell.run), rate=rate or 50.0 + len(given), spoiled=spoiled_next)

    monkeypatch.setattr(recording, "_record_live", played)
    clock = FixedClock()
    recorder = recording.RunRecorder(clock.now)

    def play(severity: str, seed: int) -> None:
        recorder.attempt(RunSpec(RunKind.LIVE, "burst", severity, seed), print)

    spoiled_next: tuple[str, ...] = ()
    play("usual", 1)
    play("usual", 2)
    play("mild", 2)
    assert given == [0.0, 51.0, 0.0]
    clock.at += recording.RATE_VALID + 1
    play("usual", 3)
    play("usual", 4)
    assert given[3:] == [0.0, 54.0]
    spoiled_next = ("late",)
    play("usual", 5)
    play("usual", 5)
    assert given[5:] == [54.0, 0.0]


def test_run_on_a_real_server_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few seconds of nothing wrong: pages and processes are read throughout, and the look is cut out of them."""
    scenario = Scenario(
        id="short",
        title="short",
        phases=(ScenarioPhase("before", 3.0), ScenarioPhase("incident", 3.0)),
        server={"model": {"layers": "1", "width": "64"}},
        load=LoadSettings(rate=20.0, slo=5.0),
    )
    monkeypatch.setattr(recording, "scenario_of", lambda cell: scenario)
    made = recording.RunRecorder().attempt(RunSpec(RunKind.LIVE, "no-fault", "usual", 1), print)
    assert made.ground_truth.causes == ()
    others = ("other processes used", "the machine was too busy")  # they may run on this machine beside the test
    assert [reason for reason in made.spoiled if not any(one in reason for one in others)] == []
    assert made.context.before is not None
    assert made.context.incident is not None
    assert made.context.incident.start - made.context.before.start >= 3.0 - 0.1
    RecordingStore(tmp_path).keep(made)
    (kept,) = recordings(tmp_path)
    rates = {key: seen for key, seen in signals(kept).items() if key.startswith("arrival.rate replica/")}
    assert rates
    for before, incident in rates.values():
        assert len(before) >= 1
        assert len(incident) >= 1


@pytest.mark.parametrize(("share", "busy"), [(0.1, False), (0.9, True)])
def test_busy_machine_is_recognised_by_what_others_do_now(tmp_path: Path, share: float, busy: bool) -> None:
    """Not by the load average, which remembers what the demo's own set-up did."""
    processors, ticks = os.cpu_count() or 1, os.sysconf("SC_CLK_TCK")

    def use(seconds: float) -> None:
        used = round(share * seconds * processors * ticks)
        (tmp_path / "stat").write_text(f"cpu  {1000 + used} 0 0 5000 0 0 0 0 0 0\n")

    (tmp_path / "loadavg").write_text("900.00 0.00 0.00 1/79 3265\n")
    use(0.0)
    reason = machine_state.busy(tmp_path, use)
    assert reason == ("other processes used 90% of the processors (limit 40%)" if busy else "")
