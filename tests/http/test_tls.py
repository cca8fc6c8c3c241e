"""A certificate that is not trusted is recognised by exception type, whatever the text says."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from latdoctor.http.tls import is_certificate_error


def test_the_text_does_not_matter() -> None:
    assert not is_certificate_error(httpx.ConnectError("CERTIFICATE_VERIFY_FAILED"))


def test_the_cause_of_a_cause_is_found() -> None:
    inner = ssl.SSLCertVerificationError("any text")
    middle, outer = OSError("any text"), httpx.ConnectError("any text")
    middle.__context__, outer.__cause__ = inner, middle
    assert is_certificate_error(outer)


def test_a_loop_of_causes_ends() -> None:
    one, other = OSError("one"), OSError("other")
    one.__context__, other.__context__ = other, one
    assert not is_certificate_error(one)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_httpx_keeps_the_error_of_a_real_handshake(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(httpx.ConnectError) as refused:
            httpx.get(f"https://127.0.0.1:{server.server_port}/", trust_env=False)
    finally:
        server.shutdown()
        server.server_close()
    assert is_certificate_error(refused.value)
