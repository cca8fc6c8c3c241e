"""TLS of a server that latdoctor offers: certificate, private key, and authorities of client certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

from latdoctor.errors import UsageError
from latdoctor.sanitize import clean


class ServerTls:
    """TLS 1.2 or later by files that may be replaced while the server runs. For one thread."""

    def __init__(self, certificate: Path, key: Path, client_authorities: Path | None) -> None:
        """With `client_authorities` a client certificate is required. Raises UsageError for an unusable file."""
        self._files = (certificate, key, client_authorities)
        self._versions = self._current_versions()
        self.context = _context(*self._files)

    @property
    def requires_certificate(self) -> bool:
        return self.context.verify_mode is ssl.CERT_REQUIRED

    def refresh(self) -> str:
        """Load the files if one of them was replaced. Why that failed, and the former ones stay; empty otherwise."""
        versions = self._current_versions()
        if versions == self._versions:
            return ""
        try:
            self.context = _context(*self._files)
        except UsageError as error:  # such as a certificate whose key is yet to be replaced
            return str(error)
        finally:
            self._versions = versions
        return ""

    def _current_versions(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_version(file) for file in self._files if file is not None)


def server_tls(certificate: Path | None, key: Path | None, client_authorities: Path | None) -> ServerTls | None:
    """None without a certificate. Raises UsageError for a missing option or an unusable file."""
    if certificate is None or key is None:
        if certificate or key or client_authorities:
            raise UsageError("TLS needs a certificate and its key", where="--tls-cert, --tls-key")
        return None
    return ServerTls(certificate, key, client_authorities)


def _version(file: Path) -> tuple[int, int, int] | None:
    """What tells a file from the one that replaces it; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _context(certificate: Path, key: Path, client_authorities: Path | None) -> ssl.SSLContext:
    """Raises UsageError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, _EncryptedKey) as error:
        raise _unusable(
            f"{certificate}, {key}", error, "name a certificate chain and its unencrypted key, both PEM"
        ) from error
    if client_authorities is not None:
        try:
            context.load_verify_locations(client_authorities)
        except OSError as error:
            raise _unusable(str(client_authorities), error, "name a file of PEM certificates") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _EncryptedKey(Exception):  # noqa: N818 - a property of the file
    strerror = "the key is encrypted"


def _no_password() -> str:
    """OpenSSL would ask on the terminal otherwise."""
    raise _EncryptedKey


def _unusable(where: str, error: OSError | _EncryptedKey, next_step: str) -> UsageError:
    reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
    return UsageError(f"cannot be used for TLS: {clean(str(reason), 100)}", where=where, next_step=next_step)
