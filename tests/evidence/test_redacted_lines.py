"""Redacting the lines that a search finds gives what redacting the whole text gives."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.evidence.prefilter import Prefilter
from latdoctor.evidence.redaction.detectors import DETECTORS
from latdoctor.evidence.redaction.patterns import FIELD_WORDS, NEEDLES, WORDS, fields, lowered
from latdoctor.evidence.redaction.redactor import Redactor

PRIVATE = [
    "Authorization: Bearer abcdefgh12345678",
    '{"authorization": "Basic dXNlcjpwYXNz"}',
    "Cookie: a=b; c=d",
    "hf_" + "a1" * 10,
    "ghp_" + "a1" * 12,
    "AKIA" + "A1" * 8,
    "xoxb-1234567890-a",
    "sk-" + "ab1" * 7,
    "eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl",
    "--api-key s3cr3t",
    "--hf-token=abc123xyz",
    "--db-password x9y8z7",
    "DB_PASSWORD=hunter2x",
    "GITHUB_TOKEN: abcdef99",
    "password = 'hunter 2'",
    'token: "abc"',
    '\\"api_key\\": \\"abc\\"',
    "pad_token=5",
    "user alice failed",
    "for user 'bob'",
    "invalid user carol from 10.0.0.7",
    "Accepted publickey for dave from 10.1.2.3 port 7",
    "user_id=42",
    '"user": "eve"',
    "session_id:\u00a0abc",
    "customer_id\u2003= 7",
    "prompt: tell me all",
    'prompt="a b c"',
    '{"inputs": ["a", "b"]}',
    "question=who are you a=b",
    "user input: hello",
    "content: 'x'",
    "alice@example.org",
    "postgres://u:p@db/x",
    "https://example.org/users/12345?token=abc&x=1",
    '"GET /v1/users/31337 HTTP/1.1" 200',
    "10.0.0.1 - frank [10/Oct/2025:13:55:36",
    "/" + "home/grace/x.py",
    "/Users/heidi/y",
    "6f1f6e1a-1111-2222-3333-444444444444",
    "GPU-6f1f6e1a-1111-2222-3333-444444444444",
    "aa:bb:cc:dd:ee:ff",
    "MAC=aa:bb:cc:dd:ee:ff:00:11",
    "10.20.30.40",
    "version 1.2.3.4",
    "fe80::1%eth0",
    "::1",
    "2001:db8:1:2:3:4:5:6",
    "pa\u017f\u017fword: x9",
    "to\u212aen=abc9",
    "authorizat\u0131on: Basic dXNlcjpwYXNz",
    "cuda release",
    'password: "a b',
    "-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----",
]
PLAIN = [
    "step 7 of 9",
    "Running: 3 reqs, Waiting: 0 reqs",
    "Avg prompt throughput: 3.0 tokens/s",
    " ",
    ", ",
    "\t",
    "a=b",
    "é",
]
LINES = st.lists(
    st.lists(st.sampled_from(PRIVATE) | st.sampled_from(PLAIN) | st.text(max_size=8), max_size=4).map(" ".join),
    max_size=8,
)


def _whole(redactor: Redactor, raw: bytes) -> bytes:
    return redactor.text(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


@settings(deadline=None, max_examples=300)
@given(LINES | st.lists(st.sampled_from(PRIVATE).map(lambda text: f"x {text} y"), max_size=5))
def test_lines_are_redacted_as_the_whole_text_is(lines: list[str]) -> None:
    raw = "\n".join(lines).encode("utf-8", "surrogatepass")
    by_lines, whole = Redactor(b"key"), Redactor(b"key")
    assert by_lines.content(raw) == _whole(whole, raw)
    assert by_lines.counts == whole.counts


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(PRIVATE) | st.text(max_size=6), max_size=4).map(" ".join))
def test_the_fields_of_the_words_in_a_line_find_what_all_fields_find(line: str) -> None:
    low = lowered(line)
    chosen = sum(1 << place for place, words in enumerate(FIELD_WORDS) if any(word in low for word in words))
    found = fields(chosen).finditer(line) if chosen else ()
    every = fields((1 << len(FIELD_WORDS)) - 1).finditer(line)
    assert [(one.span(), one.lastgroup) for one in found] == [(one.span(), one.lastgroup) for one in every]


@given(st.binary(max_size=400))
def test_any_bytes_are_redacted(raw: bytes) -> None:
    assert Redactor(b"key").content(raw) == _whole(Redactor(b"key"), raw)


@pytest.mark.parametrize("text", PRIVATE)
def test_what_is_private_is_found(text: str) -> None:
    found = Redactor(b"key")
    if found.text(text) != text:
        assert Prefilter(NEEDLES).search(text.encode()) or any(DETECTORS.found(text.encode()))


def test_lines_without_anything_private_are_passed_over() -> None:
    rest = [line for line in PLAIN if Prefilter(NEEDLES).search(line.encode())]
    assert rest == []


@pytest.mark.parametrize(
    "unit", [*(word.encode() for word in WORDS), b"a_", b"--a-", b"1.", b"a:", b" - a", b"\xc2\xa0"]
)
def test_the_search_takes_bounded_time(unit: bytes) -> None:
    block = unit * ((1 << 18) // len(unit))
    began = time.process_time()
    assert list(Prefilter(NEEDLES).lines(block)) in ([], [(0, len(block))])
    assert time.process_time() - began < 1
