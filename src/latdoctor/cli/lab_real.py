"""`latdoctor lab real`: incidents of real inference servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.options import OutputFormat
from latdoctor.cli.real_options import Servers

if TYPE_CHECKING:
    from latdoctor.evaluation.real.real_scores import RealScores
    from latdoctor.lab.real.real_scenario import RealScenario

app = typer.Typer(help="Incidents of real inference servers, installed apart.", no_args_is_help=True)

Recordings = Annotated[
    Path, typer.Option("--folder", metavar="DIR", readable=False, help="The recorded runs; none of them is repeated.")
]


@app.command("list")
def list_(servers: Servers = None) -> None:
    """List the servers and their scenarios.

    Of a server that cannot be started here, it says why, and how to install it.

    Exit codes: 0 listed · 2 usage, or an invalid definition.
    """
    from latdoctor.lab.real.real_scenario import real_scenarios
    from latdoctor.lab.real.server_definition import find_server, installed_in, server_names

    root, scenarios = installed_in(servers), real_scenarios()
    for name in server_names():
        server = find_server(name)
        why = server.missing(root)
        version = server.version(root) if root and not why else ""
        typer.echo(f"{name}: {server.title}{f' ({version})' if version else ''}")
        if why:
            typer.echo(f"  skipped: {why}")
        for scenario in scenarios:
            if scenario.server == name:
                causes = ", ".join(scenario.causes) or "healthy"
                typer.echo(f"  {scenario.id}: {scenario.title} ({causes}){' · quick' if scenario.quick else ''}")


@app.command()
def run(
    scenarios: Annotated[
        list[str] | None, typer.Argument(metavar="SCENARIO...", help="Scenarios by id or file; see lab real list.")
    ] = None,
    servers: Servers = None,
    folder: Recordings = Path("bench-real"),
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, metavar="N", help="Runs of each scenario.")] = 1,
) -> None:
    """Record incidents of real servers.

    Starts a server, loads it, injects the scenario's fault for some seconds, and removes it. What `latdoctor collect`
    saves of the healthy time and of the incident is kept in DIR/RUN, with the ground truth beside it. A fault is the
    truth only where the clients recover without it; a run without that effect is kept as spoiled.

    Exit codes: 0 recorded · 1 a run failed, or its server is not installed · 2 usage, or an invalid scenario.
    """
    from latdoctor.cli.lab import FOR_LOAD, need_extra

    need_extra(FOR_LOAD)
    from latdoctor.cli.lab_bench_diagnosis import log
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.real.real_benchmark import record_real_runs
    from latdoctor.lab.real.real_scenario import find_scenario
    from latdoctor.lab.real.server_definition import installed_in
    from latdoctor.output_file import must_be_a_folder

    if not scenarios:
        raise UsageError("SCENARIO is missing", next_step="latdoctor lab real list")
    must_be_a_folder(folder, "a folder of recordings")
    chosen = [find_scenario(name) for name in scenarios]
    failed = record_real_runs(chosen, range(1, seeds + 1), installed_in(servers), folder, log())
    for name, why in failed.items():
        typer.echo(f"{name}: {why}", err=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def promote(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A recorded run: the name of its folder in DIR.")],
    to: Annotated[Path, typer.Option("--to", metavar="PATH", readable=False, help="The folder to create.")],
    servers: Servers = None,
    folder: Recordings = Path("bench-real"),
) -> None:
    """Write a recorded run as a small fixture.

    Both bundles and the ground truth, redacted, and without the cgroups and folders of the recording machine.

    Exit codes: 0 written · 1 a name could not be removed, or the folder exists · 2 no such run, or it is too large.
    """
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.real.real_promote import promote_real
    from latdoctor.evaluation.real.real_store import real_recordings
    from latdoctor.lab.real.server_definition import installed_in

    found = [one for one in real_recordings(folder) if one.truth.run == run] if folder.is_dir() else []
    root = installed_in(servers)
    if not found or root is None:
        what = f"there is no run {run!r}" if root else "no folder of servers is given, so its name cannot be removed"
        raise UsageError(what, where=str(folder), next_step="latdoctor lab real list")
    promote_real(found[0], to, root)
    typer.echo(f"wrote {to}. Next: latdoctor diagnose {to / 'incident.tar.zst'}")


def bench(
    servers: Path | None, folder: Path, only: str | None, output: OutputFormat, *, quick: bool, no_run: bool
) -> None:
    """Record what `folder` lacks, and print the scores of all of its runs. Raises UsageError where there are none."""
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.cli.lab_bench_diagnosis import log
    from latdoctor.diagnosis.rule_loader import shipped
    from latdoctor.errors import UsageError
    from latdoctor.evaluation.real.real_benchmark import record_real_runs, score_recordings, skipped_servers
    from latdoctor.evaluation.real.real_report import real_summary
    from latdoctor.evaluation.real.real_store import real_recordings
    from latdoctor.lab.real.server_definition import installed_in
    from latdoctor.output_file import must_be_a_folder

    must_be_a_folder(folder, "a folder of recordings")
    chosen, root = _selected(only, quick=quick), installed_in(servers)
    skipped: dict[str, str] = {}
    if not no_run:
        with ended_by_sigterm():
            skipped = record_real_runs(chosen, (1,), root, folder, log())
    recordings = real_recordings(folder) if folder.is_dir() else ()
    if only is not None:
        recordings = tuple(one for one in recordings if one.truth.scenario == only)
    if not recordings:
        why = "; ".join(sorted(set(skipped_servers(chosen, root).values()))) if not no_run else "nothing was recorded"
        raise UsageError(f"no run of real servers is recorded: {why}", where=str(folder))
    scores = score_recordings(recordings, shipped(), skipped)
    typer.echo(_json(scores) if output is OutputFormat.JSON else real_summary(scores))


def _json(scores: RealScores) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(scores), indent=1).decode()


def _selected(only: str | None, *, quick: bool) -> tuple[RealScenario, ...]:
    from latdoctor.lab.real.real_scenario import find_scenario, real_scenarios

    if only is not None:
        return (find_scenario(only),)
    return tuple(one for one in real_scenarios() if one.quick or not quick)
