"""`latdoctor lab bench diagnosis`: records incidents, diagnoses each, and scores the diagnoses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from latdoctor.cli.options import OutputFormat
from latdoctor.cli.real_options import Servers

if TYPE_CHECKING:
    from latdoctor.evaluation.calibration import Fit
    from latdoctor.evaluation.run_spec import RunSpec
    from latdoctor.evaluation.scoring import DiagnosisScores
    from latdoctor.evaluation.store import Attempt, Due, RecordingStore, RunStore


MORE_RUNS_DUE = 3


class ScenarioRun(Protocol):
    """A benchmark run of a scenario."""

    @property
    def scenario(self) -> str: ...


Run = TypeVar("Run", bound=ScenarioRun)


Folder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", readable=False, help="The recorded runs; none of them is repeated."),
]
MatrixName = Annotated[
    str | None,
    typer.Option("--matrix", metavar="quick|hour|full|fresh|rca-llm|recorded", help="The runs; hour where not given."),
]
Answers = Annotated[
    Path | None, typer.Option("--answers", metavar="FILE", help="Write every diagnosis as a line of JSON, too.")
]
Only = Annotated[str | None, typer.Option("--only", metavar="SCENARIO", help="The runs of one scenario only.")]
Once = Annotated[bool, typer.Option("--once", help="Record the next missing run, and stop without a score.")]
Tables = Annotated[
    Path | None, typer.Option("--tables", metavar="DIR", readable=False, help="Write the results as CSV files, too.")
]
ScoreOutput = Annotated[OutputFormat, typer.Option("--output", "-o", help="Format of the scores.")]


def of_scenario(runs: Sequence[Run], only: str | None) -> tuple[Run, ...]:
    """The `runs` of the scenario `only`; None: all. Raises UsageError where there are none."""
    from latdoctor.errors import UsageError

    if only is None:
        return tuple(runs)
    known = sorted({run.scenario for run in runs})
    if only not in known:
        raise UsageError(
            f"no run has the scenario {only!r}", where="--only", next_step=f"use one of {', '.join(known)}"
        )
    return tuple(run for run in runs if run.scenario == only)


def record_missing(
    store: RunStore[Attempt],
    runs: Sequence[Due],
    attempt: Callable[[Due, Callable[[str], None]], Attempt],
    *,
    once: bool,
) -> None:
    """Records the missing runs; with `once` one of them, and then exits."""
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.evaluation.store import record

    with ended_by_sigterm():
        missing = record(store, runs, attempt, log(), most=1 if once else None)
    if once:
        raise typer.Exit(MORE_RUNS_DUE if missing else 0)


def log() -> Callable[[str], None]:
    from latdoctor.cli.console import notice_console

    notices = notice_console()
    return lambda text: notices.print(text, soft_wrap=True)


def diagnosis(
    folder: Folder = Path("bench-recordings"),
    matrix: MatrixName = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --matrix quick: a few minutes.")] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="The first seed of --matrix fresh: 100 or greater.")
    ] = None,
    only: Only = None,
    once: Once = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Record nothing: score the recordings in DIR.")] = False,
    no_peers: Annotated[
        bool, typer.Option("--no-peers", help="Leave out the other methods: they take longest.")
    ] = False,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Fit the temperature, and report its effect.")] = False,
    tables: Tables = None,
    answers: Answers = None,
    processes: Annotated[int, typer.Option("--processes", min=1, metavar="N", help="Processes that diagnose.")] = 1,
    real: Annotated[bool, typer.Option("--real", help="Incidents of real servers: see lab real.")] = False,
    servers: Servers = None,
    output: ScoreOutput = OutputFormat.TEXT,
) -> None:
    """Record incidents, diagnose each, and score the diagnoses.

    Every fault at several seeds and severities, combined faults, healthy runs, and synthetic telemetry. A recorded run
    is not repeated, so the matrix can be recorded in several steps; a spoiled run is repeated at most twice. The matrix
    fresh has seeds that no other matrix uses: it measures rules that were written before. The matrix recorded is
    whatever DIR contains, and records nothing. With --real the runs are those of lab real, in a folder of their own;
    --quick takes a dozen of them, and all recordings in DIR are scored.

    Exit codes: 0 done · 1 server or generator failed · 2 usage, or a damaged recording · 3 --once, and more are due.
    """
    from latdoctor.cli.lab import FOR_LOAD, need_extra
    from latdoctor.cli.lab_real import bench

    if real:
        need_extra(FOR_LOAD)
        bench(servers, folder, only, output, quick=quick, no_run=no_run)
        return
    need_extra()
    from latdoctor.evaluation.report import tables as result_tables
    from latdoctor.evaluation.report import write_tables
    from latdoctor.evaluation.run_matrix import Matrix
    from latdoctor.evaluation.store import RecordingStore
    from latdoctor.output_file import must_be_a_folder

    _check_options(matrix, only, quick=quick, once=once, no_run=no_run)
    selection, specs = _select("quick" if quick else matrix or Matrix.HOUR, seed, only)
    must_be_a_folder(folder, "a folder of recordings")
    _check_answers(answers, folder)
    store = RecordingStore(folder)
    if specs and not no_run:
        from latdoctor.evaluation.recording import RunRecorder

        record_missing(store, specs, RunRecorder().attempt, once=once)
    planned = store.attempted() if matrix == Matrix.RECORDED else tuple(spec.run for spec in specs)
    selection += " --no-peers" if no_peers else ""
    scores, fit = _scored(store, planned, selection, processes, answers, peers=not no_peers, calibrate=calibrate)
    if tables is not None:
        write_tables(result_tables(scores, fit), tables)
    _print(scores, fit, output)


def _check_options(matrix: str | None, only: str | None, *, quick: bool, once: bool, no_run: bool) -> None:
    """Raises UsageError for options that contradict each other."""
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.run_matrix import Matrix

    conflict = ""
    if quick and matrix not in (None, Matrix.QUICK):
        conflict = f"--quick conflicts with --matrix {matrix}"
    elif once and no_run:
        conflict = "--once conflicts with --no-run"
    elif matrix == Matrix.RECORDED and (once or only):
        conflict = f"{'--once' if once else '--only'} conflicts with --matrix {Matrix.RECORDED}, which plans no runs"
    if conflict:
        raise UsageError(conflict, next_step="leave one of them out")


def _check_answers(answers: Path | None, folder: Path) -> None:
    """Raises UsageError where the answers cannot be written, or would overwrite a recording."""
    from latdoctor.errors import UsageError
    from latdoctor.output_file import must_take_a_file

    if answers is None:
        return
    must_take_a_file(answers, "the answers")
    if folder.resolve() in answers.resolve().parent.parents:
        raise UsageError(
            "the answers would be written among the recordings", where=str(answers), next_step="choose another folder"
        )


def _select(matrix: str, seed: int | None, only: str | None) -> tuple[str, tuple[RunSpec, ...]]:
    """The options that select the runs, and the runs. Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.run_matrix import FRESH_SEED, Matrix, planned_runs

    if seed is not None and matrix != Matrix.FRESH:
        raise UsageError(f"--seed does not apply to --matrix {matrix}", next_step=f"use --matrix {Matrix.FRESH}")
    first = FRESH_SEED if seed is None else seed
    specs = of_scenario(planned_runs(matrix, first), only)
    words = [f"--matrix {matrix}"]
    words += [f"--seed {first}"] if matrix == Matrix.FRESH else []
    words += [f"--only {only}"] if only else []
    return " ".join(words), specs


