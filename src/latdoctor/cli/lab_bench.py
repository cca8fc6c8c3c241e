"""`latdoctor lab bench`: records incidents, diagnoses each, scores the answers; has them mended, and measures that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latdoctor.trials.calibration import Fit
    from latdoctor.trials.mending.scores import MendingScores
    from latdoctor.trials.mending.store import MendingStore
    from latdoctor.trials.scores import Scores
    from latdoctor.trials.store import Due, Go, Keeping, Store

app = typer.Typer(help="Measure latdoctor itself on incidents that are really played.", no_args_is_help=True)

MORE_IS_LEFT = 3


class Output(StrEnum):
    """How the scores are printed."""

    TEXT = "text"
    JSON = "json"


Folder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", readable=False, help="Where the recordings are; none of them is repeated."),
]


@app.command()
def diagnosis(
    folder: Folder = Path("bench-recordings"),
    matrix: Annotated[str, typer.Option("--matrix", metavar="quick|hour|full", help="Which runs.")] = "hour",
    quick: Annotated[bool, typer.Option("--quick", help="The same as --matrix quick: a few minutes.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Record the next missing run, and stop without a score.")
    ] = False,
    no_play: Annotated[bool, typer.Option("--no-play", help="Play nothing: score the recordings of DIR.")] = False,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Fit the temperature, and say what it does.")] = False,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write the scores as a page of Markdown, too.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", metavar="FILE", help="Write every answer as a line of JSON, too.")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, metavar="N", help="Diagnose in so many.")] = 1,
    output: Annotated[Output, typer.Option("--output", "-o", help="How the scores are printed.")] = Output.TEXT,
) -> None:
    """Record incidents, diagnose each, and score the answers.

    Every fault at several seeds and severities, faults together, nothing wrong, and telemetry that is made. A run that
    is recorded is not repeated, so that the whole can be done in several goes; a spoiled one is, twice at most.

    Exit codes: 0 done · 1 server or generator broke · 2 usage, or a damaged recording · 3 --once, and more is left.
    """
    from latdoctor.cli.lab_extra import need_extra

    need_extra()
    from latdoctor.evidence.places import must_be_a_folder, must_take_a_file
    from latdoctor.trials import matrix as matrices
    from latdoctor.trials.store import Store

    chosen = "quick" if quick else matrix
    cells = matrices.cells(chosen)
    must_be_a_folder(folder, "a folder of recordings")
    for path, what in ((page, "the page"), (answers, "the answers")):
        if path is not None:
            must_take_a_file(path, what)
    store = Store(folder)
    if not no_play:
        from latdoctor.trials.recording import Recorder

        _recorded(store, cells, Recorder().attempt, once=once)
    there = _there(store, [cell.run for cell in cells], chosen)
    scores, fit = _scored(store, there, processes, answers, calibrate=calibrate)
    _print(scores, fit, output, page)


@app.command()
def remediation(
    folder: Folder = Path("bench-remediation"),
    quick: Annotated[bool, typer.Option("--quick", help="promo-rush and two others only: some eight minutes.")] = False,
    only: Annotated[
        str | None, typer.Option("--only", metavar="SCENARIO", help="The runs of one scenario only.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Play the next missing run, and stop without a score.")] = False,
    no_play: Annotated[bool, typer.Option("--no-play", help="Play nothing: score what DIR holds.")] = False,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", readable=False, help="Write it as a page of Markdown, too.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How the scores are printed.")] = Output.TEXT,
) -> None:
    """Play incidents, have each mended, and measure that.

    Each is diagnosed and remediated as an operator would. Every fault for which there is a playbook; for the
    field's incident the emergency bundle besides; and playbooks that mend nothing, which must be taken back. Nobody
    but the playbook takes an incident away. A run that is there is not repeated; a spoiled one is, twice at most.

    Exit codes: 0 done · 1 server or generator broke · 2 usage, or a damaged run · 3 --once, and more is left.
    """
    from latdoctor.cli.lab_extra import need_extra

    need_extra()
    from latdoctor.errors import UsageError
    from latdoctor.evidence.places import must_be_a_folder, must_take_a_file
    from latdoctor.remedy.playbook_files import shipped
    from latdoctor.trials.mending.cells import cells as planned
    from latdoctor.trials.mending.store import MendingStore

    must_be_a_folder(folder, "a folder of runs")
    if page is not None:
        must_take_a_file(page, "the page")
    cells = planned(shipped(), quick=quick)
    if only is not None:
        known = sorted({cell.scenario for cell in cells})
        if only not in known:
            raise UsageError(f"no run plays {only!r}", where="--only", next_step=f"one of {', '.join(known)}")
        cells = tuple(cell for cell in cells if cell.scenario == only)
    store = MendingStore(folder)
    if not no_play:
        from latdoctor.trials.mending.play import attempt

        _recorded(store, cells, attempt, once=once)
    _print_mended(_mended(store, tuple(cell.run for cell in cells)), output, page)


def _recorded(
    store: Keeping[Go], cells: Sequence[Due], attempt: Callable[[Due, Callable[[str], None]], Go], *, once: bool
) -> None:
    """Plays what is missing; with `once` one run of it, and then leaves."""
    from latdoctor.cli.interrupting import ended_by_sigterm
    from latdoctor.trials.store import record

    with ended_by_sigterm():
        left = record(store, cells, attempt, _say(), most=1 if once else None)
    if once:
        raise typer.Exit(MORE_IS_LEFT if left else 0)


def _mended(store: MendingStore, wanted: tuple[str, ...]) -> MendingScores:
    """Raises UsageError where none of these runs is there."""
    from latdoctor.errors import UsageError
    from latdoctor.trials.mending.scores import score

    there = set(store.runs())
    runs = [store.report(run) for run in wanted if run in there]
    if not runs:
        raise UsageError("no such run is there", where=str(store.folder), next_step="leave --no-play out")
    return score(runs, *store.losses(), missing=[run for run in wanted if run not in there])


def _print_mended(scores: MendingScores, output: Output, page: Path | None) -> None:
    import msgspec

    from latdoctor.evidence.places import write_text
    from latdoctor.trials.mending.page import page as whole
    from latdoctor.trials.mending.page import summary

    if page is not None:
        write_text(page, whole(scores), "the page")
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(scores), indent=1).decode())
        return
    typer.echo(summary(scores), nl=False)


@app.command()
def mapping(
    to: Annotated[Path, typer.Option("--to", metavar="FILE", readable=False, help="The page of Markdown to write.")],
    folder: Folder = Path("bench-recordings"),
) -> None:
    """Write which causes the peers are told to see in a metric.

    Peers rank metrics. What each ranking says of causes is learnt from the runs of families that were looked at, so
    that they are judged as fairly as can be; this is that table.

    Exit codes: 0 written · 2 nothing to learn from, or the page cannot be written.
    """
    from latdoctor.cli.lab_extra import need_extra

    need_extra()
    from latdoctor.errors import UsageError
    from latdoctor.evidence.places import must_take_a_file, write_text
    from latdoctor.trials.contest import comparable
    from latdoctor.trials.families import split
    from latdoctor.trials.peers import PEERS
    from latdoctor.trials.peers.contestants import GIVEN, readings
    from latdoctor.trials.peers.page import page
    from latdoctor.trials.record import recordings

    must_take_a_file(to, "the page")
    known = split()
    training = [one for one in comparable(tuple(recordings(folder))) if not known.is_never(one.truth.causes)]
    if not training:
        raise UsageError(
            "nothing to learn from is recorded",
            where=str(folder),
            next_step="latdoctor lab bench diagnosis --folder DIR",
        )
    fitted = {metrics.name: tuple(readings(PEERS, metrics, training)) for metrics in GIVEN}
    write_text(to, page(fitted, {peer.name: peer.title for peer in PEERS}), "the page")
    typer.echo(f"wrote {to}, learnt from {len(training)} runs")


@app.command()
def promote(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A recorded run, as its file in DIR/truths is called.")],
    to: Annotated[
        Path, typer.Option("--to", metavar="PATH", readable=False, help="The bundle to write: a folder or a .tar.zst.")
    ],
    folder: Folder = Path("bench-recordings"),
) -> None:
    """Write the look at one recorded incident as a small bundle.

    Redacted, and with other names for the machine's cgroups: fit to stand among the fixtures.

    Exit codes: 0 written · 1 a name would remain · 2 no such run, or the bundle cannot be written.
    """
    from latdoctor.cli.lab_extra import need_extra

    need_extra()
    from latdoctor.errors import UsageError
    from latdoctor.trials.promoting import promote as written
    from latdoctor.trials.record import recordings
    from latdoctor.trials.store import Store

    if run not in Store(folder).runs():
        raise UsageError(f"there is no run {run!r}", where=str(folder), next_step="look into its folder truths")
    written(next(one for one in recordings(folder, (run,))), to)
    typer.echo(f"wrote {to}. Next: latdoctor diagnose {to}")


def _there(store: Store, planned: Sequence[str], matrix: str) -> tuple[str, ...]:
    """Those of the runs of `matrix` that are recorded; says how many are not. Raises UsageError where none is."""
    from latdoctor.errors import UsageError

    recorded = frozenset(store.runs())
    there = tuple(sorted(run for run in planned if run in recorded))
    if not there:
        what = f"no run of the matrix {matrix} is recorded" if store.folder.exists() else "there is no such folder"
        raise UsageError(what, where=str(store.folder), next_step="leave --no-play out, or name the folder: --folder")
    if len(there) < len(planned):
        _say()(f"{len(there)} of the {len(planned)} runs of the matrix {matrix} are recorded: these are scored")
    return there


def _scored(
    store: Store, runs: Sequence[str], processes: int, answers: Path | None, *, calibrate: bool
) -> tuple[Scores, Fit | None]:
    from latdoctor.diagnosis.rule_files import shipped
    from latdoctor.evidence.model import to_json
    from latdoctor.evidence.places import write_text
    from latdoctor.trials import bench
    from latdoctor.trials.calibration import calibrate as fitted
    from latdoctor.trials.entrants import ENTRANTS
    from latdoctor.trials.families import split
    from latdoctor.trials.peers.kept import contestants
    from latdoctor.trials.record import recordings

    recorded = tuple(recordings(store.folder, runs))
    whole = bench.Bench(recorded, shipped(), split(), (*ENTRANTS, *contestants(store.folder)))
    found = bench.judged(whole, _say(), processes)
    if answers is not None:
        write_text(answers, "".join(to_json(one.answered).decode() + "\n" for one in found), "the answers")
    truths = {one.truth.run: one.truth for one in recorded}
    fit = fitted(truths, found, whole.rules, whole.split) if calibrate else None
    return bench.scores(whole, found, store, _say()), fit


def _print(scores: Scores, fit: Fit | None, output: Output, page: Path | None) -> None:
    import msgspec

    from latdoctor.evidence.places import write_text
    from latdoctor.trials import page as pages

    if page is not None:
        write_text(page, pages.page(scores, fit), "the page")
    if output is Output.JSON:
        whole = msgspec.to_builtins(scores) | ({"calibration": msgspec.to_builtins(fit)} if fit else {})
        typer.echo(msgspec.json.format(msgspec.json.encode(whole), indent=1).decode())
        return
    typer.echo(pages.summary(scores), nl=False)
    if fit:
        typer.echo(pages.told(fit), nl=False)


def _say() -> Callable[[str], None]:
    from latdoctor.cli.screen import notice_console

    notices = notice_console()
    return lambda text: notices.print(text, soft_wrap=True)
