"""Which addresses may be changed: what is on the list, and no way around it."""

from __future__ import annotations

import pytest

from latdoctor.errors import UsageError
from latdoctor.remediation.admin_api import require_allowed, resolve_allowed
from latdoctor.remediation.change import Refused, Unreachable

ALLOW = ("https://config.example/apps", "http://10.0.0.5:8080/", "http://localhost:9000/a/b")

GOOD = [
    "https://config.example/apps",
    "https://CONFIG.example:443/apps/one",
    "http://10.0.0.5:8080/anything",
    "http://localhost:9000/a/b/c",
]
BAD = [
    "https://config.example/appsecret",
    "https://config.example/",
    "http://config.example/apps/one",
    "https://config.example:444/apps/one",
    "https://config.example.evil.test/apps/one",
    "https://config.example@evil.test/apps/one",
    "https://u:p@config.example/apps/one",
    "https://config.example/apps/../admin",
    "https://config.example/apps/%2e%2e/admin",
    "https://config.example/apps/./one",
    "https://config.example/apps//one",
    "https://config.example\\@evil.test/apps",
    "https://config.example/apps?x=1",
    "https://config.example/apps#x",
    "https://cönfig.example/apps",
    "https://config.example/apps/o ne",
    "file:///etc/passwd",
    "config.example/apps",
    "",
]


@pytest.mark.parametrize("url", GOOD)
def test_listed_urls_are_allowed(url: str) -> None:
    assert require_allowed(url, ALLOW) == url


@pytest.mark.parametrize("url", BAD)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        require_allowed(url, ALLOW)
    assert "u:p" not in str(raised.value)
    with pytest.raises(UsageError):
        require_allowed(url, ())


PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",  # noqa: S104 - nothing is bound
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00::1",
    "ff02::1",
    "::ffff:10.0.0.1",
    "2002:7f00:1::",
    "nonsense",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_name_that_resolves_to_a_private_address_is_refused(address: str) -> None:
    with pytest.raises(Refused, match="not public"):
        resolve_allowed("https://config.example/apps", ALLOW, lambda *_: [address])
    with pytest.raises(Refused, match="not public"):  # one of several is enough
        resolve_allowed("https://config.example/apps", ALLOW, lambda *_: ["93.184.216.34", address])


def test_checked_address_is_the_one_connected_to() -> None:
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["93.184.216.34", "2606:2800:220:1::1"]

    assert resolve_allowed("https://config.example/apps", ALLOW, resolve) == "93.184.216.34"
    assert asked == [("config.example", 443)]


@pytest.mark.parametrize(("url", "address"), [
    ("http://10.0.0.5:8080/x", "10.0.0.5"),
    ("http://localhost:9000/a/b", "127.0.0.1"),
    ("http://localhost:9000/a/b", "::1"),
    ("https://config.example/apps", "10.0.0.5"),
])  # fmt: skip
def test_listed_private_address_is_allowed(url: str, address: str) -> None:
    assert resolve_allowed(url, ALLOW, lambda *_: [address]) == address


def test_localhost_is_this_machine_only() -> None:
    with pytest.raises(Refused):
        resolve_allowed("http://localhost:9000/a/b", ALLOW, lambda *_: ["10.9.9.9"])


def test_a_name_without_an_address() -> None:
    def fails(*_: object) -> list[str]:
        raise OSError("no such name")

    for resolve in (fails, lambda *_: []):
        with pytest.raises(Unreachable):
            resolve_allowed("https://config.example/apps", ALLOW, resolve)
