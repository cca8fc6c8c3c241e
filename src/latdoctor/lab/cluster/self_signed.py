"""Certificates of the cluster's own servers, each signed by itself."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def self_signed(folder: Path, openssl: str, name: str, alternative: str) -> tuple[Path, Path]:
    """A certificate and its key as files of that name; `alternative`: such as `DNS:a.svc` or `IP:127.1.0.1`."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(  # noqa: S603 (found in PATH)
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName={alternative}", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """For a server with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
