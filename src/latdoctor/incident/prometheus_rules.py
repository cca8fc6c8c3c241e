"""Shipped Prometheus alert rules: one file for each server or exporter with a dialect."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from latdoctor.dialects.loader import shipped
from latdoctor.errors import UsageError
from latdoctor.resources import folder
from latdoctor.sanitize import clean

SUFFIX = ".rules.yml"
_ALERT = re.compile(r"^ *- alert: (\w+)$", re.MULTILINE)
_P99 = re.compile(r"(record: latdoctor:slo_p99_seconds\n *expr: vector\()[^)\n]*")
_ERRORS = re.compile(r"(record: latdoctor:slo_error_ratio\n *expr: vector\()[^)\n]*")


@cache
def files() -> dict[str, Path]:
    """By the name of the dialect."""
    found = sorted(folder("alerts").glob(f"*{SUFFIX}"))
    return {path.name.removesuffix(SUFFIX): path for path in found}


def title(name: str) -> str:
    """How the server is called."""
    return next((dialect.title for dialect in shipped() if dialect.id == name), name)


def text(name: str, p99: float | None = None, errors: float | None = None) -> str:
    """Rules for `name`, with the SLO replaced where given: seconds, and a share of all requests.

    Raises UsageError where there is no such file, or no SLO in it.
    """
    known = files()
    if name not in known:
        similar = get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(similar)}?" if similar else "latdoctor alerts list"
        raise UsageError(f"there are no alert rules for {clean(name, 80)!r}", next_step=hint)
    found = known[name].read_text(encoding="utf-8")
    return _changed(_changed(found, _P99, p99, name), _ERRORS, errors, name)


def alerts(content: str) -> tuple[str, ...]:
    """The alerts that a file has, in its order."""
    return tuple(_ALERT.findall(content))


def has_slo(content: str) -> bool:
    return _P99.search(content) is not None


def _changed(content: str, pattern: re.Pattern[str], value: float | None, name: str) -> str:
    if value is None:
        return content
    replaced, count = pattern.subn(rf"\g<1>{value:.12g}", content)
    if not count:
        raise UsageError(f"the alerts for {name} are on hardware and have no SLO", next_step="leave it out")
    return replaced
