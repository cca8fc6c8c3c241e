"""Removes private data from raw artifacts: prompts, secrets, addresses, user ids.

Each is replaced by a pseudonym (`ip-3f9a1c07`, `user-…`, `id-…`): the same text gives the same one throughout a bundle,
so that equal values stay recognisable. They are keyed digests (BLAKE2b) with a key that exists for one bundle only and
is stored nowhere: they cannot be reversed by trying names, and two bundles share no pseudonym. Of a prompt the length
is kept too, of a secret nothing.

What is recognised, in any text: credentials (Authorization headers, `token=`, keys of well-known forms), e-mail
addresses, IP addresses but those of this machine itself, UUIDs but those of GPUs, the values of fields that are called
like a user, a session or a prompt, and in request lines and URLs the query's values and path parts that look like ids.
A pseudonym is made of letters, digits and `-` only, so that JSON stays JSON and labels stay labels.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from latdoctor.evidence.prefilter import Prefilter
from latdoctor.evidence.redaction.patterns import (
    ADDRESS,
    FIELD_WORDS,
    FORMS,
    IDENTIFIER,
    LOGIN,
    NEEDLES,
    NO_NAME,
    NO_PERSON,
    NOTHING,
    NUMBER,
    OWN,
    PEM,
    QUERY,
    SECRETS,
    STANDS_ALONE,
    VERSION,
    fields,
    lowered,
)

HIDDEN = "redacted"  # stands where a credential stood
_DIGITS = 8
_REMEMBERED = 1 << 16  # addresses
_SHORT = 2000  # characters
_LINES = Prefilter(NEEDLES)
_SIGNS = {sign: Prefilter((sign.pattern.encode(),)) for sign, _ in FORMS}


class Redactor:
    """Redacts the artifacts of one bundle. `key` is made anew where none is given (as tests do)."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(32) if key is None else key
        self.counts: Counter[str] = Counter()
        self._addresses: dict[str, str] = {}
        self._makers: dict[str, Callable[[re.Match[str]], str]] = {
            "auth_value": self._credential, "cookie_value": self._credential, "key": self._credential,
            "secret_value": self._secret, "flag_value": self._flag, "pem_value": self._pem, "loose_value": self._loose,
            "user_value": self._user, "prompt_value": self._prompt,
            "bare_value": self._bare, "url": self._url, "target": self._request, "login_value": self._login,
            "home_value": self._login, "mail": self._mail, "uuid": self._uuid, "v4": self._address,
            "v6": self._address, "spoken_value": self._spoken, "accepted_value": self._login, "mac": self._mac,
            "macs_value": self._mac,
        }  # fmt: skip

    def text(self, text: str) -> str:
        """`text` redacted; redacting it again changes nothing."""
        if "://" in text and "@" in text:  # before the rest of a login is taken for a mail address
            text, logins = LOGIN.subn(r"\1", text)
            self.counts.update({"secrets": logins} if logins else {})
        low = lowered(text)
        groups = [(1 << place, found) for place, words in enumerate(FIELD_WORDS)
                  if (found := [word for word in words if word in low])]  # fmt: skip
        if groups:
            text = "\n".join(self._line(line, groups) for line in text.split("\n"))
        for sign, form in FORMS:
            if _contains(sign, text):
                text = form.sub(self._replace, text)
        return text

    def _line(self, line: str, groups: Sequence[tuple[int, Sequence[str]]]) -> str:
        """The fields of a line redacted, of the groups that a text around it has words of."""
        low = lowered(line)
        chosen = sum(bit for bit, words in groups if any(word in low for word in words))
        if not chosen:
            return line
        return "".join(fields(chosen).sub(self._replace, part) for part in line.splitlines(keepends=True))

    def secrets(self, text: str) -> str:
        """`text` without its credentials, and with all else: it needs no key, and gives the same text everywhere."""
        if "://" in text:
            text = LOGIN.sub(r"\1", text)
        if PEM[0] in text:
            text = re.sub(PEM[1], self._replace, text)
        return SECRETS.sub(self._replace, text)

    def content(self, raw: bytes) -> bytes:
        """A text artifact redacted. Bytes that are no UTF-8 stay as they are."""
        if PEM[0].encode() in raw:  # the one thing of several lines
            return self._content(raw)
        spans = list(_LINES.lines(raw))
        if not spans:
            return raw
        # All found at once: the patterns keep to a line, and what precedes each search happens once.
        found = [raw[start:end] for start, end in spans]
        lines = iter(self._content(b"\n".join(found)).split(b"\n"))
        parts, done = [], 0
        for (start, end), text in zip(spans, found, strict=True):
            parts += [raw[done:start], next(lines)]
            if b"\n" in text:  # a needle may reach into the next line
                parts.append(b"".join([b"\n" + line for line in islice(lines, text.count(b"\n"))]))
            done = end
        return b"".join([*parts, raw[done:]])

    def _content(self, raw: bytes) -> bytes:
        return self.text(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def pseudonym(self, kind: str, text: str) -> str:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), key=self._key, digest_size=_DIGITS // 2)
        return f"{kind}-{digest.hexdigest()}"

    def _replace(self, found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        before = found.string[max(0, found.start() - 1) : found.start()]
        if kind in STANDS_ALONE and before and (before.isalnum() or before in STANDS_ALONE[kind]):
            return found[0]
        return self._makers[kind](found)

    def _count(self, kind: str) -> None:
        self.counts[kind] += 1

    def addresses(self, text: str) -> str:
        """`text` with its addresses replaced and nothing else: for names, which must stay names."""
        return ADDRESS.sub(self._address, text)

    def _credential(self, found: re.Match[str]) -> str:
        value = found[found.lastgroup or 0]
        if value == "redacted":
            return found[0]
        self._count("secrets")
        return found[0][: len(found[0]) - len(value)] + "redacted"

    def _secret(self, found: re.Match[str]) -> str:
        value = found["secret_value"]
        inner, put = _unquoted(value)
        # `token=` is a word of counters and tokenizers too: a small number is no secret.
        if inner in ("", "redacted", *NOTHING) or NUMBER.fullmatch(inner):
            return found[0]
        self._count("secrets")
        return found["secret"] + put("redacted")

    def _flag(self, found: re.Match[str]) -> str:
        inner, put = _unquoted(found["flag_value"])
        if inner in ("", "redacted") or NUMBER.fullmatch(inner):
            return found[0]
        self._count("secrets")
        return found["flag"] + put("redacted")

    def _pem(self, found: re.Match[str]) -> str:
        if found["pem_value"] == "redacted":
            return found[0]
        self._count("secrets")
        return found["pem"] + "redacted-----END PRIVATE KEY-----"

    def _user(self, found: re.Match[str]) -> str:
        inner, put = _unquoted(found["user_value"])
        if inner in ("", *NOTHING) or OWN.fullmatch(inner):
            return found[0]
        self._count("user ids")
        made = put(self.pseudonym("user", inner))
        if inner.isdigit() and inner == found["user_value"]:  # a number of JSON becomes a text of JSON
            quote = next((one for one in ('\\"', '"') if found["user"].rstrip().endswith(f"{one}:")), "")
            made = f"{quote}{made}{quote}"
        return found["user"] + made

    def _login(self, found: re.Match[str]) -> str:
        value = found[found.lastgroup or 0]
        if OWN.fullmatch(value):
            return found[0]
        self._count("user ids")
        return found[0][: len(found[0]) - len(value)] + self.pseudonym("user", value)

    def _spoken(self, found: re.Match[str]) -> str:
        """`for user alice`: who it is, and nothing where a word follows that goes with "user" (`user time`)."""
        inner, put = _unquoted(found["spoken_value"])
        name = inner.rstrip(".-")
        led = not found["spoken"].lower().startswith("user")
        ramp = led or inner != found["spoken_value"] or not name.isalpha()
        number = NUMBER.fullmatch(name) and not (led and name.isdigit())  # `user 0.5 sys 0.1` of a timing
        if NO_PERSON.fullmatch(name) or OWN.fullmatch(name) or number or (not ramp and NO_NAME.fullmatch(name)):
            return found[0]
        self._count("user ids")
        return found["spoken"] + put(self.pseudonym("user", name) + inner[len(name) :])

    def _mac(self, found: re.Match[str]) -> str:
        """Of a network card; a date with dashes, and what says that there is none, stay."""
        address = found[found.lastgroup or 0]
        digits = set(address.lower()) - set(":-")
        if len(digits) == 1 or ("-" in address and digits <= set("0123456789")):
            return found[0]
        self._count("addresses")
        return found[0][: len(found[0]) - len(address)] + self.pseudonym("mac", address.lower().replace("-", ":"))

    def _prompt(self, found: re.Match[str]) -> str:
        inner, put = _unquoted(found["prompt_value"])
        if not inner or OWN.fullmatch(inner.strip('"')):
            return found[0]
        self._count("prompts")
        return found["prompt"] + put(self._of_prompt(inner))

    def _loose(self, found: re.Match[str]) -> str:
        value = found["loose_value"]
        if OWN.fullmatch(value) or NUMBER.fullmatch(value):
            return found[0]
        self._count("prompts")
        return found["loose"] + self._of_prompt(value)

    def _bare(self, found: re.Match[str]) -> str:
        if OWN.fullmatch(found["bare_value"].strip()):
            return found[0]
        self._count("prompts")
        return found["bare"] + self._of_prompt(found["bare_value"])

    def _of_prompt(self, text: str) -> str:
        return f"{self.pseudonym('prompt', text)}-{len(text)}-characters"

    def _url(self, found: re.Match[str]) -> str:
        scheme, _, rest = found[0].partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}://{self.text(host)}{self._of_path(slash + path)}"

    def _request(self, found: re.Match[str]) -> str:
        return found["request"] + self._of_path(found["target"])

    def _of_path(self, path: str) -> str:
        way, mark, query = path.partition("?")
        parts = [self._part(part) for part in way.split("/")]
        return "/".join(parts) + (QUERY.sub(self._of_query, mark + query) if mark else "")

    def _part(self, part: str) -> str:
        if not IDENTIFIER.fullmatch(part):
            return part
        self._count("ids")
        return self.pseudonym("id", part)

    def _of_query(self, found: re.Match[str]) -> str:
        if not found[3] or OWN.fullmatch(found[3]):
            return found[0]
        self._count("ids")
        return f"{found[1]}{found[2]}={self.pseudonym('value', found[3])}"

    def _mail(self, found: re.Match[str]) -> str:
        self._count("e-mail addresses")
        return self.pseudonym("mail", found[0].lower())

    def _uuid(self, found: re.Match[str]) -> str:
        before = found.string[max(0, found.start() - 4) : found.start()]
        if before in ("GPU-", "MIG-"):
            return found[0]
        self._count("ids")
        return self.pseudonym("id", found[0].lower())

    def _address(self, found: re.Match[str]) -> str:
        if found.lastgroup == "v4" and VERSION.search(found.string[max(0, found.start() - 16) : found.start()]):
            return found[0]
        known = self._addresses.get(found[0])
        if known is None:
            known = _pseudonym_of_address(found[0], self.pseudonym)
            if len(self._addresses) < _REMEMBERED:
                self._addresses[found[0]] = known
        if known != found[0]:
            self._count("addresses")
        return known


