"""When two spellings of an address are one target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.remedy.target import Target, canonical, place_of

HERE = (
    *("http://localhost:8000", "HTTP://LocalHost:8000/", "http://127.0.0.1:8000", "http://127.9.9.9:8000"),
    *("http://[::1]:8000", "http://[::ffff:127.0.0.1]:8000", "http://0.0.0.0:8000", "http://127.1:8000"),
    *("http://localhost.:8000", "http://a.localhost:8000", "http://[::]:8000", "http://2130706433:8000"),
)


@pytest.mark.parametrize("url", HERE)
def test_every_name_of_this_machine_is_one(url: str) -> None:
    assert canonical(url) == "http://127.0.0.1:8000"
    assert Target("x", "reference", admin=url).key == Target("y", "reference", admin=HERE[0]).key


@pytest.mark.parametrize(
    ("url", "spelt"),
    [
        ("http://Bot.example/", "http://bot.example:80"),
        ("https://bot.example", "https://bot.example:443"),
        ("http://10.0.0.5:8000", "http://10.0.0.5:8000"),
        ("http://[2001:DB8::0:1]:8000", "http://[2001:db8::1]:8000"),
        ("http://bot.example:8000/a/", "http://bot.example:8000/a"),
        ("", ""),
    ],
)
def test_what_differs_stays_apart(url: str, spelt: str) -> None:
    assert canonical(url) == spelt


def test_another_port_is_another_place() -> None:
    assert place_of("http://127.0.0.1:8000") == "127.0.0.1:8000" != place_of("http://127.0.0.1:8001")


@given(st.text(max_size=60))
def test_any_text_has_one_spelling(text: str) -> None:
    for url in (text, f"http://{text}", f"http://{text}:80/"):
        assert canonical(canonical(url)) == canonical(url)
        assert "/" not in place_of(url)
