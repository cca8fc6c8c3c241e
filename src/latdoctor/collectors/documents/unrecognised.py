"""What a file looks like in which no known format is found, and where its facts can be taken from instead. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.sanitize import clean

HEAD = 64 << 10  # bytes that are looked at
_MAX_NAMES = 4
_NAME_WIDTH = 30
_CODE_LINES = 2  # that begin as lines of a program do
_MIN_LINES, _MOST = 3, 0.6  # number and share of lines by which a text is called YAML
_READS = "latdoctor reads metrics pages, logs, profiler traces, command output and load test results"
_TEXT_OF_IT = "pass its text: output copied from a terminal, or the file that it was made from"
_METRICS = "pass what the running service shows: curl http://HOST:PORT/metrics > page.txt"


@dataclass(frozen=True, slots=True)
class Appearance:
    """What a file looks like in words, and what to pass instead."""

    what: str
    next_step: str


_RUN = "pass what it printed or measured when it ran"
_POD = "pass what runs: kubectl describe pod NAME > pod.txt"
_NCU = "ncu --import FILE --page details > ncu.txt; it times kernels alone"
_JOURNAL = "journalctl --file FILE -o short-iso > log.txt, and pass that"
_CORE = "pass the kernel log (dmesg -T) and the log of the process"
_CAPTURE = "pass the access log of the server or proxy"
_PERF = "record the process with torch.profiler or nsys instead"

# The first bytes of files that are not text, what they are, and where the facts can be taken from.
_MAGIC: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF.{4}WEBP", re.DOTALL), "a picture", _TEXT_OF_IT),
    (re.compile(rb"%PDF"), "a PDF", _TEXT_OF_IT),
    (re.compile(rb"PK\x03\x04.{26}archive/", re.DOTALL), "a model or checkpoint of torch", _METRICS),
    (re.compile(rb"PK\x03\x04|7z\xbc\xaf|Rar!|.{257}ustar", re.DOTALL), "an archive", "unpack it and pass the folder"),
    (re.compile(rb"\xfd7zXZ|BZh\d"), "a compressed file", "unpack it first: xz -dk FILE, bzip2 -dk FILE"),
    (re.compile(rb"LPKSHHRH"), "a journal of systemd", _JOURNAL),
    (re.compile(rb"PERFILE2"), "a recording of perf", _PERF),
    (re.compile(rb"NVR\x00"), "a report of Nsight Compute", _NCU),
    (re.compile(rb"\xd4\xc3\xb2\xa1|\xa1\xb2\xc3\xd4|\x0a\x0d\x0d\x0a"), "a network capture", _CAPTURE),
    (re.compile(rb"\x7fELF.{12}\x04\x00", re.DOTALL), "a core dump", _CORE),
    (re.compile(rb"\x7fELF|MZ"), "a program or library", _READS),
    (re.compile(rb"PAR1|\x89HDF|ARROW1"), "a table in a binary format", "export it as CSV"),
    (re.compile(rb".{4}\x00{4}\{\"", re.DOTALL), "the weights of a model", _METRICS),
    (re.compile(rb"\x80[\x02-\x05]"), "a pickle", "of pickles, only memory snapshots of torch are read"),
)
# The first line of a text that settles what it is.
_FIRST_LINE: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"\s*(?:<!doctype html|<html)", re.IGNORECASE), "a web page (HTML)", _METRICS),
    (re.compile(r"\s*(?:<\?xml|<[A-Za-z][\w:-]*[ >])"), "XML", "of XML, nvidia-smi -q -x is read"),
)
_CODE = re.compile(r"(?m)^(?:#!|import \w|from [\w.]+ import |(?:def|class|func|package|struct) \w|#include )")
_TOP_KEY = re.compile(r"---|#.*|[a-zA-Z][\w.-]{0,60}:(?: [\w./-]{1,80})?")
_NESTED = re.compile(r" {1,40}(?:- )?[a-zA-Z][\w.-]{0,60}:(?:\s|$)")
_YAML = re.compile(r"- .*|[\w.\"'/-]+:(?: .*)?")


def appearance(content: bytes, decoded: Callable[[bytes], bytes]) -> Appearance:
    """What `content`, the beginning of a file, looks like. `decoded` makes UTF-8 of any other encoding of text."""
    head = content[:HEAD]
    if not head.strip():
        return Appearance("it is empty", "check the command that wrote it")
    for magic, what, next_step in _MAGIC:
        if magic.match(head):
            return Appearance(f"it looks like {what}", next_step)
    text = decoded(head).decode("utf-8", "replace")
    if text.count("\ufffd") + text.count("\0") > len(text) // 20:
        return Appearance("it is not text, and of no known binary format", _READS)
    return _of_text(text.lstrip("\ufeff"))


def _of_text(text: str) -> Appearance:
    if names := _json_names(text):
        return Appearance(f"it is JSON with {names}, which no known tool writes", _READS)
    for start, what, next_step in _FIRST_LINE:
        if start.match(text):
            return Appearance(f"it looks like {what}", next_step)
    if re.search(r"(?m)^apiVersion: \S", text):
        return Appearance("it looks like a manifest of Kubernetes", _POD)
    if names := _columns(text):
        return Appearance(
            f"it looks like a table with the columns {names}", f"{_READS}; with the names their tools give"
        )
    if is_source_code(text):
        return Appearance("it looks like source code", _RUN)
    lines = _filled(text)
    if _is_yaml(lines):
        return Appearance("it looks like YAML", _METRICS)
    return Appearance(
        "its only line is not known" if len(lines) == 1 else f"none of its {len(lines)} lines is known", _READS
    )


def is_source_code(text: str) -> bool:
    """Whether it is a program: what its comments and messages mention did not happen."""
    return len(_CODE.findall(text)) >= _CODE_LINES or text.startswith("#!")


def is_configuration(text: str) -> bool:
    """Whether it is nested YAML, such as alert rules or a manifest: what its values mention did not happen."""
    lines = _filled(text)
    nested = sum(_NESTED.match(line) is not None for line in lines)
    return bool(lines) and _TOP_KEY.fullmatch(lines[0]) is not None and nested >= _MIN_LINES and _is_yaml(lines)


def _filled(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _is_yaml(lines: list[str]) -> bool:
    matching = sum(_YAML.fullmatch(line.strip()) is not None for line in lines)
    return len(lines) >= _MIN_LINES and matching >= _MOST * len(lines)


def _json_names(text: str) -> str:
    """The outermost fields of a JSON document, or what it is instead; empty where it is not JSON, or cut."""
    if text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        document = msgspec.json.decode(text)
    except UNDECODABLE:
        keys = re.findall(r'"([\w.:-]{1,60})"\s*:', text[:2000])
        return f"the fields {_listed(list(dict.fromkeys(keys)))}" if keys else ""
    first = document[0] if isinstance(document, list) and document else document
    if isinstance(first, dict) and first:
        return f"the fields {_listed(list(first))}"
    return "a list" if isinstance(document, list) else "no field"


def _columns(text: str) -> str:
    """The names of the columns where the first lines are a table of one width."""
    lines = [line for line in text.splitlines()[:6] if line.strip()]
    for separator in (",", "\t", ";"):
        rows = list(csv.reader(lines, delimiter=separator))
        if len(rows) > 1 and len(rows[0]) > 1 and len({len(row) for row in rows[:-1]}) == 1:
            return _listed(rows[0])
    return ""


def _listed(names: list[str]) -> str:
    shown = ", ".join(clean(name.strip(), _NAME_WIDTH) for name in names[:_MAX_NAMES])
    return shown + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")
