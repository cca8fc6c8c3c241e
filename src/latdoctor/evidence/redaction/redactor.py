"""Removes private data from raw artifacts and from what is shown: prompts, secrets, addresses, user ids.

In a bundle each is replaced by a pseudonym (`ip-3f9a1c07`, `user-…`, `id-…`): the same text gives the same one
throughout a bundle, so that equal values stay recognisable. They are keyed digests (BLAKE2b) with a key that exists for
one bundle only and is stored nowhere: they cannot be reversed by trying names, and two bundles share no pseudonym. Of a
prompt the length is kept too, of a secret nothing.

A text passes four looks: blocks of several lines (`blocks`), credentials by their form (`detectors`), fields by their
names (`names`, `patterns`), and forms of addresses and ids. What is shown, journaled or sent (`without_secrets`) passes
the same looks but the last, and of the fields those that hold credentials and prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice

from latdoctor.evidence.prefilter import Prefilter
from latdoctor.evidence.redaction.blocks import OPENERS, Blocks
from latdoctor.evidence.redaction.detectors import DETECTORS
from latdoctor.evidence.redaction.makers import HIDDEN, Makers
from latdoctor.evidence.redaction.patterns import (
    FIELD_WORDS,
    FORMS,
    LOGIN,
    NEEDLES,
    PEM,
    SHOWN,
    SHOWN_NEEDLES,
    fields,
    lowered,
)

__all__ = ["HIDDEN", "Redactor", "pieces", "without_credentials", "without_secrets"]
_SHORT = 2000  # characters
_LINES = Prefilter(NEEDLES)
_SIGNS = {sign: Prefilter((sign.pattern.encode(),)) for sign, _ in FORMS}
_PEM = re.compile(PEM[1])


@cache
def _quick() -> Prefilter:
    """Both searches as one: most pieces of a log have neither a block nor a credential."""
    return Prefilter((*OPENERS.needles, *DETECTORS.search.needles))


_Groups = Sequence[tuple[int, Sequence[str]]]


class Redactor(Makers):
    """Redacts the artifacts of one bundle, or with `shown` what is shown."""

    def text(self, text: str) -> str:
        """`text` redacted; redacting it again changes nothing."""
        if self._shown and not _may_be_private(text):
            return text
        return self.rest(self.credentials(text))

    def content(self, raw: bytes) -> bytes:
        """A text artifact redacted. Bytes that are no UTF-8 stay as they are."""
        return Stream(self).content(raw)

    def credentials(self, text: str) -> str:
        """`text` without what is found in its bytes: blocks, and credentials by their form."""
        try:
            errors, raw = "surrogateescape", text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # of JSON, where half a character may stand
            errors, raw = "surrogatepass", text.encode("utf-8", "surrogatepass")
        made = DETECTORS.redact(Blocks(self.put).redact(raw) if b"\n" in raw else raw, self.put)
        return text if made is raw else made.decode("utf-8", errors)

    def rest(self, text: str) -> str:
        """`text` without what is found line by line: fields, and forms of addresses and ids."""
        if "://" in text and "@" in text:  # before the rest of a login is taken for a mail address
            text, logins = LOGIN.subn(r"\1", text)
            self.counts.update({"secrets": logins} if logins else {})
        text = self.fields(text)
        if self._shown:
            return self.sub(_PEM, text) if PEM[0] in text else text
        for sign, form in FORMS:
            if _contains(sign, text):
                text = self.sub(form, text)
        return text

    def fields(self, text: str) -> str:
        """`text` with its fields redacted, line by line."""
        low = lowered(text)
        groups = [
            (1 << place, found)
            for place, words in enumerate(FIELD_WORDS)
            if (not self._shown or SHOWN >> place & 1) and (found := [word for word in words if word in low])
        ]
        return "\n".join(self._line(line, groups) for line in text.split("\n")) if groups else text

    def _line(self, line: str, groups: _Groups) -> str:
        """The fields of a line redacted, of the groups that a text around it has words of."""
        low = lowered(line)
        chosen = sum(bit for bit, words in groups if any(word in low for word in words))
        if not chosen:
            return line
        bodies, whole = line.splitlines(), line.splitlines(keepends=True)
        ends = [part[len(body) :] for body, part in zip(bodies, whole, strict=True)]  # a value ends before them
        return "".join([self.sub(fields(chosen), body) + end for body, end in zip(bodies, ends, strict=True)])


class Stream:
    """One text that comes in pieces of whole lines. Where they end does not matter."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._blocks = Blocks(redactor.put)

    def content(self, raw: bytes) -> bytes:
        """The next piece."""
        if self._blocks.is_open or _quick().search(raw):
            raw = DETECTORS.redact(self._blocks.redact(raw), self._redactor.put)
        spans = list(_LINES.lines(raw))
        if not spans:
            return raw
        # All found at once: the patterns keep to a line, and what precedes each search happens once.
        found = [raw[start:end] for start, end in spans]
        lines = iter(self._rest(b"\n".join(found)).split(b"\n"))
        parts, done = [], 0
        for (start, end), text in zip(spans, found, strict=True):
            parts += [raw[done:start], next(lines)]
            if b"\n" in text:  # a needle may reach into the next line
                parts.append(b"".join([b"\n" + line for line in islice(lines, text.count(b"\n"))]))
            done = end
        return b"".join([*parts, raw[done:]])

    def _rest(self, raw: bytes) -> bytes:
        return self._redactor.rest(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _contains(sign: re.Pattern[str], text: str) -> bool:
    """RE2 is the faster of both, but in a short text its call takes longer than the search."""
    if len(text) < _SHORT:
        return sign.search(text) is not None
    return _SIGNS[sign].search(text.encode("utf-8", "surrogatepass"))


def _may_be_private(text: str) -> bool:
    """Whether it is worth a closer look: most texts that are shown are not."""
    raw = text.encode("utf-8", "surrogatepass")
    return _NAMED.search(raw) or DETECTORS.search.search(raw) or (b"\n" in raw and OPENERS.search(raw))


_NAMED = Prefilter(SHOWN_NEEDLES)
_SHOWN = Redactor(b"", shown=True)


def without_secrets(text: str) -> str:
    """`text` without credentials and prompts, and with all else: it is shown to who gave it, who may pass it on."""
    return _SHOWN.text(text)


def without_credentials(text: str) -> str:
    """A sentence of our own without the credentials in values that it quotes, known by their form.

    Names say nothing in it: "set the target's token: LATDOCTOR_ADMIN_TOKEN" tells what to do.
    """
    return _SHOWN.credentials(text)


def pieces(blocks: Iterator[bytes], longest: int) -> Iterator[bytes]:
    """`blocks` cut anew behind line ends, else behind commas, so that nothing that belongs together is cut in two."""
    rest = b""
    for block in blocks:
        rest += block
        cut = rest.rfind(b"\n") + 1 or (rest.rfind(b",") + 1 if len(rest) > longest else 0)
        if not cut and len(rest) > 2 * longest:
            cut = len(rest)
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest
