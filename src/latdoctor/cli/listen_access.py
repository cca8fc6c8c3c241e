"""Options of `latdoctor listen` on who may send alerts: address, credentials, host names and TLS."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from latdoctor.cli.credential_files import warn_if_readable
from latdoctor.collectors.promql.client import authorization
from latdoctor.errors import UsageError
from latdoctor.http.cross_site import HostNames
from latdoctor.http.safe_address import is_loopback
from latdoctor.http.server_tls import server_tls
from latdoctor.incident.webhook_request import Access
from latdoctor.sanitize import clean

AUTH, AUTH_FILE = "LATDOCTOR_LISTEN_AUTH", "LATDOCTOR_LISTEN_AUTH_FILE"
PANEL = "Alerts"  # of the help

AuthFile = Annotated[
    Path | None,
    typer.Option(
        "--auth-file",
        metavar="FILE",
        readable=False,
        help="Credentials that senders need: a token, or `Basic USER:PASSWORD`.",
        rich_help_panel=PANEL,
    ),
]
HostName = Annotated[
    list[str] | None,
    typer.Option(
        "--host-name",
        metavar="NAME",
        help="Name by which senders address this listener, beside its address and localhost. Repeatable.",
        rich_help_panel=PANEL,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        readable=False,
        help="Serve HTTPS with this certificate chain (PEM).",
        rich_help_panel=PANEL,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        readable=False,
        help="Private key of --tls-cert (PEM, unencrypted).",
        rich_help_panel=PANEL,
    ),
]
ClientCa = Annotated[
    Path | None,
    typer.Option(
        "--client-ca",
        metavar="FILE",
        readable=False,
        help="Require client certificates of these authorities (PEM).",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """As given on the command line."""

    auth_file: Path | None
    host_names: tuple[str, ...]
    tls_cert: Path | None
    tls_key: Path | None
    client_ca: Path | None


def address(text: str) -> tuple[str, int]:
    """Host and port of --listen. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(
            f"{clean(text, 80)!r} is no place to listen at",
            where="--listen",
            next_step="write it such as 127.0.0.1:9095",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def access_of(host: str, request: AccessOptions) -> Access:
    """Raises UsageError where any client in the network could open incidents, or for an unusable file."""
    warn_if_readable(request.auth_file, AUTH_FILE)
    warn_if_readable(request.tls_key)
    secret = authorization(request.auth_file, os.environ, AUTH, AUTH_FILE, bare=True)
    tls = server_tls(request.tls_cert, request.tls_key, request.client_ca)
    access = Access(secret, HostNames.of(host, request.host_names), tls)
    if not is_loopback(host) and not access.requires_credentials:
        raise UsageError(
            f"any client could send alerts to {clean(host, 80)}",
            where="--listen",
            next_step=f"put a token into a file and name it with --auth-file or in {AUTH_FILE}, put it into {AUTH},"
            " or require client certificates with --client-ca",
        )
    return access
