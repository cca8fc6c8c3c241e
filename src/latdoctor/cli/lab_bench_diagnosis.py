"""`latdoctor lab bench diagnosis`: records incidents, diagnoses each, and scores the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

if TYPE_CHECKING:
    from latdoctor.evaluation.store import Due, Go, RunStore

if TYPE_CHECKING:
    from latdoctor.evaluation.calibration import Fit
    from latdoctor.evaluation.run_spec import RunSpec
    from latdoctor.evaluation.scoring import DiagnosisScores
    from latdoctor.evaluation.store import RecordingStore


MORE_IS_LEFT = 3


class Playing(Protocol):
    """A run of a bench: the scenario it plays."""

    @property
    def scenario(self) -> str: ...


Of = TypeVar("Of", bound=Playing)


Only = Annotated[str | None, typer.Option("--only", metavar="SCENARIO", help="The runs of one scenario only.")]


class Output(StrEnum):
    """How the scores are printed."""

    TEXT = "text"
    JSON = "json"


Folder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", readable=False, help="Where the recordings are; none of them is repeated."),
]


def of_scenario(cells: Sequence[Of], only: str | None) -> tuple[Of, ...]:
    """Those of `cells` that play the scenario `only`; None: all. Raises UsageError where none does."""
    from latdoctor.errors import UsageError

    if only is None:
        return tuple(cells)
    known = sorted({cell.scenario for cell in cells})
    if only not in known:
        raise UsageError(f"no run plays {only!r}", where="--only", next_step=f"one of {', '.join(known)}")
    return tuple(cell for cell in cells if cell.scenario == only)


def play_missing(
    store: RunStore[Go], cells: Sequence[Due], attempt: Callable[[Due, Callable[[str], None]], Go], *, once: bool
) -> None:
    """Plays what is missing; with `once` one run of it, and then leaves."""
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.evaluation.store import record

    with ended_by_sigterm():
        left = record(store, cells, attempt, say(), most=1 if once else None)
    if once:
        raise typer.Exit(MORE_IS_LEFT if left else 0)


def say() -> Callable[[str], None]:
    from latdoctor.cli.console import notice_console

    notices = notice_console()
    return lambda text: notices.print(text, soft_wrap=True)


Matrix = Annotated[
    str | None,
    typer.Option("--matrix", metavar="quick|hour|full|fresh|recorded", help="Which runs; else those of an hour."),
]
Quick = Annotated[bool, typer.Option("--quick", help="The same as --matrix quick: a few minutes.")]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Where the seeds of --matrix fresh begin: 100, or one further on."),
]
Once = Annotated[bool, typer.Option("--once", help="Record the next missing run, and stop without a score.")]
NoPlay = Annotated[bool, typer.Option("--no-play", help="Play nothing: score the recordings of DIR.")]
NoPeers = Annotated[bool, typer.Option("--no-peers", help="Leave out the other methods: they take longest.")]
Calibrate = Annotated[bool, typer.Option("--calibrate", help="Fit the temperature, and say what it does.")]
Page = Annotated[
    Path | None, typer.Option("--page", metavar="FILE", help="Write the scores as a page of Markdown, too.")
]
Answers = Annotated[
    Path | None, typer.Option("--answers", metavar="FILE", help="Write every answer as a line of JSON, too.")
]
Processes = Annotated[int, typer.Option("--processes", min=1, metavar="N", help="Diagnose in so many.")]
Form = Annotated[Output, typer.Option("--output", "-o", help="How the scores are printed.")]


def diagnosis(
    folder: Folder = Path("bench-recordings"),
    matrix: Matrix = None,
    quick: Quick = False,
    seed: Seed = None,
    only: Only = None,
    once: Once = False,
    no_play: NoPlay = False,
    no_peers: NoPeers = False,
    calibrate: Calibrate = False,
    page: Page = None,
    answers: Answers = None,
    processes: Processes = 1,
    output: Form = Output.TEXT,
) -> None:
    """Record incidents, diagnose each, and score the answers.

    Every fault at several seeds and severities, faults together, nothing wrong, and telemetry that is made. A run that
    is recorded is not repeated, so that the whole can be done in several goes; a spoiled one is, twice at most. The
    matrix fresh has seeds that no other has: what came of it by rules that were written before says most. The matrix
    recorded is whatever DIR holds, and plays nothing.

    Exit codes: 0 done · 1 server or generator broke · 2 usage, or a damaged recording · 3 --once, and more is left.
    """
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.evaluation.run_matrix import RECORDED
    from latdoctor.evaluation.store import RecordingStore
    from latdoctor.output_file import must_be_a_folder, write_text

    _must_be_one_thing(matrix, only, quick=quick, once=once, no_play=no_play)
    chosen, cells = _chosen("quick" if quick else matrix or "hour", seed, only)
    must_be_a_folder(folder, "a folder of recordings")
    _must_take_files(page, answers, folder)
    store = RecordingStore(folder)
    if cells and not no_play:
        from latdoctor.evaluation.recording import RunRecorder

        play_missing(store, cells, RunRecorder().attempt, once=once)
    planned = store.tried() if matrix == RECORDED else tuple(cell.run for cell in cells)
    chosen += " --no-peers" if no_peers else ""
    scores, fit = _scored(store, planned, chosen, processes, answers, peers=not no_peers, calibrate=calibrate)
    if page is not None:
        from latdoctor.evaluation.report import page as made

        write_text(page, made(scores, fit), "the page")
    _print(scores, fit, output)


def _must_be_one_thing(matrix: str | None, only: str | None, *, quick: bool, once: bool, no_play: bool) -> None:
    """Raises UsageError for options that contradict each other."""
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.run_matrix import RECORDED

    if quick and matrix not in (None, "quick"):
        raise UsageError(f"--quick and --matrix {matrix} are two matrices", next_step="leave one of them out")
    if once and no_play:
        raise UsageError("--once plays one run, and --no-play none", next_step="leave one of them out")
    if matrix == RECORDED and (once or only):
        option = "--once" if once else "--only"
        what = f"{option} is for a matrix that is planned, and --matrix {RECORDED} is whatever DIR holds"
        raise UsageError(what, next_step="leave one of them out")


def _must_take_files(page: Path | None, answers: Path | None, folder: Path) -> None:
    """Raises UsageError where what is written would not get there, or over a recording."""
    from latdoctor.errors import UsageError
    from latdoctor.output_file import must_take_a_file

    for path, what in ((page, "the page"), (answers, "the answers")):
        if path is not None:
            must_take_a_file(path, what)
            _must_be_no_recording(path, what, folder)
    if page is not None and answers is not None and page.resolve() == answers.resolve():
        raise UsageError("the page and the answers are one file", where=str(page), next_step="write two")


def _chosen(matrix: str, seed: int | None, only: str | None) -> tuple[str, tuple[RunSpec, ...]]:
    """The options by which these runs are chosen, and the runs. Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.evaluation import run_matrix as matrices

    if seed is not None and matrix != matrices.FRESH:
        raise UsageError(f"the seeds of the matrix {matrix} are its own", next_step=f"--matrix {matrices.FRESH}")
    first = matrices.FRESH_SEED if seed is None else seed
    cells = of_scenario(matrices.cells(matrix, first), only)
    words = [f"--matrix {matrix}"]
    words += [f"--seed {first}"] if matrix == matrices.FRESH else []
    words += [f"--only {only}"] if only else []
    return " ".join(words), cells


