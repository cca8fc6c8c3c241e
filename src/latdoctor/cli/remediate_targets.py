"""Which address is changed: named by `--admin`, configured, or the one behind the pages that fits the playbook."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latdoctor.cli.config import TargetSettings, targets
from latdoctor.cli.console import notice
from latdoctor.cli.request import Ask
from latdoctor.cli.urls import shown_origin
from latdoctor.errors import DefinitionError, LatdoctorError, UsageError
from latdoctor.http.client import Secret
from latdoctor.remediation.actions.process import start_ticks
from latdoctor.remediation.planner import Because
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.target import Access, Target, TargetKind, canonical_url, detect_kind, host_and_port
from latdoctor.sanitize import clean

VARIABLE = "LATDOCTOR_ADMIN_TOKEN"
MAX_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Ways:
    """The targets that were chosen, and all whose kind was asked for in choosing."""

    chosen: tuple[Access, ...]
    asked: tuple[Access, ...] = ()

    @property
    def known(self) -> dict[str, str]:
        """Admin interface → its kind."""
        return {canonical_url(access.target.admin): access.target.kind for access in self.asked}


def of_what_was_named(wanted: Ask, admin: Sequence[str], because: Because | None) -> Ask:
    """Where no page was given, only those that were found at what is changed, or at what the diagnosis saw.

    What a stranger's page shows tells nothing of the change. Where nothing was named either, all stay, as a guess.
    """
    if not wanted.guessed or not (admin or because):
        return wanted
    places = {host_and_port(shown_origin(url)) for url in admin if url} | set(because.places if because else ())
    servers = tuple(url for url in wanted.request.servers if host_and_port(url) in places)
    return replace(wanted, request=replace(wanted.request, servers=servers), notice="")


def must_be_named(wanted: Ask) -> None:
    """Raises UsageError for a guess: no server is changed that nobody named."""
    if wanted.guessed:
        found = ", ".join(wanted.request.servers) or "none"
        raise UsageError(
            f"nobody said which server is to be changed; metrics pages found on this machine: {found}",
            next_step="say which: --server URL or --target NAME",
        )


def ways_in(
    playbook: Playbook,
    settings: TargetSettings,
    admin: Sequence[str],
    servers: Sequence[str],
    pid: int | None,
    *,
    guessed: bool = False,
) -> Ways:
    """The targets that `playbook` would change, in the order given; none is never all. Raises UsageError.

    `guessed`: nobody named the servers, they were found here. Whoever listens there is shown no token.
    """
    secret = Secret() if guessed else token(settings.admin_token)
    if "process" in playbook.targets and pid is not None:
        return Ways(
            (Access(Target(f"process {pid}", TargetKind.PROCESS, pid=pid, started=start_ticks(pid)), Secret()),)
        )
    named = tuple(admin) or settings.admin
    if named:
        ways = tuple(_access(url, secret, settings) for url in _apart(named))
        return Ways(ways, ways)
    found, shut = _opened(_apart(servers), secret, settings)
    fitting = tuple(access for access in found if access.target.kind in playbook.targets)
    if len(fitting) > 1:
        raise UsageError(
            f"{playbook.id} fits {len(fitting)} of the servers: {', '.join(a.target.admin for a in fitting)}",
            next_step="say which one is to be changed: --admin URL",
        )
    if not fitting and shut:
        raise shut[0]
    if not fitting:
        kinds = ", ".join(f"{access.target.admin} ({access.target.kind})" for access in found) or "nothing was given"
        raise UsageError(
            f"{playbook.id} is for {', '.join(playbook.targets)}; to choose from: {kinds}",
            next_step="give its metrics page (--server URL) and, if that is elsewhere, what to change (--admin URL)",
        )
    return Ways(fitting, found)


def _apart(urls: Sequence[str]) -> tuple[str, ...]:
    """Each place once, as it was spelled first."""
    found: dict[str, str] = {}
    for url in urls:
        found.setdefault(canonical_url(shown_origin(url)), shown_origin(url))
    return tuple(found.values())


def _opened(
    places: Sequence[str], secret: Secret, settings: TargetSettings
) -> tuple[tuple[Access, ...], tuple[UsageError, ...]]:
    """Those of the servers whose admin interface can be read, and why the others cannot: a clients' page has none."""
    found: list[Access] = []
    shut: list[UsageError] = []
    for place in places:
        try:
            found.append(_access(place, secret, settings))
        except UsageError as error:
            shut.append(error)
    return tuple(found), tuple(shut)


def again(target: Target, settings: TargetSettings) -> Access:
    """The way into a target of the journal."""
    return Access(target, token(settings.admin_token))


def settings_for(target: Target) -> TargetSettings:
    """What is configured now for a target of the journal: by the name whose token let the run in, else by its address.

    Where the run was let in by the environment's token, and that is still there, nothing is. A configuration that
    cannot be read is told on stderr where no token of it had let the run in. Raises DefinitionError where one had.
    """
    if not target.admin or (not target.configured and os.environ.get(VARIABLE)):
        return TargetSettings()
    try:
        known = targets()
    except DefinitionError as error:
        if target.configured:
            raise
        notice(clean(f"no token is looked for in the configuration: {error}".replace("\n", "; "), 500))
        return TargetSettings()
    if target.configured in known:
        return known[target.configured]
    place = canonical_url(target.admin)
    return next((one for one in known.values() if place in _places(one)), TargetSettings())


def _places(settings: TargetSettings) -> set[str]:
    return {canonical_url(shown_origin(url)) for url in (*settings.admin, *settings.server)}


def token(file: Path | None) -> Secret:
    """From the configured file, else from the environment; never from the command line. Raises UsageError."""
    if file is None:
        return Secret(os.environ.get(VARIABLE, ""))
    try:
        with file.open(encoding="utf-8") as opened:
            return Secret(opened.read(MAX_TOKEN_BYTES).strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token cannot be read: {error}", where=str(file)) from error


def _access(url: str, secret: Secret, settings: TargetSettings) -> Access:
    place = shown_origin(url)
    access = Access(Target(place, TargetKind.UNKNOWN, admin=place, allow=settings.allow), secret)
    try:
        kind = detect_kind(access)
    except LatdoctorError as error:
        raise UsageError(
            f"its admin interface cannot be read: {error.what}",
            where=place,
            next_step=f"{error.next_step}, or name what to change: --admin URL".removeprefix(", or "),
        ) from error
    whose = settings.name if settings.admin_token else ""
    return Access(Target(settings.name or place, kind, admin=place, allow=settings.allow, configured=whose), secret)
