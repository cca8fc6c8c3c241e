"""The configured target of a command, and what it adds to the sources that the command line names.

A name given with `--target` brings its server, SLO, baseline and files even where other sources are named. Only
another view of the same metrics (`--server`, `--metrics`, `--prometheus`), or a period that is over (`--until`),
replaces its configured pages: they would be read now, and mixed with those of another time or place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from latdoctor.cli.console import notice
from latdoctor.cli.urls import shown_origin
from latdoctor.errors import UsageError
from latdoctor.http.safe_address import mask_credentials
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.cli.config_file import TargetSettings
    from latdoctor.cli.options import SourceOptions


def settings_of(sources: SourceOptions) -> TargetSettings:
    """The configuration of the selected target, less what named sources replace. Raises UsageError, DefinitionError."""
    return _without_replaced(_selected(sources), sources)


def note_unread_servers(sources: SourceOptions) -> None:
    """Print on stderr that the configured server is not read, because the diagnosed period is over."""
    settings = _selected(sources)
    if sources.until and settings.server and not _replaced(sources):
        shown = ", ".join(mask_credentials(clean(url, 200)) for url in settings.server)
        notice(f"{settings.name}: {shown} is not read: --until selects a period that is over")


def _selected(sources: SourceOptions) -> TargetSettings:
    from latdoctor.cli.config_file import TargetSettings, targets

    if sources.any_source and not sources.target:
        return TargetSettings()
    configured = targets()
    if sources.target in configured:
        return configured[sources.target]
    if sources.any_source:  # a name for these sources
        return TargetSettings(name=sources.target)
    if sources.target:
        known = ", ".join(sorted(configured)) or "none"
        raise UsageError(
            f"no target {sources.target!r} is configured (configured: {known})",
            next_step="name one of them, or give a source such as --server URL",
        )
    if len(configured) > 1:
        raise UsageError(
            f"several targets are configured: {', '.join(sorted(configured))}", next_step="choose one with --target"
        )
    return next(iter(configured.values()), TargetSettings())


def _without_replaced(settings: TargetSettings, sources: SourceOptions) -> TargetSettings:
    if sources.prometheus and sources.prometheus != settings.prometheus:  # its credentials are for no other server
        settings = structs.replace(settings, select="", prometheus_auth=None, prometheus_ca=None)
    if _replaced(sources):
        if not settings.admin and not _same_server(settings, sources):  # its admin token is for no other server
            settings = structs.replace(settings, admin_token=None)
        return structs.replace(settings, server=(), metrics=(), prometheus="")
    return structs.replace(settings, server=()) if sources.until else settings


def _replaced(sources: SourceOptions) -> bool:
    """Whether the command line names another view of the target's metrics."""
    return bool(sources.server or sources.metrics or sources.prometheus)


def _same_server(settings: TargetSettings, sources: SourceOptions) -> bool:
    """Whether the command line names the target's own server, and no other."""
    named, own = (tuple(map(shown_origin, urls)) for urls in (sources.server, settings.server))
    return len(own) == 1 and named == own
