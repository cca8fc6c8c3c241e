"""The benchmark over synthetic recordings: diagnosis, scores, calibration, promotion, and tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.errors import BundleError, OperationError
from latdoctor.evaluation import benchmark, recording, report
from latdoctor.evaluation.calibration import GRID, calibrate
from latdoctor.evaluation.diagnose_runs import DiagnosedVariant
from latdoctor.evaluation.ground_truth import IncidentContext, RunKind, TimeRange, split
from latdoctor.evaluation.method_comparison import (
    CauseRanker,
    MethodRanking,
    RankingMethod,
    compare_methods,
    method_score,
)
from latdoctor.evaluation.run_spec import RunSpec
from latdoctor.evaluation.scoring import OURSELVES, MethodInput, score
from latdoctor.evaluation.store import (
    CONTEXTS,
    GROUND_TRUTHS,
    SPOILED,
    TRIES,
    RecordedRun,
    RecordingStore,
    anonymized,
    recordings,
)
from latdoctor.evidence.bundle_files import opened
from tests.cli.running import run
from tests.evaluation.samples import attempt, ground_truth

KINDS = ("infra.gpu.thermal-throttle", "infra.gpu.xid-fault", "infra.driver.cuda-errors", "healthy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three kinds of made telemetry with something wrong in it, and one without."""
    made = tmp_path_factory.mktemp("recordings")
    for kind in KINDS:
        RecordingStore(made).keep(recording.RunRecorder().attempt(RunSpec(RunKind.SYNTHETIC, kind, "0.7", 1), print))
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> tuple[DiagnosedVariant, ...]:
    return benchmark.diagnose_all(whole(folder), print)


def whole(folder: Path) -> benchmark.Benchmark:
    return benchmark.Benchmark(tuple(recordings(folder)), shipped(), split())


def test_synthetic_incidents_are_named_and_tried_as_unknown(
    found: Sequence[DiagnosedVariant],
) -> None:
    plain = {one.answered.run: one.answered for one in found if one.answered.view == "plain"}
    assert len(plain) == len(KINDS)
    for kind in KINDS[:3]:
        assert plain[f"made-{kind}-0.7-1"].named == (kind,)
        assert plain[f"made-{kind}-0.7-1"].unknown is not None
    assert plain["made-healthy-0.7-1"].named == ()
    assert plain["made-healthy-0.7-1"].unknown is None
    views = {one.answered.view for one in found if "thermal" in one.answered.run}
    assert {"no NVML", "no log"} <= views


def test_without_the_only_source_that_shows_it_nothing_is_named(found: Sequence[DiagnosedVariant]) -> None:
    (blind,) = [
        one.answered
        for one in found
        if one.answered.run.startswith("made-infra.driver.cuda-errors") and one.answered.view == "no log"
    ]
    assert blind.named == ()


