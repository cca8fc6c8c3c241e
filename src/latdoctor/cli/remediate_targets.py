"""The target of a remediation: named by `--admin`, configured, or the one server of the named pages that fits.

A token belongs to one address. The configured one is sent to the `admin` addresses of its target alone (without any, to
its one server), that of the environment to the one address that is named to be changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from latdoctor.cli.config_file import TargetSettings, targets
from latdoctor.cli.config_trust import UntrustedConfigError
from latdoctor.cli.console import notice
from latdoctor.cli.kube_target import kube_access
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.resolve_request import ResolvedRequest
from latdoctor.cli.urls import shown_origin
from latdoctor.errors import DefinitionError, LatdoctorError, UsageError
from latdoctor.http.client import Secret
from latdoctor.regular_file import read_regular
from latdoctor.remediation.actions.process import start_ticks
from latdoctor.remediation.change import Unauthorized
from latdoctor.remediation.planner import DiagnosisRef
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.target import Access, Target, TargetKind, canonical_url, detect_kind, host_and_port
from latdoctor.sanitize import clean

VARIABLE = "LATDOCTOR_ADMIN_TOKEN"
MAX_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ChosenTargets:
    """The targets to change, and every server whose kind was queried to choose them."""

    chosen: tuple[Access, ...]
    queried: tuple[Access, ...] = ()

    @property
    def known(self) -> dict[str, str]:
        """Admin interface → its kind."""
        return {canonical_url(access.target.admin): access.target.kind for access in self.queried}


def limit_to_named(request: ResolvedRequest, admin: Sequence[str], because: DiagnosisRef | None) -> ResolvedRequest:
    """Without a named page, keep only the discovered pages of the servers that are changed or were diagnosed.

    The page of an unrelated server says nothing about the change. Where no server was named either, all stay, as a
    guess.
    """
    if not request.guessed or not (admin or because):
        return request
    places = {host_and_port(shown_origin(url)) for url in admin if url} | set(because.servers if because else ())
    servers = tuple(url for url in request.request.servers if host_and_port(url) in places)
    return replace(request, request=replace(request.request, servers=servers), notice="")


def check_servers_named(request: ResolvedRequest) -> None:
    """Raises UsageError for a guess: only a server that the user named is changed."""
    if request.guessed:
        found = ", ".join(request.request.servers) or "none"
        raise UsageError(
            f"no server to change was named; metrics pages found on this machine: {found}",
            next_step="name it: --server URL or --target NAME",
        )


def choose_targets(
    playbook: Playbook,
    settings: TargetSettings,
    admin: Sequence[str],
    servers: Sequence[str],
    sources: SourceOptions,
    *,
    guessed: bool = False,
) -> ChosenTargets:
    """The targets that `playbook` would change, in the order of the options. Raises UsageError where none fits.

    `guessed`: the servers were discovered on this machine, not named. They are sent no token.
    """
    if (workload := kube_access(playbook, sources, settings)) is not None:
        return ChosenTargets((workload,))
    pid = sources.pid
    if "process" in playbook.targets and pid is not None:
        return ChosenTargets(
            (Access(Target(f"process {pid}", TargetKind.PROCESS, pid=pid, started=start_ticks(pid)), Secret()),)
        )
    named = tuple(admin) or settings.admin
    places = _apart(named or servers)
    tokens = {} if guessed else _tokens(places, settings, servers)
    if named:
        accesses = tuple(_access(place, tokens, settings) for place in places)
        return ChosenTargets(accesses, accesses)
    found, shut = _opened(places, tokens, settings)
    fitting = tuple(access for access in found if access.target.kind in playbook.targets)
    if len(fitting) > 1:
        raise UsageError(
            f"{playbook.id} fits {len(fitting)} of the servers: {', '.join(a.target.admin for a in fitting)}",
            next_step="name the one to change: --admin URL",
        )
    if not fitting and shut:
        raise shut[0]
    if not fitting:
        kinds = ", ".join(f"{access.target.admin} ({access.target.kind})" for access in found) or "none"
        raise UsageError(
            f"{playbook.id} is for {', '.join(playbook.targets)}; servers found: {kinds}",
            next_step="give its metrics page (--server URL) and, if that is elsewhere, its admin address (--admin URL)",
        )
    return ChosenTargets(fitting, found)


def _apart(urls: Sequence[str]) -> tuple[str, ...]:
    """Each address once, in its first spelling."""
    found: dict[str, str] = {}
    for url in urls:
        found.setdefault(canonical_url(shown_origin(url)), shown_origin(url))
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class _Token:
    """A token, and whether it is that of the configuration."""

    secret: Secret = field(default_factory=Secret)
    configured: bool = False


def _tokens(places: Sequence[str], settings: TargetSettings, servers: Sequence[str]) -> Mapping[str, _Token]:
    """The token of each of these addresses. Raises UsageError where one would be sent to several."""
    own = _token_places(settings, servers)
    if settings.admin_token and not own:
        raise UsageError(
            f"the admin_token of {settings.name} belongs to one address, and none is configured",
            next_step="name the address under `admin` of the target",
        )
    configured = _Token(token_in(settings.admin_token), True) if settings.admin_token else None
    found = {place: configured for place in places if configured and canonical_url(place) in own}
    others = [place for place in places if place not in found]
    secret = Secret(os.environ.get(VARIABLE, ""))
    if not secret or not others:
        return found
    if len(others) > 1:
        raise UsageError(
            f"{VARIABLE} belongs to one address, and {len(others)} are named: {', '.join(others)}",
            next_step="name the one to change: --admin URL; or give each target its `admin` and `admin_token`",
        )
    return {**found, others[0]: _Token(secret)}


def _token_places(settings: TargetSettings, servers: Sequence[str]) -> set[str]:
    """The addresses that the configured token may be sent to."""
    places = settings.admin or (servers if len(servers) == 1 else ())
    return {canonical_url(shown_origin(url)) for url in places}


def _opened(
    places: Sequence[str], tokens: Mapping[str, _Token], settings: TargetSettings
) -> tuple[tuple[Access, ...], tuple[UsageError, ...]]:
    """The servers with a readable admin interface, and the errors of the others: a page of client metrics has none."""
    found: list[Access] = []
    shut: list[UsageError] = []
    for place in places:
        try:
            found.append(_access(place, tokens, settings))
        except UsageError as error:
            shut.append(error)
    return tuple(found), tuple(shut)


def access_again(target: Target, settings: TargetSettings) -> Access:
    """Access to a target of the journal: by the token that its run used, or the one that belongs to its address.

    A cluster is logged in to as its kubeconfig says.
    """
    if target.kind is TargetKind.KUBERNETES:
        return Access(target, Secret())
    used = bool(settings.name) and target.configured == settings.name
    if settings.admin_token and (used or canonical_url(target.admin) in _token_places(settings, settings.server)):
        return Access(target, token_in(settings.admin_token))
    return Access(target, Secret(os.environ.get(VARIABLE, "")))


def settings_for(target: Target) -> TargetSettings:
    """The present settings of a target of the journal: by the name whose token the run used, else by its address.

    Empty where the run used the token of the environment, and that is still set. An unusable configuration is
    reported on stderr where the run used none of its tokens. Raises DefinitionError, UntrustedConfigError where it did.
    """
    if not target.admin or (not target.configured and os.environ.get(VARIABLE)):
        return TargetSettings()
    try:
        known = targets()
    except (DefinitionError, UntrustedConfigError) as error:
        if target.configured:
            raise
        notice(clean(f"the configuration is not searched for a token: {error}".replace("\n", "; "), 500))
        return TargetSettings()
    if target.configured in known:
        return known[target.configured]
    place = canonical_url(target.admin)
    return next((one for one in known.values() if place in _places(one)), TargetSettings())


def _places(settings: TargetSettings) -> set[str]:
    return {canonical_url(shown_origin(url)) for url in (*settings.admin, *settings.server)}


def token_in(file: Path) -> Secret:
    """The token in a file of credentials. Raises UsageError."""
    try:
        raw = read_regular(file, MAX_TOKEN_BYTES)
        text = raw.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"the token cannot be read: {reason}", where=str(file)) from error
    if len(raw) > MAX_TOKEN_BYTES:
        raise UsageError(f"the token is longer than {MAX_TOKEN_BYTES} bytes", where=str(file))
    return Secret(text)


def _access(place: str, tokens: Mapping[str, _Token], settings: TargetSettings) -> Access:
    token = tokens.get(place, _Token())
    access = Access(Target(place, TargetKind.UNKNOWN, admin=place, allow=settings.allow), token.secret)
    try:
        kind = detect_kind(access)
    except LatdoctorError as error:
        elsewhere = "" if isinstance(error, Unauthorized) else "name the address to change: --admin URL"
        raise UsageError(
            f"the admin interface cannot be read: {error.what}",
            where=place,
            next_step=", or ".join(filter(None, (error.next_step, elsewhere))),
        ) from error
    configured = settings.name if token.configured else ""
    target = Target(settings.name or place, kind, admin=place, allow=settings.allow, configured=configured)
    return Access(target, token.secret)