def _recorded(store: RecordingStore, planned: Sequence[str], selection: str) -> tuple[str, ...]:
    """The `planned` runs that are recorded; logs how many are missing. Raises UsageError where none is recorded."""
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.run_matrix import Matrix

    complete = frozenset(store.runs())
    recorded = tuple(sorted(run for run in planned if run in complete))
    if not recorded:
        what = f"no run of {selection} is recorded" if store.folder.exists() else "there is no such folder"
        next_step = (
            f"score all of its runs: --matrix {Matrix.RECORDED}" if complete else "name the folder: --folder DIR"
        )
        raise UsageError(what, where=str(store.folder), next_step=next_step)
    if len(recorded) < len(planned):
        log()(f"{len(recorded)} of the {len(planned)} runs of {selection} are recorded: these are scored")
    return recorded


def _scored(
    store: RecordingStore,
    planned: Sequence[str],
    selection: str,
    processes: int,
    answers: Path | None,
    *,
    peers: bool,
    calibrate: bool,
) -> tuple[DiagnosisScores, Fit | None]:
    from latdoctor.diagnosis.rule_loader import shipped
    from latdoctor.evaluation import benchmark
    from latdoctor.evaluation.baselines.adapter import stored_methods
    from latdoctor.evaluation.calibration import calibrate as fit_temperature
    from latdoctor.evaluation.ground_truth import split
    from latdoctor.evaluation.store import recordings
    from latdoctor.evidence.model import to_json
    from latdoctor.output_file import write_text

    recorded = tuple(recordings(store.folder, _recorded(store, planned, selection)))
    methods = (*benchmark.METHODS, *stored_methods(store.folder)) if peers else ()
    bench = benchmark.Benchmark(recorded, shipped(), split(), methods)
    found = benchmark.diagnose_all(bench, log(), processes)
    if answers is not None:
        write_text(answers, "".join(to_json(one.answered).decode() + "\n" for one in found), "the answers")
    ground_truths = {one.run: one.ground_truth for one in recorded}
    fit = fit_temperature(ground_truths, found, bench.rules, bench.split) if calibrate else None
    runs = benchmark.RunSelection(selection, len(planned), *store.losses(planned))
    return benchmark.scores(bench, found, runs, log()), fit


def _print(scores: DiagnosisScores, fit: Fit | None, output: OutputFormat) -> None:
    import msgspec

    from latdoctor.evaluation.report import summary, temperature

    if output is OutputFormat.JSON:
        whole = msgspec.to_builtins(scores) | ({"calibration": msgspec.to_builtins(fit)} if fit else {})
        typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=1).decode())
        return
    typer.echo(summary(scores) + (temperature(fit) if fit else ""), nl=False)
