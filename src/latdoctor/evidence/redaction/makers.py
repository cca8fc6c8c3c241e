"""What stands where something private stood: for each kind of match, its replacement, or the text itself.

A pseudonym is made of letters, digits and `-` only, so that JSON stays JSON and labels stay labels.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
from collections import Counter
from collections.abc import Callable

from latdoctor.evidence.redaction.detectors import RANDOM
from latdoctor.evidence.redaction.names import Secrecy, looks_secret, looks_spoken, secrecy
from latdoctor.evidence.redaction.patterns import (
    ADDRESS,
    IDENTIFIER,
    NO_NAME,
    NO_PERSON,
    NOTHING,
    NUMBER,
    OWN,
    QUERY,
    STANDS_ALONE,
    VERSION,
)

HIDDEN = "redacted"  # stands where a credential stood
_DIGITS = 8
_REMEMBERED = 1 << 16  # addresses
_FIRST_NAME = re.compile(r"[\w.-]+")
# What a line of a chat or completion API has beside the text, and what a record of a log has beside its message.
_CHAT = re.compile(
    r"[\"'](?:messages|role|model|prompt|max_tokens|max_new_tokens|max_output_tokens|temperature|sampling_params"
    r"|sampling_parameters|choices|input_text|output_text|datatype|chat_history|embeddings?|finish_reason|stop_reason"
    r"|delta|tool_calls|index|rid)\\?[\"']\s*:|[\"'](?:input_|output_)?text\\?[\"']\s*[,}]|sampling_params|SamplingParams|role="
    r"|\b(?:output_token_ids|GenerateRe(?:quest|qInput))\b|[\"']documents\\?[\"']\s*:\s*\[\s*\\?[\"']"
)
_RECORD = re.compile(
    r"[\"'](?:level|severity|levelname|lvl|log\.level|logger|record)\\?[\"']\s*:|^\s*\W?\d{4}-\d\d-\d\d"
)

_OF_A_CHAT_ALONE = re.compile(
    r"message|system|suffix|arguments|documents?|passages?|reasoning|thinking|refusal|data|outputs?|parts|queries"
    r"|sentences|title|tools"
)
_KEY_DATA = re.compile(r"(?!redacted)[0-9A-Za-z+/]{12,}={0,2}")
_LETTER = re.compile(r"[^\W\d_]")
_PASSWORD = re.compile(r"(?i)pass(?:word|wd|phrase|code)s?$|pwd$|otp$|secret$")


def _is_password(name: str) -> bool:
    return _PASSWORD.search(name) is not None


class Makers:
    """The replacements of one bundle: `key` is made anew where none is given (as tests do).

    `shown`: for what is shown to who gave it. No key then: a secret or a prompt is `redacted`.
    """

    def __init__(self, key: bytes | None = None, *, shown: bool = False) -> None:
        self._key = secrets.token_bytes(32) if key is None else key
        self._shown = shown
        self.counts: Counter[str] = Counter()
        self._addresses: dict[str, str] = {}
        self._chat: tuple[str, bool, bool] | None = None  # a line, and what it is
        self._makers: dict[str, Callable[[re.Match[str]], str | None]] = {
            "auth_value": self._credential, "scheme_value": self._credential, "cookie_value": self._credential,
            "cookies_value": self._cookies, "login_flag_value": self._credential, "named_value": self._named,
            "secret_value": self._secret, "flag_value": self._flag, "pem_value": self._pem, "loose_value": self._loose,
            "user_value": self._user, "prompt_value": self._prompt, "doubtful_value": self._doubtful,
            "bare_value": self._bare, "url": self._url, "target": self._request, "login_value": self._login,
            "home_value": self._login, "mail": self._mail, "uuid": self._uuid, "v4": self._address,
            "v6": self._address, "spoken_value": self._spoken, "accepted_value": self._login, "mac": self._mac,
            "macs_value": self._mac, "said_value": self._said, "turn_value": self._quoted,
            "of_a_chat_value": self._of_a_chat, "template_value": self._text, "turns_value": self._text,
        }  # fmt: skip

    def text(self, text: str) -> str:
        """`text` redacted."""
        raise NotImplementedError

    def pseudonym(self, kind: str, text: str) -> str:
        """The same for the same text throughout a bundle."""
        digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), key=self._key, digest_size=_DIGITS // 2)
        return f"{kind}-{digest.hexdigest()}"

    def put(self, kind: str, text: str) -> str:
        """What stands for a text that a detector or a block found."""
        if kind == "prompt":
            self._count("prompts")
            return self._of_prompt(text)
        self._count("secrets")
        return self.pseudonym("value", text) if kind == RANDOM and not self._shown else HIDDEN

    def addresses(self, text: str) -> str:
        """`text` with its addresses replaced and nothing else: for names, which must stay names."""
        return ADDRESS.sub(self._address, text)

    def sub(self, pattern: re.Pattern[str], text: str) -> str:
        """`text` with what the pattern finds replaced. In the value of a field that is nothing private, it looks on."""
        parts, done, at = [], 0, 0
        while (found := pattern.search(text, at)) is not None:
            kind = found.lastgroup or ""
            made = self._replaced(found, kind)
            if made is None:
                at = found.end(kind.removesuffix("_value"))
                continue
            parts += [text[done : found.start()], made]
            done = at = found.end()
        return "".join([*parts, text[done:]]) if parts else text

    def _replaced(self, found: re.Match[str], kind: str) -> str | None:
        before = found.string[max(0, found.start() - 1) : found.start()]
        if kind in STANDS_ALONE and before and (before.isalnum() or before in STANDS_ALONE[kind]):
            return found[0]
        return self._makers[kind](found)

    def _count(self, kind: str) -> None:
        self.counts[kind] += 1

    def _credential(self, found: re.Match[str]) -> str | None:
        value = found[found.lastgroup or 0]
        spoken = found.lastgroup == "auth_value" and found["auth"].lower().startswith("bearer")
        if spoken and len(value) < 20 and not any(one.isdigit() for one in value):
            return None  # `bearer authentication failed`
        if value.strip() in ("", HIDDEN) or (found.lastgroup == "login_flag_value" and value.isdigit()):
            return found[0]
        self._count("secrets")
        return found[0][: len(found[0]) - len(value)] + HIDDEN

    def _cookies(self, found: re.Match[str]) -> str:
        self._count("secrets")
        return f'{found["cookies"]}"{HIDDEN}"'

    def _secret(self, found: re.Match[str]) -> str | None:
        name = _FIRST_NAME.match(found["secret"])
        made = self._by_name(name[0] if name else "", found["secret_value"])
        return None if made is None else found["secret"] + made

    def _flag(self, found: re.Match[str]) -> str | None:
        name = _FIRST_NAME.match(found["flag"], 2)
        made = self._by_name(name[0] if name else "", found["flag_value"])
        return None if made is None else found["flag"] + made

    def _named(self, found: re.Match[str]) -> str | None:
        value = found["named_value"]
        made = self._by_name(found["named"], value)
        return None if made is None else found[0][: len(found[0]) - len(value)] + made

    def _by_name(self, name: str, value: str) -> str | None:
        """The value of a field that may be a credential; None where it is none: there may be one within it."""
        inner, put = unquoted(value)
        kind = secrecy(name)
        # `token=` is a word of counters and tokenizers too: a small number is no secret.
        if inner in ("", HIDDEN, *NOTHING) or (NUMBER.fullmatch(inner) and not _is_password(name)):
            return value
        if OWN.fullmatch(inner) or kind is Secrecy.NONE or (kind is Secrecy.LIKELY and not looks_secret(inner)):
            return None
        self._count("secrets")
        return put(HIDDEN)

    def _said(self, found: re.Match[str]) -> str | None:
        """`token VALUE`, where the value is no word, number, model or field, and the token not one of text."""
        value = found["said_value"].rstrip(".:")
        before = found.string[max(0, found.start() - 24) : found.start()].split()
        if not looks_spoken(found["said"], before[-1] if before else "", value) or OWN.fullmatch(value):
            return None
        self._count("secrets")
        return found["said"] + HIDDEN + found["said_value"][len(value) :]

    def _pem(self, found: re.Match[str]) -> str:
        value = found["pem_value"]
        if value.strip() in ("", HIDDEN):
            return found[0]
        if '"' in value:  # lines of JSON around each of the key, put on one
            made = _KEY_DATA.sub(HIDDEN, value)
            self.counts.update({"secrets": 1} if made != value else {})
            return found["pem"] + made
        self._count("secrets")
        return found["pem"] + HIDDEN

    def _user(self, found: re.Match[str]) -> str:
        inner, put = unquoted(found["user_value"])
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
        inner, put = unquoted(found["spoken_value"])
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
        inner, put = unquoted(found["prompt_value"])
        if not inner or OWN.fullmatch(inner.strip('"')):
            return found[0]
        self._count("prompts")
        return found["prompt"] + put(self._of_prompt(inner))

    def _quoted(self, found: re.Match[str]) -> str:
        """A quoted prompt behind whatever leads to it."""
        value = found[found.lastgroup or 0]
        inner, put = unquoted(value)
        if not inner or OWN.fullmatch(inner):
            return found[0]
        self._count("prompts")
        return found[0][: len(found[0]) - len(value)] + put(self._of_prompt(inner))

    def _of_a_chat(self, found: re.Match[str]) -> str | None:
        """`output: '…'` and `inputs: "…"` in the log of an engine, which has no quotes around the name."""
        inner, _ = unquoted(found["of_a_chat_value"])
        return self._quoted(found) if self._is_of_a_chat(found.string, "output", inner) else None

    def _text(self, found: re.Match[str]) -> str:
        """A prompt without quotes: of a chat template, or behind the name of a speaker."""
        value = found[found.lastgroup or 0]
        if OWN.fullmatch(value.strip()) or not _LETTER.search(value):
            return found[0]
        self._count("prompts")
        return found[0][: len(found[0]) - len(value)] + self._of_prompt(value)

    def _doubtful(self, found: re.Match[str]) -> str | None:
        """The value of a name that other things have too, as `text`: of a chat by what stands beside it."""
        value = found["doubtful_value"]
        inner, put = unquoted(value)
        listed = value.startswith("[")
        if not inner or OWN.fullmatch(inner.strip('"')) or (listed and not _LETTER.search(inner)):
            return found[0]
        name = _FIRST_NAME.match(found["doubtful"])
        if not self._is_of_a_chat(found.string, (name[0] if name else "").lower(), inner):
            return None
        self._count("prompts")
        return found["doubtful"] + put(self._of_prompt(inner))

    def _is_of_a_chat(self, line: str, name: str, inner: str) -> bool:
        if self._chat is None or self._chat[0] is not line:
            self._chat = (line, _CHAT.search(line) is not None, _RECORD.search(line) is not None)
        _, chat, record = self._chat
        if _OF_A_CHAT_ALONE.fullmatch(name):
            return chat and (name != "data" or "datatype" in line)
        return chat or (not record and " " in inner and name.rstrip("s") in ("text", "input", "instruction", "q"))

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
        return HIDDEN if self._shown else f"{self.pseudonym('prompt', text)}-{len(text)}-characters"

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
            known = pseudonym_of_address(found[0], self.pseudonym)
            if len(self._addresses) < _REMEMBERED:
                self._addresses[found[0]] = known
        if known != found[0]:
            self._count("addresses")
        return known


def pseudonym_of_address(text: str, pseudonym: Callable[[str, str], str]) -> str:
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


def unquoted(value: str) -> tuple[str, Callable[[str], str]]:
    """What stands within quotes, and how to put something else there."""
    if value.startswith("["):
        return value[1:-1], '["{}"]'.format
    quote = next((one for one in ('\\"', '"', "'") if value.startswith(one)), "")
    end = quote if len(value) > len(quote) and value.endswith(quote) else ""
    return value[len(quote) : len(value) - len(end)], lambda text: f"{quote}{text}{end}"
