"""The listener over TLS: client certificates, handshakes that never end, and unusable files."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from latdoctor.cli.listen_access import AccessOptions, access_of
from latdoctor.errors import UsageError
from latdoctor.http.server_tls import server_tls
from latdoctor.incident.webhook_request import Access
from tests.incident.test_webhook_slow_clients import MANY, slow_clients
from tests.incident.webhook_client import GOOD, PATIENCE, Desk, answered, connect, listening


def openssl(*words: object) -> None:
    try:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not there to make a certificate")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority (`ca`), certificates of it for the server (`server`) and a client (`client`), and a foreign one."""
    made = tmp_path_factory.mktemp("tls")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "foreign"):
        files = ("-keyout", made / f"{name}.key", "-out", made / f"{name}.pem")
        openssl("req", "-x509", *new_key, "-days", "2", "-subj", f"/CN={name}", *files)
    signed_by = ("-CA", made / "ca.pem", "-CAkey", made / "ca.key", "-CAcreateserial", "-days", "2")
    (made / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", made / f"{name}.key", "-out", made / f"{name}.csr")
        files = ("-in", made / f"{name}.csr", "-out", made / f"{name}.pem", "-extfile", made / "names")
        openssl("x509", "-req", *files, *signed_by)
    openssl("ec", "-in", made / "server.key", "-aes256", "-passout", "pass:x", "-out", made / "encrypted.key")
    (made / "empty.pem").write_text("")
    return made


def mutual(folder: Path, token: str = "") -> Access:
    return Access(token, tls=server_tls(folder / "server.pem", folder / "server.key", folder / "ca.pem"))


def post(desk: Desk, folder: Path, certificate: str = "", token: str = "") -> int:
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if certificate:
        context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
    headers = {"Content-Type": "application/json", "Authorization": token}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(desk.url, GOOD, headers)  # noqa: S310 - the listener under test
    try:
        with opener.open(request, timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_client_certificate_of_the_authority_is_enough(folder: Path) -> None:
    with listening(mutual(folder)) as desk:
        assert desk.url.startswith("https://127.0.0.1:")
        assert post(desk, folder, "client") == 200


@pytest.mark.parametrize("certificate", ["", "foreign"])
def test_other_clients_are_refused_and_logged_once(folder: Path, certificate: str) -> None:
    with listening(mutual(folder)) as desk:
        for _ in range(2):
            with pytest.raises(OSError, match=r"(?i)alert|reset|closed|EOF|broken pipe"):
                post(desk, folder, certificate)
        assert post(desk, folder, "client") == 200
    assert len(desk.taken) == 1
    (line,) = desk.said
    assert line.startswith("refused a TLS connection from 127.0.0.1: ")
    assert "--client-ca" in line


def test_certificate_does_not_replace_a_required_token(folder: Path) -> None:
    with listening(mutual(folder, "Bearer t0ken")) as desk:
        assert post(desk, folder, "client") == 401
        assert post(desk, folder, "client", "Bearer t0ken") == 200


def test_certificate_is_replaced_while_it_listens(folder: Path, tmp_path: Path) -> None:
    """As soon as certificate and key fit each other; the former one goes on until then."""
    for suffix in ("pem", "key"):
        shutil.copy(folder / f"server.{suffix}", tmp_path / f"now.{suffix}")
    access = Access(tls=server_tls(tmp_path / "now.pem", tmp_path / "now.key", None))
    with listening(access) as desk:
        place = urlsplit(desk.url)

        def served() -> str:
            return ssl.get_server_certificate((place.hostname or "", place.port or 0))

        first = served()
        assert served() == first
        shutil.copy(folder / "client.key", tmp_path / "now.key")
        assert served() == first
        (line,) = desk.said
        assert "goes on with the former certificate" in line
        shutil.copy(folder / "client.pem", tmp_path / "now.pem")
        assert served() != first
        assert post(desk, folder) == 200


def test_handshakes_that_never_end_keep_no_alert_out(folder: Path) -> None:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"  # the beginning of one
    with listening(mutual(folder)) as desk, slow_clients(desk, hello) as slow:
        assert [post(desk, folder, "client") for _ in range(3)] == [200] * 3
        assert all(answered(one) == b"" for one in slow[: MANY // 2])


def test_plain_http_is_refused(folder: Path) -> None:
    with listening(mutual(folder)) as desk, connect(desk) as client:
        client.sendall(b"POST /alerts HTTP/1.1\r\n\r\n")
        assert b"HTTP/" not in answered(client)
    assert desk.taken == []


Files = tuple[str, str, str]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("server.pem", "", ""), "needs a certificate and its key"),
        (("", "server.key", ""), "needs a certificate and its key"),
        (("", "", "ca.pem"), "needs a certificate and its key"),
        (("absent.pem", "server.key", ""), "No such file"),
        (("empty.pem", "server.key", ""), "cannot be used for TLS"),
        (("server.pem", "client.key", ""), "cannot be used for TLS: KEY_VALUES_MISMATCH"),
        (("server.pem", "encrypted.key", ""), "the key is encrypted"),
        (("server.pem", "server.key", "empty.pem"), "name a file of PEM certificates"),
    ],
)
def test_unusable_files_are_reported(folder: Path, files: Files, message: str) -> None:
    named: Callable[[str], Path | None] = lambda name: folder / name if name else None  # noqa: E731
    with pytest.raises(UsageError, match=message):
        server_tls(*map(named, files))


def test_client_certificates_open_other_interfaces_without_a_token(folder: Path) -> None:
    server = (folder / "server.pem", folder / "server.key")
    with pytest.raises(UsageError, match="any client could send alerts"):
        access_of("shop", AccessOptions(None, (), *server, None))
    access = access_of("shop", AccessOptions(None, ("alerts",), *server, folder / "ca.pem"))
    assert access.requires_credentials
    assert access.hosts.allows("alerts:443")


def test_without_a_certificate_there_is_no_tls() -> None:
    assert server_tls(None, None, None) is None
