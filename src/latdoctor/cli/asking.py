"""From what was given on the command line and configured to a Request, a Context and a Baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from latdoctor.cli import past
from latdoctor.cli.addresses import masked, server, servers_name
from latdoctor.cli.configuration import TargetSettings, targets
from latdoctor.cli.options import Given
from latdoctor.cli.sources import Source, named
from latdoctor.collect.access_log.pattern import compiled
from latdoctor.collect.prometheus.discover import discover
from latdoctor.collect.source import Request
from latdoctor.errors import UsageError
from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.baseline import load as load_baseline
from latdoctor.evidence.bundle import Context
from latdoctor.text import clean
from latdoctor.units import parse_duration, parse_share, parse_span

WINDOW = "10s"
LONGEST_WINDOW = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class Ask:
    """What to look at, what is known of the target, and what was found instead where nothing was given."""

    request: Request
    context: Context
    baseline: Baseline | None
    named: tuple[Source, ...] = ()
    notice: str = ""

    @property
    def guessed(self) -> bool:
        """Whether nobody named a source: the servers are whatever answers on this machine."""
        return bool(self.notice)


class Need(Enum):
    """What a command does with the baseline that the configuration names."""

    DUE = "it must be there"
    IF_THERE = "it is taken along where it is there already"
    NONE = "it is not read"


def ask(given: Given, need: Need = Need.DUE) -> Ask:
    """Given sources first, else the configured target, else this machine. Raises UsageError, BundleError."""
    settings = settings_of(given)
    window = value(given.window or WINDOW, parse_duration, "--window", WINDOW)
    if not 0 < window <= LONGEST_WINDOW:
        raise UsageError(
            f"{given.window!r} is not longer than nothing and at most an hour",
            where="--window",
            next_step=f"write it such as --window {WINDOW}",
        )
    context = Context(
        target=clean(_name(given, settings), 200),
        slo_p99=value(given.slo, parse_span, "--slo", "500ms") if given.slo else settings.slo_p99,
        slo_error_ratio=(
            value(given.slo_errors, parse_share, "--slo-errors", "1%") if given.slo_errors else settings.slo_error_ratio
        ),
    )
    baseline = _baseline(given, settings, need)
    request, notice = _request(given, settings, window)
    if given.window and not (request.servers or request.nvml or request.host or request.prometheus or request.past):
        step = "leave it out; what of a log is judged, say --since and --until"
        raise UsageError("nothing is watched: what was given is read as it is", where="--window", next_step=step)
    return Ask(request, context, baseline, () if notice else named(request, nvml=bool(given.nvml)), notice)


def must_stand_alone(bundle: Path | None, given: Given) -> None:
    """Raises UsageError for a bundle with sources beside it: it holds what its own showed."""
    if bundle is not None and given.any_source:
        raise UsageError("a bundle was given, and sources beside it", next_step="give one of them")


def must_not_say_how(given: Given) -> None:
    """Raises UsageError where a saved bundle was given and, beside it, how to look."""
    how = {"--target": given.target, "--window": given.window, "--select": given.select}
    how |= {"--since": given.since, "--until": given.until, "--log-pattern": given.log_pattern}
    for option in (name for name, value in how.items() if value):
        raise UsageError(f"{option} says how to look, and a bundle was looked at already", next_step="leave it out")


def _baseline(given: Given, settings: TargetSettings, need: Need) -> Baseline | None:
    if given.baseline is not None:
        return load_baseline(given.baseline)
    path = settings.baseline
    if path is None or need is Need.NONE or (need is Need.IF_THERE and not path.exists()):
        return None
    return load_baseline(path)


def with_given_slo(context: Context, given: Given) -> Context:
    """The context of a saved bundle, with what the command line says in its place."""
    if given.slo:
        context = replace(context, slo_p99=value(given.slo, parse_span, "--slo", "500ms"))
    if given.slo_errors:
        context = replace(context, slo_error_ratio=value(given.slo_errors, parse_share, "--slo-errors", "1%"))
    return context


def settings_of(given: Given) -> TargetSettings:
    """What is configured for the target that was meant. Raises UsageError."""
    if given.any_source:
        return TargetSettings(name=given.target)
    configured = targets()
    if given.target:
        if given.target not in configured:
            known = ", ".join(sorted(configured)) or "none"
            raise UsageError(
                f"no target {given.target!r} is configured (configured: {known})",
                next_step="name one of them, or give a source such as --server URL",
            )
        return configured[given.target]
    if len(configured) > 1:
        raise UsageError(
            f"several targets are configured: {', '.join(sorted(configured))}", next_step="choose one with --target"
        )
    return next(iter(configured.values()), TargetSettings())


def _request(given: Given, settings: TargetSettings, window: float) -> tuple[Request, str]:
    servers = given.server or settings.server
    for url in servers:
        server(url, "--server" if given.server else f"target {settings.name}")
    asked = past.past_of(given, settings)
    request = Request(
        prometheus=past.server_of(given, settings, asked),
        past=asked if given.since or given.until else None,
        servers=servers,
        metrics=given.metrics or settings.metrics,
        traces=given.trace or settings.trace,
        nsight=given.nsys or settings.nsys,
        tensorrt=given.tensorrt or settings.tensorrt,
        torch_memory=given.torch_memory or settings.torch_memory,
        logs=given.log or settings.log,
        log_pattern=_pattern(given, settings),
        changes=given.changes or settings.changes,
        pid=given.pid,
        window=window,
    )
    if not (given.any_source or settings.name):
        return _this_machine(request, given)
    here = any(server(url).loopback for url in servers) or given.pid is not None
    wanted = given.nvml if given.nvml is not None else settings.nvml
    return replace(request, nvml=here if wanted is None else wanted, host=here or bool(wanted)), ""


def _pattern(given: Given, settings: TargetSettings) -> str:
    """Raises UsageError where it is no pattern, or there is no log that it speaks of."""
    text = given.log_pattern or settings.log_pattern
    if given.log_pattern and not (given.log or settings.log):
        raise UsageError(
            "--log-pattern says how the lines of an access log are written, and no log was given",
            next_step="give the log too: --log FILE",
        )
    if text:
        compiled(text)
    return text


def _this_machine(request: Request, given: Given) -> tuple[Request, str]:
    """Nothing was given: this machine's GPUs, its kernel, and the metrics pages on its ports."""
    found = [page for page in discover() if page.dialects]
    pages = ", ".join(page.url for page in found) or "no metrics page on a local port"
    servers = tuple(page.url for page in found)
    wanted = replace(request, servers=servers, nvml=given.nvml is not False, host=True)
    return wanted, f"no source given: looking at this machine ({pages})"


def _name(given: Given, settings: TargetSettings) -> str:
    if given.target or settings.name:
        return masked(given.target or settings.name)
    if given.server:
        return servers_name(given.server)
    if given.prometheus:
        return past.name_of(given)
    return given.files[0].name if given.files else "this machine"


def value(text: str, convert: Callable[[str], float], where: str, example: str) -> float:
    try:
        return convert(text)
    except ValueError as error:
        raise UsageError(str(error), where=where, next_step=f"write it such as {where} {example}") from error
