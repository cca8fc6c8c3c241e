"""`latdoctor preflight` (which sources can be read here?) and `latdoctor targets` (what is there to diagnose?)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.options import OutputFormat, OutputOption

if TYPE_CHECKING:
    from latdoctor.cli.config_file import TargetSettings
    from latdoctor.report.target_list import ConfiguredTarget, TargetList

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Everything, not only what fits one screen.")]


def preflight(verbose: Verbose = False, output: OutputOption = OutputFormat.TEXT) -> None:
    """Report which sources can be read here, and why not.

    A Prometheus on this machine is listed with the inference services that it scrapes.

    Exit codes: 0 all sources of this machine can be read · 4 some cannot, or not in full.
    """
    from latdoctor.cli.console import progress, result_console
    from latdoctor.collectors import COLLECTORS
    from latdoctor.collectors.base import SourceAvailability
    from latdoctor.report import preflight as report

    with progress("checking the sources of this machine", takes_time=False) as waiting:
        rows: list[SourceAvailability] = []
        for collector in COLLECTORS:
            waiting([collector.title])
            rows.extend(collector.preflight())
    report.print_preflight(rows, result_console(), as_json=output is OutputFormat.JSON, verbose=verbose)
    raise typer.Exit(4 if report.hidden(rows) else 0)


def targets(verbose: Verbose = False, output: OutputOption = OutputFormat.TEXT) -> None:
    """List what there is to diagnose.

    The configured targets, the metrics pages on this machine's ports, and the inference services that a Prometheus
    on this machine scrapes.

    Exit codes: 0 listed · 2 an invalid configuration.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.report.target_list import print_targets

    print_targets(_targets(), result_console(), as_json=output is OutputFormat.JSON, verbose=verbose)


def _targets() -> TargetList:
    """Raises UsageError for an invalid configuration."""
    from latdoctor.cli import config_file
    from latdoctor.cli.console import progress
    from latdoctor.collectors.prometheus.discovery import discover
    from latdoctor.collectors.promql.recognise_monitoring_server import MonitoringServer, api_root, identify
    from latdoctor.report.target_list import FoundServer, TargetList

    configured = tuple(map(_configured, config_file.targets().values()))
    with progress("probing local ports", takes_time=False):
        pages = discover()
        monitoring = tuple(
            identify(page.url) or MonitoringServer(page.monitoring, api_root(page.url))
            for page in pages
            if page.monitoring
        )
    found = tuple(
        FoundServer(page.url, tuple(page.title.split(", ")) if page.dialects else ())
        for page in pages
        if not page.monitoring
    )
    return TargetList(configured, found, monitoring)


def _configured(settings: TargetSettings) -> ConfiguredTarget:
    """Its sources without credentials."""
    from latdoctor.http.safe_address import mask_credentials
    from latdoctor.report.target_list import ConfiguredTarget

    urls = (*settings.server, *([settings.prometheus] if settings.prometheus else []))
    return ConfiguredTarget(settings.name, (*map(mask_credentials, urls), *map(str, settings.files)))