def test_the_scores_hold_what_was_spoiled_and_ourselves_among_the_peers(
    folder: Path, found: Sequence[DiagnosedVariant]
) -> None:
    store = RecordingStore(folder)
    store.keep_spoiled("made-x", ("late",))
    scores = benchmark.scores(
        whole(folder),
        found,
        benchmark.RunSelection("--matrix x", len(store.runs()) + 1, *store.losses([*store.runs(), "made-x"])),
        print,
    )
    assert scores.ac1.value == 1
    assert scores.runs.synthetic == len(KINDS)
    assert scores.runs.spoiled_tries == 1
    assert [peer.name for peer in scores.methods] == ["latdoctor"]
    assert scores.methods[0].ac1.of == 0, "made telemetry has no before, so no peer is judged on it"
    tables = {table.name: table.csv() for table in report.tables(scores)}
    assert "AC@1,100.0% [43.9%–100.0%]" in tables["summary"]
    assert "1 of 5 runs of --matrix x are missing." in tables["summary"]
    assert "None" not in "".join(tables.values()) + report.summary(scores)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"run": "another"}, "belongs to 'another'"),
        ({"causes": ("infra.gpu.moon",)}, "the unknown cause 'infra.gpu.moon'"),
        ({"kind": "dreamt"}, "Invalid enum value 'dreamt'"),
        ({"kind": RunKind.LIVE}, "has no incident window"),
    ],
)
def test_a_truth_that_contradicts_its_run_or_the_catalogue_is_not_scored(
    folder: Path, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    copied = RecordingStore(Path(shutil.copytree(folder, tmp_path / "copied")))
    run = copied.runs()[0]
    copied.write(GROUND_TRUTHS, run, structs.replace(copied.ground_truth(run), **changed))
    with pytest.raises(BundleError, match=message):
        list(recordings(copied.folder))


def test_context_file_with_ground_truth_is_rejected(folder: Path, tmp_path: Path) -> None:
    copied = RecordingStore(Path(shutil.copytree(folder, tmp_path / "copied")))
    run = copied.runs()[0]
    shutil.copy(copied.json(GROUND_TRUTHS, run), copied.json(CONTEXTS, run))
    with pytest.raises(BundleError, match="damaged: Object contains unknown field"):
        list(recordings(copied.folder))


def test_temperature_is_fitted_on_tuned_families_and_judged_on_others(
    folder: Path, found: Sequence[DiagnosedVariant]
) -> None:
    truths = {one.run: one.ground_truth for one in recordings(folder)}
    published = split()
    with_drivers_held_out = structs.replace(
        published,
        tuned=tuple(one for one in published.tuned if one != "infra.driver"),
        held_out=(*published.held_out, "infra.driver"),
    )
    fit = calibrate(truths, found, shipped(), with_drivers_held_out)
    assert fit.temperature in GRID
    assert fit.judged_on == 2, "the driver's errors, and the healthy one"
    assert fit.fitted_on == sum("infra.gpu" in one.answered.run for one in found)
    assert len(fit.curve) == len(GRID)
    scores = benchmark.scores(whole(folder), found, benchmark.RunSelection("--matrix x", 3, 0, 0), print)
    assert "temperature" in {table.name for table in report.tables(scores, fit)}


def test_answers_are_the_same_by_several_processes(folder: Path, found: Sequence[DiagnosedVariant]) -> None:
    more = whole(folder)
    twice = benchmark.Benchmark(more.recorded * 2, more.rules, more.split)
    again = benchmark.diagnose_all(twice, print, processes=2)
    assert [(one.answered.view, one.answered.ranked) for one in again] == [
        (one.answered.view, one.answered.ranked) for one in (*found, *found)
    ]


def played(name: str, *causes: str) -> RecordedRun:
    return RecordedRun(Path(name), IncidentContext(TimeRange(0, 1), TimeRange(2, 3)), ground_truth(name, *causes))


def test_methods_are_fitted_on_tuned_families_and_a_crash_is_a_failure() -> None:
    runs = (played("a", "app.load.burst"), played("b", "infra.io.stall"), played("well"))
    learnt: list[str] = []

    def fit(training: Sequence[RecordedRun]) -> CauseRanker:
        learnt.extend(one.run for one in training)

        def scorer(recorded: RecordedRun) -> Sequence[str]:
            if recorded.run == "b":
                raise OperationError("ZeroDivisionError: no variance")
            return ("app.load.burst",)

        return scorer

    def breaks(training: Sequence[RecordedRun]) -> CauseRanker:
        raise OperationError("too few")

    said: list[str] = []
    entered = (RankingMethod("sound", MethodInput.SCRAPED, fit), RankingMethod("broken", MethodInput.SIGNALS, breaks))
    sound, broken = compare_methods(entered, runs, split(), said.append)
    assert learnt == ["a"]
    assert (sound.ac1.right, sound.ac1.of, sound.crashed) == (1, 2, 1)
    assert (sound.held_out.right, sound.held_out.of) == (0, 1), "nobody learnt of infra.io"
    assert (broken.ac1.right, broken.ac1.of, broken.crashed) == (0, 2, 2)
    assert any("no variance" in line for line in said)
    assert "broken cannot be fitted: too few" in said
    ours = method_score(
        OURSELVES,
        MethodInput.BUNDLE,
        [MethodRanking(one.causes, one.causes, 0.1) for one in runs[:2]],
        split(),
    )
    beside = structs.replace(score({}, (), split()), methods=(ours, sound, broken))
    text = report.summary(beside)
    assert "AC@1 lead over the best method on scraped input: 0.50" in text
    assert "AC@1 lead over the best method on signals input: 1.00" in text


def test_a_mistake_of_our_own_is_no_failure_of_a_peer() -> None:
    def mistaken(training: Sequence[RecordedRun]) -> CauseRanker:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        compare_methods((RankingMethod("x", "y", mistaken),), (played("a", "app.load.burst"),), split(), print)


def test_no_method_is_compared_where_only_one_cause_occurs() -> None:
    rivals = (RankingMethod("x", "y", print),)  # type: ignore[arg-type]
    burst, other = (played(name, cause) for name, cause in (("a", "app.load.burst"), ("b", "infra.io.stall")))
    assert benchmark.applicable_methods(benchmark.Benchmark((burst, burst), shipped(), split(), rivals)) == ()
    assert benchmark.applicable_methods(benchmark.Benchmark((burst, other), shipped(), split(), rivals)) == rivals


def test_the_command_scores_what_is_recorded_and_records_what_is_missing(folder: Path, tmp_path: Path) -> None:
    arguments = ["lab", "bench", "diagnosis", "--no-run", "--matrix", "hour", "--folder", str(folder)]
    shown = run([*arguments, "--tables", str(tmp_path / "tables"), "-o", "json", "--calibrate"])
    assert shown.code == 0, shown.err
    scores = json.loads(shown.out)
    for key in ("ac1", "ac3", "both_of_two", "false_alarms", "ece", "brier", "peers", "calibration"):
        assert key in scores
    assert (tmp_path / "tables" / "summary.csv").read_text().startswith(",value\nruns,")
    assert "AC@1" in run([*arguments, "--answers", str(tmp_path / "answers.jsonl")]).out
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert {line["run"] for line in lines} == set(RecordingStore(folder).runs())
    empty = run(["lab", "bench", "diagnosis", "--no-run", "--quick", "--folder", str(tmp_path / "nothing")])
    assert empty.code == 2
    assert "there is no such folder" in empty.err
    assert f"{len(RecordingStore(folder).runs())} of the" in " ".join(shown.err.split()), (
        "or a part would pass for the whole"
    )
    name = "infra.gpu.xid-fault"
    only = run([*arguments, "--only", name, "-o", "json"])
    assert json.loads(only.out)["runs"]["synthetic"] == sum(name in run for run in RecordingStore(folder).runs())
    assert json.loads(only.out)["runs"]["chosen"] == f"--matrix hour --only {name}"
    once = run(["lab", "bench", "diagnosis", "--once", "--quick", "--folder", str(tmp_path / "new")])
    assert once.code == 3, once.err
    assert len(RecordingStore(tmp_path / "new").runs()) == 1


def test_matrix_recorded_scores_the_folder_and_reports_runs_given_up(folder: Path, tmp_path: Path) -> None:
    held = tmp_path / "held"
    shutil.copytree(folder, held, ignore=shutil.ignore_patterns(SPOILED))
    for _ in range(TRIES):
        RecordingStore(held).keep_spoiled("played-of-no-matrix", ["it was too loud"])
    RecordingStore(held).write(CONTEXTS, "played-without-a-truth", IncidentContext())
    arguments = ["lab", "bench", "diagnosis", "--matrix", "recorded", "--folder", str(held)]
    shown = run([*arguments, "--no-peers"])
    assert shown.code == 0, shown.err
    assert f"{TRIES} spoiled attempts, 1 runs given up" in shown.out
    assert f"2 of {len(KINDS) + 2} runs of --matrix recorded --no-peers are missing" in shown.out
    assert RecordingStore(held).runs() == RecordingStore(folder).runs(), "nothing is played"
    nowhere = run([*arguments[:-1], str(tmp_path / "nowhere")])
    assert "there is no such folder next: name the folder" in " ".join(nowhere.err.split())
    other = run(["lab", "bench", "diagnosis", "--no-run", "--matrix", "fresh", "--folder", str(held)])
    assert "score all of its runs: --matrix recorded" in " ".join(other.err.split())
    for option in (["--once"], ["--only", "healthy"]):
        refused = run([*arguments, *option])
        assert refused.code == 2
        assert f"{option[0]} conflicts with --matrix recorded" in " ".join(refused.err.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--answers", "no/such/answers"], "the answers cannot be written: No such file or directory"),
        (["--folder", "a-file"], "a folder of recordings is needed, and this is none"),
        (["--matrix", "full"], "--quick conflicts with --matrix full"),
        (["--seed", "100"], "--seed does not apply to --matrix quick next: use --matrix fresh"),
        (["--only", "no-such"], "no run has the scenario 'no-such'"),
        (["--once"], "--once conflicts with --no-run"),
        (["--answers", "{folder}/truths/x.json"], "the answers would be written among the recordings"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_scored(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("")
    outcome = run(
        [
            "lab",
            "bench",
            "diagnosis",
            "--no-run",
            "--quick",
            "--folder",
            str(folder),
            *(word.format(folder=folder) for word in more),
        ]
    )
    assert outcome.code == 2
    assert message in " ".join(outcome.err.split())
    assert "diagnosed" not in outcome.err


def test_promoted_run_is_diagnosed_like_the_recording(folder: Path, tmp_path: Path) -> None:
    name = "made-infra.gpu.thermal-throttle-0.7-1"
    to = tmp_path / "thermal"
    outcome = run(["lab", "bench", "promote", name, "--folder", str(folder), "--to", str(to)])
    assert outcome.code == 0, outcome.err
    assert run(["diagnose", str(to)]).code == 3
    assert run(["lab", "bench", "promote", "no-such", "--folder", str(folder), "--to", str(to)]).code == 2


def test_groups_of_processes_get_other_names_wherever_they_stand() -> None:
    from dataclasses import replace

    from latdoctor.evidence.bundle import Artifact

    text = (
        '{"files":{"/proc/7/cgroup":"4:memory:/farm/0a1b\\n0::/\\n",'
        '"/proc/self/mountinfo":"1 2 0:3 /farm/0a1b '
        '/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\\n",'
        '"/sys/fs/cgroup/memory/farm/0a1b/memory.stat":"x 1\\n"}}'
    )
    sample = Artifact("host/000.json", "host", "host", "/proc", 1.0, text.encode())
    other = Artifact("logs/a", "logs", "a", "a", 1.0, b"/farm/0a1b")
    made = anonymized(replace(attempt("x").bundle, artifacts=(sample, other)))
    reported = made.artifacts[0].read().decode()
    assert "farm" not in reported
    assert "0a1b" not in reported
    assert reported.count("/group-2/group-1") == 3 or reported.count("/group-1/group-2") == 3
    assert made.artifacts[1] == other


def test_diagnosis_gets_the_bundle_alone(folder: Path, found: Sequence[DiagnosedVariant], tmp_path: Path) -> None:
    """The answer is the same where ground_truth and everything else of the run are gone."""
    from latdoctor.case_from_bundle import case, seen
    from latdoctor.diagnosis.diagnose import Stamp, diagnose

    (one,) = [one for one in recordings(folder) if "xid" in one.run]
    alone = tmp_path / "bundle.tar.zst"
    alone.write_bytes(one.bundle.read_bytes())
    with opened(alone) as bundle:
        answer = diagnose(case(bundle, *seen(bundle)), shipped(), Stamp("x", ""))
    before = next(x.answered for x in found if x.answered.run == one.run and x.answered.view == "plain")
    assert [cause.id for cause in answer.causes] == [cause.id for cause in before.ranked]
