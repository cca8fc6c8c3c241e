"""What is private over several lines: private keys, prompts with line breaks, secrets of Kubernetes, named values.

A line opens a block, and the lines behind it belong to it until one that cannot. The state goes from piece to piece of
a file, so that it does not matter where the pieces end. Each line may have a date, or the JSON of a container runtime,
around it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from latdoctor.evidence.prefilter import Prefilter
from latdoctor.evidence.redaction.names import Secrecy, looks_secret, secrecy
from latdoctor.evidence.redaction.patterns import SPEAKER, TEMPLATE

Put = Callable[[str, str], str]  # what stands where a text of this kind stood
PROMPT, CREDENTIAL = "prompt", "credential"
_LONGEST = 500  # lines of one block
_HIDDEN = "redacted"
_OWN_LINE = re.compile(r".*(?:prompt-[0-9a-f]{8}-\d+-characters|redacted)\W{0,4}")

_KEY = re.compile(r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END[ A-Z0-9_-]{0,100}-----")
_KEY_DATA = re.compile(
    r"[0-9A-Za-z+/]{16,}={0,2}|(?<=[\s\"])[0-9A-Za-z+/]{2,}={0,2}(?=(?:\\r)?(?:\\n)?\"|\s*$)"
    r"|^=?[0-9A-Za-z+/]+={0,2}$"
)
# Of a line with a date before it: a long run, or an end that is no word.
_KEY_TAIL = re.compile(
    r"[0-9A-Za-z+/]{16,}|[0-9A-Za-z+/]={1,2}\W{0,4}$|[\s\"](?=\S*[A-Z])(?=\S*[a-z])(?=\S*\d)[0-9A-Za-z+/]{2,}\W{0,4}$"
    r"|-----BEGIN|(?:Proc-Type|DEK-Info|Comment|Private-MAC):|[\d\]:] *$"
)
_KEY_HEADER = re.compile(r"((?:DEK-Info|Comment|Private-MAC): ?)\S.*")
_PUTTY = re.compile(r"Private-Lines: ?(\d{1,4})\s*$")
_BARE = re.compile(
    r"(?:^|[^\w.-])(?:prompt|question|user input|input text|utterance)(?::[ \t]{1,3}|=)(?![\s\"'{\[])[^\n]*\S\s*$",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r"(?:^|[^\w.-])(?:prompts?|content|text|inputs?|question|query|user_input|input_text)(?:\\?[\"'])?\s{0,3}[:=]\s{0,3}"
    r"(?P<quote>[\"'])(?P<rest>(?:[^\"'\\]|\\.|(?!(?P=quote))[\"'])*)$",
    re.IGNORECASE,
)
_STAMP = re.compile(r"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?)?")
_HEAD = re.compile(
    r"(?:\x1b\[[\d;]*m|\s)*"
    r"(?:[\[(<{]?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d[-/:]\d\d[-/:. ]|[A-Z][a-z]{2} +\d{1,2} \d\d:|\d{10})"
    r"|[\[(<]?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|NOTICE)\b|[IWEF]\d{4} |\([\w=]+[ )]"
    r"|\{\"|level=|time=|ts=|Traceback \()"
)
_SETTING = re.compile(r"\s*(?:[\"']?[\w.-]{1,40}[\"']?\s{0,3}[:=]|[-#{}\[\]]|$)")
_NAME = re.compile(r"\s*(?:-\s+)?[\"']?name[\"']?:\s{1,4}[\"']?([\w.-]{3,100})[\"']?,?\s*$")
_VALUE = re.compile(r"(\s*[\"']?value[\"']?:\s{1,4})(\S[^\n]*?)(,?\s*)$")
_DATA = re.compile(r"(\s*)(?:data|stringData):\s*$")
_ENTRY = re.compile(r"(\s*[\w.-]{1,200}:\s{1,4})([\"']?)([0-9A-Za-z+/]{8,}={0,2})\2(\s*)$")
_SCALAR = re.compile(r"(\s*)(?:-\s+)?[\"']?([\w.-]{2,100})[\"']?:\s{1,4}[|>][+-]?\d?\s*$")
_SPEAKS = re.compile(rf"\s*\{{?\s*\"from\":\s{{0,4}}\"{SPEAKER}\",\s*$")
_TURN = re.compile(r"(\s*\"value\":\s{0,4}\")((?:[^\"\\]|\\.)*+)(\"?,?\s*\}?,?\s*)$")
_TEMPLATE = re.compile(rf"{TEMPLATE}\s*$")
_TURN_END = re.compile(r"<\|(?:eot_id|im_end|end|eom_id)\|>|\[/INST\]|<end_of_turn>|</s>")

# One for each way in which a line can open a block, in the syntax of RE2, on bytes.
OPENERS = Prefilter(
    (
        rb"PRIVATE KEY",
        rb"Private-Lines:",
        rb"(?i:prompt|question|user input|input text|utterance)(?::[ \t]{1,3}|=)[^\s\"'{\[]",
        rb"(?i:prompts?|content|text|inputs?|question|query|user_input|input_text)[\\\"']{0,2}[\s\x80-\xff]*[:=][\s\x80-\xff]*[\"'][^\"\n]*\n",
        rb"name[\"']?:[\s]{1,4}[\"']?[\w.-]{3,100}[\"']?,?[ \t\r]*\n",
        rb"(?:data|stringData):[ \t\r]*\n",
        rb":[ \t]{1,4}[|>][+-]?\d?[ \t\r]*\n",
        rf"from\":\s{{0,4}}\"{SPEAKER}\",[ \t\r]*\n".encode(),
        rf"{TEMPLATE}[ \t\r]*\n".encode(),
    )
)


class _Kind(Enum):
    KEY = "key"
    PROMPT = "prompt"
    TEXT = "text of a prompt without dates"
    QUOTED = "quoted prompt"
    VALUE = "value"
    DATA = "data"
    SCALAR = "credential of several lines of YAML"
    SPEAKS = "turn of ShareGPT"
    TEMPLATE = "turn of a chat template"


@dataclass(slots=True)
class _Open:
    kind: _Kind
    left: int = _LONGEST
    detail: str = ""  # the quote, or the indentation


def _opened(line: str) -> _Open | None:
    """The block that `line` opens, which has no line end."""
    if "PRIVATE KEY" in line and (key := _last(_KEY, line)) and not _KEY_END.search(line, key.end()):
        return _Open(_Kind.KEY)
    if putty := _PUTTY.search(line):
        return _Open(_Kind.KEY, int(putty[1]) + 1)  # its digest follows
    if _BARE.search(line):
        return _Open(_Kind.PROMPT if _has_head(line) else _Kind.TEXT)
    if quoted := _QUOTED.search(line):
        return _Open(_Kind.QUOTED, detail=quoted["quote"])
    if (name := _NAME.match(line)) and secrecy(name[1]) is not Secrecy.NONE:
        return _Open(_Kind.VALUE, 1, name[1])
    if data := _DATA.match(line):
        return _Open(_Kind.DATA, detail=data[1])
    if (scalar := _SCALAR.match(line)) and secrecy(scalar[2]) is Secrecy.CERTAIN:
        return _Open(_Kind.SCALAR, detail=scalar[1])
    if _SPEAKS.match(line):
        return _Open(_Kind.SPEAKS, 1)
    if _TEMPLATE.search(line):
        return _Open(_Kind.TEMPLATE)
    return None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter([*pattern.finditer(text)][::-1]), None)


def _has_head(line: str) -> bool:
    """Whether a record of a log begins here. What a container runtime puts before each line is none."""
    stamp = _STAMP.match(line)
    rest = line[stamp.end() :] if stamp else line
    return _HEAD.match(rest) is not None


class Blocks:
    """Redacts the blocks of one text, piece by piece, each of whole lines."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._open: _Open | None = None
        self._stamped = False

    @property
    def is_open(self) -> bool:
        """Whether the next line may belong to a block."""
        return self._open is not None

    def redact(self, raw: bytes) -> bytes:
        """The next piece."""
        if self._open is None and not OPENERS.search(raw):
            return raw
        parts: list[bytes] = []
        at = 0
        while at < len(raw):
            if self._open is None:
                hit = OPENERS.first(raw, at)
                if hit is None:
                    break
                start = raw.rfind(b"\n", at, hit[0]) + 1 or at
                end = _end_of_line(raw, hit[0])
                parts.append(raw[at:end])
                self._begin(raw[start:end])
                at = end
                continue
            end = _end_of_line(raw, at)
            line, closed = self._take(raw[at:end])
            if not closed or self._open is not None:
                parts.append(line)
                at = end
        return b"".join([*parts, raw[at:]])

    def _begin(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "surrogateescape").rstrip("\r\n")
        self._open = _opened(line)
        self._stamped = bool((stamp := _STAMP.match(line)) and stamp[0])

    def _take(self, raw: bytes) -> tuple[bytes, bool]:
        """A line of the open block redacted; True where it does not belong to it: it is looked at anew."""
        assert self._open is not None
        whole = raw.decode("utf-8", "surrogateescape")
        line = whole.rstrip("\r\n")
        end = whole[len(line) :]
        block = self._open
        made = self._of(block, line)
        block.left -= 1
        if made is None:
            self._open = None
            return raw, True
        if block.left <= 0:
            self._open = None
            return (made + end).encode("utf-8", "surrogateescape"), False
        return (made + end).encode("utf-8", "surrogateescape"), False

    def _of(self, block: _Open, line: str) -> str | None:
        match block.kind:
            case _Kind.KEY:
                return self._key(block, line)
            case _Kind.PROMPT:
                return None if _has_head(line) or (self._undated(line) and block.left) else self._hidden(line)
            case _Kind.TEXT:
                return None if _SETTING.match(line) or _has_head(line) else self._hidden(line)
            case _Kind.QUOTED:
                return self._quoted(block, line)
            case _Kind.VALUE:
                return self._value(block, line)
            case _Kind.DATA:
                return self._entry(block, line)
            case _Kind.SCALAR:
                return self._scalar(block, line)
            case _Kind.SPEAKS:
                turn = _TURN.match(line)
                return f"{turn[1]}{self._hidden(turn[2])}{turn[3]}" if turn else None
            case _Kind.TEMPLATE:
                return self._turn(block, line)

    def _undated(self, line: str) -> bool:
        """Where a runtime dates each line, one without a date is of something else."""
        return self._stamped and not ((stamp := _STAMP.match(line)) and stamp[0])

    def _hidden(self, line: str) -> str:
        stamp = _STAMP.match(line)
        front = stamp[0] if stamp else ""
        text = line[len(front) :]
        return line if not text.strip() or _OWN_LINE.fullmatch(text) else front + self._put(PROMPT, text)

    def _key(self, block: _Open, line: str) -> str | None:
        if over := _KEY_END.search(line):
            block.left = 0
            return _KEY_DATA.sub(self._data, line[: over.start()]) + line[over.start() :]
        if _KEY.search(line):
            return line
        if _has_head(line) and not _KEY_TAIL.search(line) and _HIDDEN not in line:
            return None  # an end that was lost
        return _KEY_DATA.sub(self._data, _KEY_HEADER.sub(rf"\1{_HIDDEN}", line))

    def _data(self, found: re.Match[str]) -> str:
        return found[0] if found[0] == _HIDDEN else self._put(CREDENTIAL, found[0])

    def _quoted(self, block: _Open, line: str) -> str | None:
        if _has_head(line):
            return None
        text, quote, rest = line.partition(block.detail)
        if not quote:
            return self._hidden(line)
        block.left = 0
        return (self._hidden(text) if text else "") + quote + rest

    def _value(self, block: _Open, line: str) -> str | None:
        value = _VALUE.match(line)
        block.left = 0
        if value is None:
            return None
        inner = value[2].strip("\"'")
        certain = secrecy(block.detail) is Secrecy.CERTAIN and inner not in ("", _HIDDEN, "null", "true", "false")
        if not certain and not looks_secret(inner):
            return line
        shown = self._put(CREDENTIAL, inner)
        return f"{value[1]}{value[2].replace(inner, shown)}{value[3]}"

    def _scalar(self, block: _Open, line: str) -> str | None:
        text = line.lstrip()
        if text and len(line) - len(text) <= len(block.detail):
            return None
        return line if text in ("", _HIDDEN) else line[: len(line) - len(text)] + self._put(CREDENTIAL, text)

    def _turn(self, block: _Open, line: str) -> str | None:
        if _has_head(line):
            return None
        over = _TURN_END.search(line)
        if over is None:
            return self._hidden(line)
        block.left = 0 if _TEMPLATE.search(line) is None else block.left
        return self._hidden(line[: over.start()]) + line[over.start() :]

    def _entry(self, block: _Open, line: str) -> str | None:
        indent = len(line) - len(line.lstrip())
        if not line.strip() or indent <= len(block.detail):
            return None
        entry = _ENTRY.match(line)
        if entry is None or not _is_base64(entry[3]):
            return line
        return f"{entry[1]}{entry[2]}{self._put(CREDENTIAL, entry[3])}{entry[2]}{entry[4]}"


def _is_base64(text: str) -> bool:
    """A word may be read as base64 too: it has to have letters of both cases, or end as only base64 does."""
    if len(text) % 4 or not (text.endswith("=") or (text.lower() != text and text.upper() != text)):
        return False
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _end_of_line(raw: bytes, at: int) -> int:
    return raw.find(b"\n", at) + 1 or len(raw)
