"""What there is to diagnose: configured targets, servers on this machine, and what a Prometheus here scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.console import Console

from latdoctor.collectors.promql.recognise_monitoring_server import MonitoringKind, MonitoringServer, watched
from latdoctor.report.fit_to_screen import Line, Rank, print_lines, sentence_lines
from latdoctor.report.fit_to_screen import fitted as fit
from latdoctor.report.preflight import LIMIT_LINE, command_line
from latdoctor.report.text_utils import WIDTH, command_lines, print_json
from latdoctor.sanitize import clean, counted, fitted

_ROWS = 12  # configured targets and servers on the default screen
_NAME = 16  # columns


@dataclass(frozen=True, slots=True)
class ConfiguredTarget:
    """A target of latdoctor.yaml, and the addresses and files of its sources."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A metrics page on this machine; `kinds` are the titles of its dialects, empty for an unknown exporter."""

    url: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetList:
    """Everything that `latdoctor targets` lists."""

    configured: tuple[ConfiguredTarget, ...]
    found: tuple[FoundServer, ...]
    monitoring: tuple[MonitoringServer, ...]

    @property
    def next_command(self) -> str:
        """Diagnoses the first configured target, else a server found, else what a Prometheus scrapes."""
        if self.configured:
            return f"latdoctor diagnose --target {self.configured[0].name}"
        known = next((one for one in self.found if one.kinds), None)
        if known:
            return f"latdoctor diagnose --server {known.url} --slo LIMIT"
        prometheus = next((one for one in self.monitoring if one.kind == MonitoringKind.PROMETHEUS), None)
        return prometheus.command if prometheus else "latdoctor diagnose --server URL --slo LIMIT"


def print_targets(targets: TargetList, console: Console, *, as_json: bool, verbose: bool) -> None:
    """The list on one screen; with `verbose` in full."""
    if as_json:
        print_json({**asdict(targets), "next": targets.next_command}, console)
    elif verbose:
        print_lines([*_headline(targets), *_rows(targets, every=True), *_end(targets)], console)
    else:
        print_lines(screen(targets), console)


def screen(targets: TargetList) -> tuple[Line, ...]:
    """At most 24 lines of 80 columns."""
    end = [*_end(targets), Line(" -v every target in full · -o json", "dim")]
    return fit([_headline(targets), _rows(targets, every=False), end])


def _headline(targets: TargetList) -> list[Line]:
    """How many there are of each kind."""
    parts = [f"{counted(len(targets.configured), 'target')} configured"] if targets.configured else []
    known = sum(bool(one.kinds) for one in targets.found)
    parts += [f"{counted(known, 'server')} on this machine"] if known else []
    services = sum(len(one.services) for one in targets.monitoring)
    parts += [f"{counted(services, 'service')} behind a Prometheus here"] if services else []
    nothing = "no target is configured, and no inference server answers on a local port"
    lines = sentence_lines(", ".join(parts) or nothing, "", "  ")
    return [Line(line, "bold", continued=number > 0) for number, line in enumerate(lines)]


def _rows(targets: TargetList, *, every: bool) -> Iterator[Line]:
    rows = [(one.name, ", ".join(one.sources)) for one in targets.configured]
    rows += [(", ".join(one.kinds) or "unknown exporter", one.url) for one in targets.found]
    for name, places in rows if every else rows[:_ROWS]:
        text = f" {fitted(name, _NAME):<{_NAME}}  {clean(places)}"
        yield Line(text if every else fitted(text, WIDTH))
    if len(rows) > _ROWS and not every:
        yield Line(f" and {len(rows) - _ROWS} more: -v")
    for server in targets.monitoring:
        yield Line(fitted(f" {server.title}  {clean(server.url)}", WIDTH))
        for number, line in enumerate(_services(server, every=every)):
            yield Line(line, "dim", Rank.EVIDENCE, continued=number > 0)
        if server.command and server.command != targets.next_command:
            for line in command_lines(server.command, WIDTH - 9):
                yield Line(f"     {line}", rank=Rank.DO)


def _services(server: MonitoringServer, *, every: bool) -> list[str]:
    if every and server.services:
        return [f"     {one.shown}" for one in server.services]
    return sentence_lines(watched(server), "     ", "     ")


def _end(targets: TargetList) -> list[Line]:
    end = command_line(targets.next_command)
    if " LIMIT" in targets.next_command:
        end.append(Line(LIMIT_LINE, "dim"))
    return end
