"""Whether a field holds a credential, by its name: of an environment, a header, a setting, a label or a JSON key.

A name is read as its words (`awsSessionToken`, `aws_session_token` and `AWS-SESSION-TOKEN` are three words each), so
that an unknown prefix changes nothing. Words that tell a token of text from one of access, and a key of a
cache from one of a door, are named here; what is neither is judged by its value too (`looks_secret`).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from enum import Enum
from functools import lru_cache
from importlib.resources import files

_LISTS: dict[str, list[str]] = json.loads(files(__package__).joinpath("names.json").read_text(encoding="utf-8"))
CORES = tuple(_LISTS["cores"])  # every name of a credential contains one of these, in lower case
_TOKENS = frozenset(_LISTS["tokens"])  # of access: `refresh_token`
_OF_TEXT = frozenset(_LISTS["of_text"])  # not of access: `pad_token`, `time_per_output_token`
_OF_DATA = frozenset(_LISTS["of_data"])  # keys that open nothing: of a cache, a table, a tensor; often a digest
_ABOUT = frozenset(_LISTS["about"])  # what follows tells of the credential, and is not it: `password_file`
_REMEMBERED = 1 << 14
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_OPENS = ("api", "access", "secret", "private", "client", "ssh", "master", "account", "signing", "encryption")
_WHOLE = re.compile(
    r"pass(?:word|wd|phrase|code|wort)?s?|kennwort|pwd?|otp|secrets?|credentials?|creds?"
    r"|(?:api|access|secret|private|auth|account|master|signing|encryption|shared|license|admin|deploy)keys?"
    r"|(?:access|auth|refresh|session|csrf|xsrf|api|bearer|security|secret|id)tokens?|(?:client|app|consumer|api)secret"
)
_STRONG_ENDS = ("password", "passwd", "passphrase", "secret", "apikey", "authtoken", "accesstoken", "secretkey")


class Secrecy(Enum):
    """What a name says of its value: nothing, that it may be a credential, that it is one."""

    NONE = 0
    LIKELY = 1
    CERTAIN = 2


@lru_cache(_REMEMBERED)
def secrecy(name: str) -> Secrecy:
    """Of a name of ASCII letters, digits, `_`, `-` and `.`."""
    words = [word.lower() for word in _WORDS.findall(name.removesuffix("-data"))]  # client-key-data
    while words and words[-1] in ("v", "base", "value", "str", "string", "plain", "text", "raw", "old", "current"):
        words.pop()  # token_v2, SECRET_BASE64, password-plain
    if not words:
        return Secrecy.NONE
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if "webhook" in words and last in ("webhook", "url", "uri", "address", "endpoint"):  # that is what opens it
        return Secrecy.LIKELY
    if last in _ABOUT and not (last == "id" and before == "secret"):
        return Secrecy.NONE
    if last in ("key", "keys"):
        return _of_key(before, words)
    if last == "token":
        return _of_token(name, before)
    if _WHOLE.fullmatch(last) or last.endswith(_STRONG_ENDS) or last == "id":
        return (
            Secrecy.LIKELY
            if last == "secrets" or (last in ("cred", "creds", "pass") and not before)
            else Secrecy.CERTAIN
        )
    if last == "sid" or (
        last.endswith(("authtoken", "token", "authkey", "sessid", "sessionid")) and last not in _OF_TEXT
    ):
        return Secrecy.LIKELY
    if any(word in ("auth", "oauth", "xauth", "authorization", "cookie", "cookies") for word in words):
        return Secrecy.LIKELY
    known = ("passwords", "signature", "otp", "password", "passwd", "secret", "apikey", "credential")
    return Secrecy.LIKELY if any(word in known for word in words) else Secrecy.NONE


def _of_key(before: str, words: list[str]) -> Secrecy:
    if before.endswith(("api", "access", "secret", "private", "auth")) and words[-1] == "key":
        return Secrecy.CERTAIN
    if before in ("routing", "integration", "service", "storage", "subscription", *_OPENS):
        return Secrecy.LIKELY
    return Secrecy.NONE if not before or before in _OF_DATA or words[-1] == "keys" else Secrecy.LIKELY


def _of_token(name: str, before: str) -> Secrecy:
    if before in _OF_TEXT:
        return Secrecy.NONE
    return Secrecy.CERTAIN if not before or before in _TOKENS or name.isupper() else Secrecy.LIKELY


def entropy(text: str) -> float:
    """Shannon's, in bits for each character."""
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values()) if total else 0.0


_HARMLESS_VALUE = re.compile(
    r"[<$%{(\[].*|.*\(.*|/.*|\.{1,2}/.*|~/.*|[\d.,:+%-]*[a-zA-Zµ/%]{0,6}|v?\d+(?:\.\d+)*[\w.+-]{0,12}"
    r"|\d{4}-\d\d-\d\d.*|0x[0-9a-fA-F]{1,16}|[a-z]+(?:[-_./ ][a-z]+)*|[A-Z]+(?:[-_][A-Z]+)*|(?:[A-Z]?[a-z]+){1,6}"
    r"|(?:torch|bfloat|float|int|uint|fp|bf)\w*|[\w.-]+:\d{1,5}|(?:sha\d+|md5)[:-].*"
)


def looks_secret(value: str) -> bool:
    """Whether a value may be a credential where its name only says so much: neither a word nor a number nor a path."""
    if len(value) < 6 or _HARMLESS_VALUE.fullmatch(value):
        return False
    return len(value) >= 16 or (entropy(value) >= 2.2 and any(one.isdigit() for one in value))


_RUNNING = re.compile(
    r"(?:chatcmpl|cmpl|resp|msg|req|request|call|run|batch|file|trace|span)[-_].*|.*[:=].*|[a-z]+(?:[_-][a-z]+)*[_-]?\d{1,6}"
)
# A model, a version, a pod: more than one word between dashes and dots.
_PARTS = re.compile(r"(?![0-9a-f]{8}-[0-9a-f]{4}-)(?:\w+[.-]){2,}\w+")
_MIXED = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*\d).{10,}")


def looks_spoken(word: str, before: str, value: str) -> bool:
    """Whether a value that only follows a word (`token VALUE`) is a credential, and not a token of text or an id."""
    if word.lower().startswith("pass"):
        return looks_secret(value) and ":" not in value and "=" not in value
    if len(value) < 8 or not looks_secret(value) or _RUNNING.fullmatch(value) or _PARTS.fullmatch(value):
        return False
    return before.lower() not in _OF_TEXT or _MIXED.fullmatch(value) is not None