def _contains(sign: re.Pattern[str], text: str) -> bool:
    """RE2 is the faster of both, but in a short text its call takes longer than the search."""
    if len(text) < _SHORT:
        return sign.search(text) is not None
    return _SIGNS[sign].search(text.encode("utf-8", "surrogateescape"))


def without_secrets(text: str) -> str:
    """`text`, which is shown to who gave it, without its credentials: an answer is pasted where others read it."""
    return Redactor(b"").secrets(text)


def _pseudonym_of_address(text: str, pseudonym: Callable[[str, str], str]) -> str:
    """`text` itself where it is no address (a time, a PCI address, a name of C++), or one of this machine's own."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    groups = [group for group in text.split(":") if group]
    own = address.is_loopback or address.is_unspecified
    # Two groups alone may be a name of C++ (`dead::beef`), but not with a zone (`fe80::1%eth0`).
    doubtful = address.version == 6 and len(groups) < 3 and not address.is_link_local and "%" not in text
    return text if own or doubtful else pseudonym("ip", str(address))


def _unquoted(value: str) -> tuple[str, Callable[[str], str]]:
    """What stands within quotes, and how to put something else there."""
    if value.startswith("["):
        return value[1:-1], '["{}"]'.format
    quote = next((one for one in ('\\"', '"', "'") if value.startswith(one)), "")
    end = quote if len(value) > len(quote) and value.endswith(quote) else ""
    return value[len(quote) : len(value) - len(end)], lambda text: f"{quote}{text}{end}"


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
