"""Takes out of raw artifacts what is nobody's business: prompts, secrets, addresses, user ids.

Each is replaced by a pseudonym (`ip-3f9a1c07`, `user-…`, `id-…`): the same text gives the same one throughout a bundle,
so that what belongs together can still be seen to. They are keyed digests (BLAKE2b) with a key that is made for one
bundle and kept nowhere: nobody can try out who it was, and two bundles share no pseudonym. A prompt gives its length
too; a secret gives nothing.

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
from collections.abc import Callable, Iterator

from msgspec import Struct

_DIGITS = 8
_REMEMBERED = 1 << 16  # addresses
_OWN = re.compile(r"(?:ip|user|id|mail|prompt|value)-[0-9a-f]{8}(?:-\d+-characters)?|redacted")

_SECRETS = (
    r"(?:api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?secret|secret|password|passwd|passphrase|pass|pwd"
    r"|(?:access|auth|refresh|id|session|hf|csrf)[_-]?token|token|x-api-key|credentials?)"
)
_USER_NAMES = (
    r"(?:(?:end[_-]?)?user(?:[_-]?(?:id|name|email))?|username|x-user-id|remote_user|customer(?:[_-]?id)?|account[_-]?id"
    r"|client[_-]?id|uid|tenant[_-]?id|member[_-]?id|session[_-]?id|conversation[_-]?id|chat[_-]?id|device[_-]?id"
    r"|phone(?:[_-]?number)?|email|(?:first|last|full)[_-]?name|ip[_-]?address)"
)
_PROMPT_NAMES = (
    r"(?:prompts?|system_prompt|completions?|content|question|query|answer|user_input|input_text|output_text"
    r"|generated_text|response_text|utterance|transcript|(?:prompt_)?token_ids|input_ids|(?<=[\"'])inputs)"
)
_QUOTED = r"(?:\"(?:[^\"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?|\\\"(?:[^\"\\]|\\[^\"])*+(?:\\\")?)"
_BETWEEN = r"(?:\\?[\"'])?\s{0,3}[:=]\s{0,3}"
_WORD = r"[^\s,;&\"'}\])]{1,400}"
_HEX = "[0-9a-fA-F]"
_V4 = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}"
_V6 = r"[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}"

# Fields by their names. A line is looked at closely only where it holds one of the words below: most hold none.
_FIELDS = re.compile(
    rf"(?<![\w.-])(?:(?P<auth>authorization{_BETWEEN}\\?[\"']?(?:(?:Bearer|Basic|Digest|Token)\s+)?|Bearer\s+)"
    r"(?P<auth_value>[a-z0-9._~+/=-]{8,4000})"
    rf"|(?P<cookie>(?:set-)?cookie{_BETWEEN})(?P<cookie_value>[^\n\"']+)"
    r"|(?P<key>sk-[a-z0-9_-]{16,200}|hf_[a-z0-9]{16,60}|gh[pousr]_[a-z0-9]{20,255}|AKIA[0-9A-Z]{16}"
    r"|xox[abprs]-[a-z0-9-]{10,200}|glpat-[a-z0-9_-]{16,60}|AIza[a-z0-9_-]{30,60}|nvapi-[a-z0-9_-]{16,200}|eyJ[\w-]{8,2000}\.[\w-]{8,4000}\.[\w-]{8,2000})"
    rf"|(?P<flag>--{_SECRETS}(?:=|[ \t]{{1,3}}))(?P<flag_value>(?!-){_QUOTED}|(?!-){_WORD})"
    rf"|(?P<secret>{_SECRETS}{_BETWEEN})(?P<secret_value>{_QUOTED}|{_WORD})"
    rf"|(?P<user>{_USER_NAMES}{_BETWEEN})(?P<user_value>{_QUOTED}|{_WORD})"
    rf"|(?P<prompt>{_PROMPT_NAMES}{_BETWEEN})(?P<prompt_value>{_QUOTED}|\[(?:[\d,\s]|{_QUOTED})*+\])"
    r"|(?P<bare>(?:prompt|question|user input|input text|utterance):\s{1,3})(?P<bare_value>[^\s\"'{\[][^\n]*)"
    r"|(?P<loose>(?:prompt|user_input|input_text|utterance|question)=)"
    r"(?P<loose_value>[^\s\"'{\[][^\n]*?)(?=\s+[\w.-]+=|\s*$)"
    r"|(?P<mail>[a-z0-9._%+-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,4}\.[a-z]{2,24})\b)",
    re.IGNORECASE,
)
_WORDS = (
    "authorization", "bearer", "cookie", "sk-", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "akia", "xox",
    "nvapi-", "eyj", "glpat-", "aiza", "key", "secret", "pass", "pwd", "token", "credential", "user", "customer",
    "account", "client", "tenant", "member", "session", "conversation", "chat", "device_id", "device-id", "deviceid",
    "phone", "mail", "first_name", "first-name", "firstname", "last_name", "last-name", "lastname", "full_name",
    "full-name", "fullname", "ip_address", "ip-address", "ipaddress", "prompt", "completion", "content", "question",
    "query", "answer", "input_", "inputs", "user input", "input text", "uid", "output_text", "generated_text",
    "response_text", "utterance", "transcript", "@",
)  # fmt: skip
# What is known by its form, behind a sign that is quickly looked for. What must not stand before it is looked at last.
_FORMS = tuple(
    (re.compile(sign), re.compile(form))
    for sign, form in (
        (
            r"PRIVATE KEY-----",
            r"(?P<pem>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?P<pem_value>[^-]{1,20000})"
            r"(?:-----END [A-Z ]{0,30}-----)?",
        ),
        (r"http", r"(?P<url>https?://[^\s\"'<>\\]{1,4000})"),
        (r" HTTP/", r"(?P<request>\"[A-Z]{3,10} )(?P<target>/[^\s\"]{0,8000})(?= HTTP/)"),
        (r" - [^\s\[\"-]", r"(?P<login> - )(?P<login_value>[^\s\[\"-]\S{0,100})(?= \[\d{1,2}/[A-Z][a-z]{2}/)"),
        (r"/home/", r"(?P<home>/home/)(?P<home_value>[^/\s\"':,]{1,64})"),
        (r"/Users/", r"(?P<home>/Users/)(?P<home_value>[^/\s\"':,]{1,64})"),
        (
            r"-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-",
            r"(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})(?![\w-])",
        ),
        (r"\.\d{1,3}\.\d", r"(?P<v4>\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})(?![\w-]|\.\d)"),
        (r"(?::[0-9a-fA-F]{1,4}){7}", r"(?P<v6>(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4})(?![\w:.])"),
        (r"::[0-9a-fA-F]", r"(?P<v6>[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w:.])"),
    )
)
_STANDS_ALONE = ("uuid", "v4", "v6")  # not behind a letter, a digit, a dot, a dash or (v6) a colon
_ADDRESS = re.compile(rf"(?<![\d.])(?P<v4>{_V4})(?![\d.])|(?<![\w:.])(?P<v6>{_V6})(?![\w:.])", re.IGNORECASE)
_VERSION = re.compile(r"(?:version|cudnn|release|\bv)\W{0,3}$", re.IGNORECASE)
_QUERY = re.compile(r"([?&;])([^=&;#\s]{1,200})=([^&;#\s]*)")
_IDENTIFIER = re.compile(
    r"\d{3,}|[0-9a-f]{12,}|[0-9a-f]{8}-[0-9a-f-]{27}|[^/@]{1,64}(?:@|%40)[^/@]{1,200}", re.IGNORECASE
)
_LOGIN = re.compile(r"\b([a-z][a-z0-9+.-]{1,20}://)[^/?#\s\"']{1,400}@", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,9})?[a-z/%]{0,4}")
_NOTHING = ("null", "None", "true", "false", "{", "[", "-")


class Redaction(Struct, frozen=True):
    """What was replaced, by kind, and the artifacts that could not be looked into."""

    replaced: dict[str, int] = {}
    unread: tuple[str, ...] = ()


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
            "v6": self._address,
        }  # fmt: skip

    def text(self, text: str) -> str:
        """`text` redacted; redacting it again changes nothing."""
        if "://" in text and "@" in text:  # before the rest of a login is taken for a mail address
            text, logins = _LOGIN.subn(r"\1", text)
            self.counts.update({"secrets": logins} if logins else {})
        low = text.lower()
        words = [word for word in _WORDS if word in low]
        if words:
            lines = text.splitlines(keepends=True)
            text = "".join(self._fields(line) if any(w in line.lower() for w in words) else line for line in lines)
        for sign, form in _FORMS:
            if sign.search(text):
                text = form.sub(self._replace, text)
        return text

    def _fields(self, line: str) -> str:
        return _FIELDS.sub(self._replace, line)

    def content(self, raw: bytes) -> bytes:
        """A text artifact redacted. Bytes that are no UTF-8 stay as they are."""
        return self.text(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def pseudonym(self, kind: str, text: str) -> str:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), key=self._key, digest_size=_DIGITS // 2)
        return f"{kind}-{digest.hexdigest()}"

    def _replace(self, found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        before = found.string[max(0, found.start() - 1) : found.start()]
        if kind in _STANDS_ALONE and (before.isalnum() or (before and before in (":_.-" if kind == "v6" else "_.-"))):
            return found[0]
        return self._makers[kind](found)

    def _count(self, kind: str) -> None:
        self.counts[kind] += 1

    def addresses(self, text: str) -> str:
        """`text` with its addresses replaced and nothing else: for names, which must stay names."""
        return _ADDRESS.sub(self._address, text)

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
        if inner in ("", "redacted", *_NOTHING) or _NUMBER.fullmatch(inner):
            return found[0]
        self._count("secrets")
        return found["secret"] + put("redacted")

    def _flag(self, found: re.Match[str]) -> str:
        inner, put = _unquoted(found["flag_value"])
        if inner in ("", "redacted") or _NUMBER.fullmatch(inner):
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
        if inner in ("", *_NOTHING) or _OWN.fullmatch(inner):
            return found[0]
        self._count("user ids")
        made = put(self.pseudonym("user", inner))
        if inner.isdigit() and inner == found["user_value"]:  # a number of JSON becomes a text of JSON
            quote = next((one for one in ('\\"', '"') if found["user"].rstrip().endswith(f"{one}:")), "")
            made = f"{quote}{made}{quote}"
        return found["user"] + made

    def _login(self, found: re.Match[str]) -> str:
        value = found[found.lastgroup or 0]
        if _OWN.fullmatch(value):
            return found[0]
        self._count("user ids")
        return found[0][: len(found[0]) - len(value)] + self.pseudonym("user", value)

    def _prompt(self, found: re.Match[str]) -> str:
        inner, put = _unquoted(found["prompt_value"])
        if not inner or _OWN.fullmatch(inner.strip('"')):
            return found[0]
        self._count("prompts")
        return found["prompt"] + put(self._of_prompt(inner))

    def _loose(self, found: re.Match[str]) -> str:
        value = found["loose_value"]
        if _OWN.fullmatch(value) or _NUMBER.fullmatch(value):
            return found[0]
        self._count("prompts")
        return found["loose"] + self._of_prompt(value)

    def _bare(self, found: re.Match[str]) -> str:
        if _OWN.fullmatch(found["bare_value"].strip()):
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
        return "/".join(parts) + (_QUERY.sub(self._of_query, mark + query) if mark else "")

    def _part(self, part: str) -> str:
        if not _IDENTIFIER.fullmatch(part):
            return part
        self._count("ids")
        return self.pseudonym("id", part)

    def _of_query(self, found: re.Match[str]) -> str:
        if not found[3] or _OWN.fullmatch(found[3]):
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
        if found.lastgroup == "v4" and _VERSION.search(found.string[max(0, found.start() - 16) : found.start()]):
            return found[0]
        known = self._addresses.get(found[0])
        if known is None:
            known = _pseudonym_of_address(found[0], self.pseudonym)
            if len(self._addresses) < _REMEMBERED:
                self._addresses[found[0]] = known
        if known != found[0]:
            self._count("addresses")
        return known


def _pseudonym_of_address(text: str, pseudonym: Callable[[str, str], str]) -> str:
    """`text` itself where it is no address (a time, a PCI address, a name of C++), or one of this machine's own."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    groups = [group for group in text.split(":") if group]
    own = address.is_loopback or address.is_unspecified
    return text if own or (address.version == 6 and len(groups) < 3) else pseudonym("ip", str(address))


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
