"""Which requests may come from a web page, and by which names a local server may be addressed."""

from __future__ import annotations

import pytest

from latdoctor.http.cross_site import CrossSite, HostNames, cross_site, is_json

ANY = "0.0.0.0"  # noqa: S104 - nothing listens


@pytest.mark.parametrize(
    ("listening", "further", "host", "allowed"),
    [
        ("127.0.0.1", [], "127.0.0.1:9095", True),
        ("127.0.0.1", [], "localhost", True),
        ("127.0.0.1", [], "LOCALHOST.:1", True),
        ("127.0.0.1", [], "[::1]:9095", True),
        ("127.0.0.1", [], "", False),
        ("127.0.0.1", [], "10.0.0.7", False),
        ("127.0.0.1", [], "evil.example", False),
        ("127.0.0.1", [], "127.0.0.1.evil.example", False),
        ("127.0.0.1", [], "evil.example@127.0.0.1", False),
        ("127.0.0.1", [], "evil.example/@127.0.0.1", False),
        ("127.0.0.1", [], "127.0.0.1 evil.example", False),
        ("127.0.0.1", [], "[::1", False),
        ("127.0.0.1", [], "127.0.0.1:port", True),  # the port is not compared: it may be forwarded
        ("127.0.0.1", ["Alerts.Example"], "alerts.example:443", True),
        ("10.0.0.7", [], "10.0.0.7:9095", True),
        ("10.0.0.7", [], "10.0.0.8:9095", False),
        ("fd00::7", [], "[fd00::7]:9095", True),
        ("shop", [], "shop:9095", True),
        (ANY, [], "10.0.0.7:9095", True),
        (ANY, [], "shop:9095", False),
        (ANY, ["shop"], "shop:9095", True),
        ("::", [], "[fd00::7]:9095", True),
        ("::", [], "evil.example", False),
    ],
)
def test_host_names(listening: str, further: list[str], host: str, allowed: bool) -> None:
    assert HostNames.of(listening, further).allows(host) is allowed


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"origin": ""}, CrossSite.PAGE),
        ({"origin": "http://localhost"}, CrossSite.PAGE),
        ({"sec-fetch-site": "none"}, None),
        ({"sec-fetch-site": "same-site"}, CrossSite.PAGE),
        ({"sec-fetch-site": ""}, CrossSite.PAGE),
        ({"host": "evil.example"}, CrossSite.HOST),
    ],
)
def test_requests_of_pages(headers: dict[str, str], expected: CrossSite | None) -> None:
    assert cross_site({"host": "localhost", **headers}, HostNames()) is expected


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", True),
        (" Application/JSON ; charset=utf-8", True),
        ("text/plain", False),
        ("text/plain; application/json", False),
        ("application/jsonp", False),
        ("", False),
    ],
)
def test_media_type(content_type: str, expected: bool) -> None:
    assert is_json(content_type) is expected
