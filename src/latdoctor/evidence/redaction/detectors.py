"""Finds credentials by their form: the rules of gitleaks, rules of our own for what these leave out, and randomness.

The rules are data (`gitleaks.json`, made by tools/convert_gitleaks.py, and `more_rules.json`). RE2 looks for all of
them in one pass over the bytes; only where it finds something are single rules tried, so that a text without secrets
costs one search.

A string is taken for random where letters of both cases and digits follow each other without the pattern of words:
half of the neighbours are of different kinds. A digest is of digits and `a` to `f`, and stays.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from latdoctor.evidence.prefilter import Prefilter
from latdoctor.evidence.redaction.names import entropy

RANDOM = "random"  # kind of what no rule knows
CREDENTIAL = "credential"
# The rules of gitleaks; and what they leave out: addresses that are secrets as a whole, and shorter forms.
_FILES = ("gitleaks.json", "more_rules.json")
_END = "(?:[^0-9A-Za-z]|$)"  # of most rules
_LEAST_RUN, _ENOUGH = 8, 12  # characters of a run that are looked for before a rule is tried
_RUN = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_CLASS = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]")
_WINDOW = 160  # bytes in which a rule's keyword stands
_LONGEST = 4096  # bytes of one credential
_TOKEN = rb"[0-9A-Za-z_+/=~-]"
_CHARS = bytes(code for code in range(128) if re.match(_TOKEN, bytes([code])))
_HIDDEN = b"redacted"
_SEPARATED = r"""(?:[ \t\w.-]{0,20})[\s'"]{0,3}"""  # of the rules that go by the name of a product before the secret
_RANDOM = r"(?:[A-Z]{1,7}[0-9a-z]{1,10}){4}"
_BEFORE_DIGEST = re.compile(rb"(?i:sha-?\d{1,3}|md5|digest|fingerprint|etag)[-_:=\"'/ ]{1,2}\Z")
# Of a request or a run: `chatcmpl-…` is what a log is searched for.
_ID = re.compile(
    rb"(?:chatcmpl|cmpl|resp|msg|req|request|call|run|thread|batch|file|asst|trace|span|conv)[-_](?=[0-9A-Za-z]{12})"
)
_MIXED = re.compile(_RANDOM.encode())
_KINDS = re.compile(rb"[A-Z]+|[a-z]+|[0-9]+")
_MANGLED = re.compile(rb"\w{0,24}_(?:Z|R[A-Z])")  # names of C++ and Rust as the linker knows them
_LEAST = 20  # characters of a random string
Put = Callable[[str, str], str]  # what stands where a string of this kind stood


@dataclass(frozen=True, slots=True)
class Rule:
    """A form of credentials. `group`: of the expression, that is the secret; `least`: bits of entropy per character."""

    id: str
    keywords: tuple[bytes, ...]
    regex: str
    least: float = 0.0
    group: int = 1


class Detectors:
    """All rules. `redact` finds and replaces; it never raises."""

    def __init__(self) -> None:
        self._ready: dict[int, Any] = {}

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, of gitleaks first."""
        texts = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in _FILES)
        return tuple(_rule(one) for text in texts for one in json.loads(text)["rules"])

    @cached_property
    def _any_rule(self) -> Prefilter:
        return Prefilter(_needles(rule.regex for rule in self.rules))

    @cached_property
    def search(self) -> Prefilter:
        return Prefilter((*self._any_rule.needles, _RANDOM.encode()))

    def _compiled(self, place: int) -> Any:
        if place not in self._ready:
            import re2  # loaded where a text has something that looks like a secret

            options = re2.Options()
            options.encoding = re2.Options.Encoding.LATIN1
            options.log_errors = False
            self._ready[place] = re2.compile(self.rules[place].regex.encode(), options)
        return self._ready[place]

    def redact(self, raw: bytes, put: Put) -> bytes:
        """`raw` with each credential replaced by what `put` gives for its kind and text."""
        parts, done = [], 0
        for start, end, kind in self.found(raw):
            parts += [raw[done:start], put(kind, raw[start:end].decode("latin1")).encode()]
            done = end
        return b"".join([*parts, raw[done:]]) if parts else raw

    def found(self, raw: bytes) -> Iterator[tuple[int, int, str]]:
        """Where each credential begins and ends, and its kind; they do not overlap."""
        yield from self._between(raw, 0, 0, len(raw))

    def _between(self, raw: bytes, taken: int, at: int, end: int) -> Iterator[tuple[int, int, str]]:
        """What begins from `at` on and ends before `end`; what precedes `taken` belongs to another."""
        judged = at  # up to where it is known that nothing is random
        while (hit := self.search.first(raw, at, end)) is not None:
            span = self._by_rule(raw, hit[0], taken)
            if span is None and hit[0] >= judged:
                span = _random_at(raw, hit[0], taken, end)
                judged = judged if span else min(end, _to_the_end(raw, hit[0]))
            if span is None or span[1] > end:
                at = hit[0] + 1
                continue
            if span[2] is CREDENTIAL:  # what leads to a secret may be one
                yield from self._between(raw, taken, hit[0], span[0])
            yield span
            at = taken = span[1]

    def _by_rule(self, raw: bytes, at: int, taken: int) -> tuple[int, int, str] | None:
        if not self._any_rule.begins(raw, at, _LONGEST):
            return None
        window = raw[at : at + _WINDOW].lower()
        for place, rule in enumerate(self.rules):
            if not any(word in window for word in rule.keywords):
                continue
            found = self._compiled(place).match(raw, at, at + _LONGEST)
            if found is None:
                continue
            start, end = _span(found, rule.group)
            end = _to_the_end(raw, end)
            if (
                start < max(taken, at)
                or raw[start:end] == _HIDDEN
                or entropy(raw[start:end].decode("latin1")) < rule.least
            ):
                continue
            return start, end, CREDENTIAL
        return None


def _rule(raw: dict[str, Any]) -> Rule:
    words = tuple(word.encode() for word in raw["keywords"])
    return Rule(raw["id"], words, raw["regex"], raw.get("entropy", 0.0), raw.get("group", 1))


def _span(found: Any, group: int) -> tuple[int, int]:
    """Of the group, else of the first one that took part (a rule may have one for each alternative)."""
    for one in (group, *range(1, found.re.groups + 1)):
        if found.start(one) >= 0:
            return found.span(one)  # type: ignore[no-any-return]
    return found.span()  # type: ignore[no-any-return]


_REST = re.compile(_TOKEN + rb"{0,%d}" % _LONGEST)


def _to_the_end(raw: bytes, end: int) -> int:
    """A longer string than a rule knows is taken whole."""
    found = _REST.match(raw, end)
    return found.end() if found else end


def _random_at(raw: bytes, at: int, taken: int, stop: int) -> tuple[int, int, str] | None:
    """The string around a hit, where it is random: as a whole, else the part between slashes."""
    found = _MIXED.match(raw, at)
    if found is None:
        return None
    low = max(taken, at - _LONGEST)
    start, end = low + len(raw[low:at].rstrip(_CHARS)), min(stop, _to_the_end(raw, found.end()))
    # What was hidden before is no part of it.
    start = max(start, raw.rfind(_HIDDEN, start, at) + len(_HIDDEN) if _HIDDEN in raw[start:at] else start)
    behind = raw.find(_HIDDEN, found.end(), end)
    end = start + len(raw[start : behind if behind >= 0 else end].rstrip(b"/"))
    if _BEFORE_DIGEST.search(raw[max(0, start - 24) : start]):
        return None
    whole = raw[start:end]
    if _ID.match(whole):
        return None
    key, equals, _ = whole.partition(b"=")
    if equals and len(whole) - len(key) > _LEAST:  # name=value
        start, whole = start + len(key) + 1, whole[len(key) + 1 :]
    if not whole.startswith(b"/") and is_random(whole):
        return start, end, RANDOM
    for part in re.finditer(rb"[^/]+", whole):
        if part.end() + start > at and is_random(part[0]):
            return start + part.start(), start + part.end(), RANDOM
    return None


@lru_cache(1 << 14)
def is_random(token: bytes) -> bool:
    """Whether letters of both cases and digits are mixed as only chance mixes them."""
    text = re.sub(rb"[^0-9A-Za-z]", b"", token)
    total = len(text)
    if total < _LEAST or _MANGLED.match(token):
        return False
    runs = _KINDS.findall(text)
    lower, upper = (sum(len(run) for run in runs if kind(run)) / total for kind in (bytes.islower, bytes.isupper))
    if min(lower, upper) < 0.1 or lower + upper == 1 or (len(runs) - 1) / (total - 1) < 0.42 or max(map(len, runs)) > 9:
        return False
    return entropy(text.decode("latin1")) >= 0.85 * math.log2(min(total, 40))


def _needles(rules: Iterable[str]) -> Iterator[bytes]:
    """What the one search for all looks for: where a rule may begin. It is built at each start, so it is kept small.

    Of the rules that go by a name, all names before one separator are enough; of the others what precedes a long run.
    """
    names = []
    for regex in rules:
        name, separated, rest = regex.partition(_SEPARATED)
        if separated:
            names.append(name.removeprefix("(?i:").removeprefix("(?i:"))
        if not separated or r"|\b(" in rest:
            yield _shortened(regex).encode()
    after = r"""(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}[\w=.~-]{8}"""
    yield f"(?i:(?:{'|'.join(names)}){_SEPARATED}{after})".encode()


def _shortened(regex: str) -> str:
    """Without what follows a run of characters, where no alternative does: many counters are slow to build."""
    for run in _RUN.finditer(regex):
        if int(run[1]) < _LEAST_RUN or "|" in _CLASS.sub("", regex[run.end() :].removesuffix(_END)):
            continue
        kept = regex[: run.start()]
        plain = _CLASS.sub("", kept)
        if len(re.findall("[0-9A-Za-z]", plain.replace("?i:", ""))) < 3:
            break  # what is left would begin in any word
        return f"{kept}{{{min(int(run[1]), _ENOUGH)}}}{')' * (plain.count('(') - plain.count(')'))}"
    return _RUN.sub(lambda run: f"{{{run[1]},}}" if run[2] and int(run[2]) > 60 else run[0], regex)


DETECTORS = Detectors()
