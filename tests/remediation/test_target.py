"""One target has one key, however its address is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.remediation.target import Target, canonical_url, host_and_port

HERE = "http://127.0.0.1:8080"
SAME = [
    "http://localhost:8080",
    "HTTP://LocalHost.:8080/",
    "http://app.localhost:8080",
    "http://127.9.8.7:8080",
    "http://127.1:8080",
    "http://0.0.0.0:8080",
    "http://0:8080",
    "http://[::1]:8080",
    "http://[::]:8080",
    "http://[0:0:0:0:0:0:0:1]:8080",
    "http://[::ffff:127.0.0.1]:8080",
]
OTHERS = [
    "http://127.0.0.1:8081",
    "http://128.0.0.1:8080",
    "http://localhost.example:8080",
    "http://127.0.0.1:8080/b",
    "http://[fe80::1]:8080",
]


@pytest.mark.parametrize("url", SAME)
def test_loopback_names_share_one_key(url: str) -> None:
    assert Target("one", "reference", admin=url).key == Target("other", "http", admin=HERE).key


@pytest.mark.parametrize("url", OTHERS)
def test_other_hosts_have_other_keys(url: str) -> None:
    assert canonical_url(url) != canonical_url(HERE)


def test_default_port_is_explicit() -> None:
    assert canonical_url("http://Host") == canonical_url("http://host:80/")
    assert canonical_url("https://host") == canonical_url("https://host:443")


@pytest.mark.parametrize("text", ["", "pid 12", "memory", "http://[::1", "http://h:99999", "http://h:x"])
def test_text_that_is_no_url_is_unchanged(text: str) -> None:
    assert canonical_url(text) == text


def test_process_key_has_pid_and_start() -> None:
    assert Target("p", "process", pid=12, started=7.0).key != Target("p", "process", pid=12, started=8.0).key


def test_host_and_port_of_a_url() -> None:
    assert host_and_port("http://LocalHost:8000/a") == "127.0.0.1:8000" != host_and_port("http://127.0.0.1:8001")
    assert host_and_port("http://[2001:DB8::0:1]") == "[2001:db8::1]:80"


@given(st.text(max_size=60))
def test_any_text_has_one_spelling(text: str) -> None:
    for url in (text, f"http://{text}", f"http://{text}:80/"):
        assert canonical_url(canonical_url(url)) == canonical_url(url)
        assert "/" not in host_and_port(url)
