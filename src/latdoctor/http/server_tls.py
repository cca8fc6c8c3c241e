"""TLS of a server that latdoctor offers: certificate, private key, and authorities of client certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

from latdoctor.errors import UsageError
from latdoctor.sanitize import clean


def server_context(
    certificate: Path | None, key: Path | None, client_authorities: Path | None
) -> ssl.SSLContext | None:
    """TLS 1.2 or later; None without a certificate. With `client_authorities` a client certificate is required.

    Raises UsageError for a missing option or an unusable file.
    """
    if certificate is None or key is None:
        if certificate or key or client_authorities:
            raise UsageError("TLS needs a certificate and its key", where="--tls-cert, --tls-key")
        return None
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