def _must_be_no_recording(path: Path, what: str, folder: Path) -> None:
    """Raises UsageError for what lies in a folder of `folder`, where the recordings are."""
    from latdoctor.errors import UsageError

    if folder.resolve() in path.resolve().parent.parents:
        raise UsageError(f"{what} would lie among the recordings", where=str(path), next_step="write it elsewhere")


def _there(store: RecordingStore, planned: Sequence[str], chosen: str) -> tuple[str, ...]:
    """Those of the `planned` runs that are recorded; says how many are not. Raises UsageError where none is."""
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.run_matrix import RECORDED

    recorded = frozenset(store.runs())
    there = tuple(sorted(run for run in planned if run in recorded))
    if not there:
        what = f"no run of {chosen} is recorded" if store.folder.exists() else "there is no such folder"
        instead = f"score whatever it holds: --matrix {RECORDED}" if recorded else "name the folder: --folder DIR"
        raise UsageError(what, where=str(store.folder), next_step=instead)
    if len(there) < len(planned):
        say()(f"{len(there)} of the {len(planned)} runs of {chosen} are recorded: these are scored")
    return there


def _scored(
    store: RecordingStore,
    planned: Sequence[str],
    chosen: str,
    processes: int,
    answers: Path | None,
    *,
    peers: bool,
    calibrate: bool,
) -> tuple[DiagnosisScores, Fit | None]:
    from latdoctor.diagnosis.rule_loader import shipped
    from latdoctor.evaluation import benchmark
    from latdoctor.evaluation.baselines.adapter import stored_methods as kept
    from latdoctor.evaluation.benchmark import METHODS
    from latdoctor.evaluation.calibration import calibrate as fitted
    from latdoctor.evaluation.ground_truth import split
    from latdoctor.evaluation.store import recordings
    from latdoctor.evidence.model import to_json
    from latdoctor.output_file import write_text

    recorded = tuple(recordings(store.folder, _there(store, planned, chosen)))
    contestants = (*METHODS, *kept(store.folder)) if peers else ()
    whole = benchmark.Benchmark(recorded, shipped(), split(), contestants)
    found = benchmark.diagnose_all(whole, say(), processes)
    if answers is not None:
        write_text(answers, "".join(to_json(one.answered).decode() + "\n" for one in found), "the answers")
    truths = {one.truth.run: one.truth for one in recorded}
    fit = fitted(truths, found, whole.rules, whole.split) if calibrate else None
    return benchmark.scores(
        whole, found, benchmark.RunSelection(chosen, len(planned), *store.losses(planned)), say()
    ), fit


def _print(scores: DiagnosisScores, fit: Fit | None, output: Output) -> None:
    import msgspec

    from latdoctor.evaluation import report as pages

    if output is Output.JSON:
        whole = msgspec.to_builtins(scores) | ({"calibration": msgspec.to_builtins(fit)} if fit else {})
        typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=1).decode())
        return
    typer.echo(pages.summary(scores), nl=False)
    if fit:
        typer.echo(pages.told(fit), nl=False)
