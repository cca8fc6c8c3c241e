"""Which hosts are this machine."""

from __future__ import annotations

import pytest

from latdoctor.http.safe_address import is_loopback


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.evil.example", False),  # somebody else's name
        ("localhost.evil.example", False),
        ("10.0.0.5", False),
        ("0.0.0.0", False),  # noqa: S104 - what is asked, not what is bound
        ("::", False),
        ("", False),
    ],
)
def test_this_machine_is_told_by_an_address_or_its_one_name(host: str, here: bool) -> None:
    assert is_loopback(host) is here
