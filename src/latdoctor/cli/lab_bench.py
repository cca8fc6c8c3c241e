"""`latdoctor lab bench`: records incidents, diagnoses each, scores the answers; has them mended, and measures that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.lab_bench_diagnosis import Folder, Only, Output, diagnosis, of_scenario, play_missing

if TYPE_CHECKING:
    from latdoctor.evaluation.remediation.scores import RemediationScores, RemediationStore


app = typer.Typer(help="Measure latdoctor itself on incidents that are really played.", no_args_is_help=True)

app.command()(diagnosis)


@app.command()
def remediation(
    folder: Folder = Path("bench-remediation"),
    quick: Annotated[bool, typer.Option("--quick", help="promo-rush and two others only: some eight minutes.")] = False,
    only: Only = None,
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
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.evaluation.remediation.run_specs import planned_runs as planned
    from latdoctor.evaluation.remediation.scores import RemediationStore
    from latdoctor.output_file import must_be_a_folder, must_take_a_file
    from latdoctor.remediation.playbook_loader import shipped

    must_be_a_folder(folder, "a folder of runs")
    if page is not None:
        must_take_a_file(page, "the page")
    cells = of_scenario(planned(shipped(), quick=quick), only)
    store = RemediationStore(folder)
    if not no_play:
        from latdoctor.evaluation.remediation.runner import attempt

        play_missing(store, cells, attempt, once=once)
    _print_mended(_mended(store, tuple(cell.run for cell in cells)), output, page)


def _mended(store: RemediationStore, wanted: tuple[str, ...]) -> RemediationScores:
    """Raises UsageError where none of these runs is there."""
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.remediation.scores import score

    there = set(store.runs())
    runs = [store.report(run) for run in wanted if run in there]
    if not runs:
        raise UsageError("no such run is there", where=str(store.folder), next_step="leave --no-play out")
    return score(runs, *store.losses(wanted), missing=[run for run in wanted if run not in there])


def _print_mended(scores: RemediationScores, output: Output, page: Path | None) -> None:
    import msgspec

    from latdoctor.evaluation.remediation.report import page as whole
    from latdoctor.evaluation.remediation.report import summary
    from latdoctor.output_file import write_text

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
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.baselines import BASELINES
    from latdoctor.evaluation.baselines.adapter import METRIC_SOURCES, readings
    from latdoctor.evaluation.baselines.metric_to_cause import page
    from latdoctor.evaluation.ground_truth import split
    from latdoctor.evaluation.method_comparison import comparable_runs
    from latdoctor.evaluation.store import recordings
    from latdoctor.output_file import must_take_a_file, write_text

    must_take_a_file(to, "the page")
    known = split()
    training = [one for one in comparable_runs(tuple(recordings(folder))) if not known.is_held_out(one.truth.causes)]
    if not training:
        raise UsageError(
            "nothing to learn from is recorded",
            where=str(folder),
            next_step="latdoctor lab bench diagnosis --folder DIR",
        )
    fitted = {metrics.name: tuple(readings(BASELINES, metrics, training)) for metrics in METRIC_SOURCES}
    write_text(to, page(fitted, {peer.name: peer.title for peer in BASELINES}), "the page")
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
    from latdoctor.cli.lab import need_extra

    need_extra()
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.fixture_export import promote as written
    from latdoctor.evaluation.store import RecordingStore, recordings

    if not folder.is_dir():
        raise UsageError("there is no such folder", where=str(folder), next_step="name the folder: --folder DIR")
    if run not in RecordingStore(folder).runs():
        raise UsageError(f"there is no run {run!r}", where=str(folder), next_step="look into its folder truths")
    written(next(one for one in recordings(folder, (run,))), to)
    typer.echo(f"wrote {to}. Next: latdoctor diagnose {to}")
