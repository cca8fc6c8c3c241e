"""The small language of sample names: `new_name | old_name{label="a|b",other!="c"}`."""

from __future__ import annotations

import re

from latdoctor.dialects.model import LabelMatch, Selector, Term

_NAME = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*")
_MATCH = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(!?=)\s*"([^"]*)"\s*')


def parse_term(text: str) -> Term:
    """`a | b{c="d"}` → the alternatives in their order. Raises ValueError."""
    options: list[Selector] = []
    rest = text
    while True:
        name = _NAME.match(rest)
        if not name:
            raise ValueError(f"{text!r} is not a sample name with an optional label filter")
        rest = rest[name.end() :]
        matches: tuple[LabelMatch, ...] = ()
        if rest.startswith("{"):
            matches, rest = _filter(text, rest[1:])
        options.append(Selector(name[1], matches))
        rest = rest.strip()
        if not rest:
            return Term(tuple(options))
        if not rest.startswith("|"):
            raise ValueError(f"{text!r}: expected '|' before {rest!r}")
        rest = rest[1:]


def _filter(text: str, rest: str) -> tuple[tuple[LabelMatch, ...], str]:
    matches: list[LabelMatch] = []
    while True:
        found = _MATCH.match(rest)
        if not found:
            raise ValueError(f'{text!r}: a label filter is written {{label="a|b",other!="c"}}')
        matches.append(LabelMatch(found[1], tuple(found[3].split("|")), found[2] == "!="))
        rest = rest[found.end() :]
        if rest.startswith("}"):
            return tuple(matches), rest[1:]
        if not rest.startswith(","):
            raise ValueError(f"{text!r}: the label filter is not closed")
        rest = rest[1:]
