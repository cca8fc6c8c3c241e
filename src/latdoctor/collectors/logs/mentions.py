"""Texts that mention an error without reporting it: prose, quoted prompts of users, lists and headings. Pure.

A line without a log's prefix reports an error where the message stands at its beginning, behind at most what programs
write there. Within a sentence, in quotes, or behind the mark of a list it is what a person writes about errors. A line
of a program reports what it says, but not what a user wrote to the program.
"""

from __future__ import annotations

import re

from latdoctor.collectors.logs.line_prefix import BARE, KERNEL, LogLine

_NEEDLE = re.compile(
    r"\b(?:CUDA|cuda(?:Error\w*)?|HIP|ROCm|XPU|CU[A-Z]{2,8}_STATUS_\w+|CUDA_ERROR_\w+|hipError\w*|NVRM|S?Xid|NCCL|DCGM_FR_\w+"
    r"|(?:[\w.]{1,80}\.)?\w{0,40}OutOfMemoryError|[Oo]ut of memory|OOM|RESOURCE_EXHAUSTED|illegal memory access"
    r"|device-side assert|uncorrectable|fallen off|Watchdog caught|Fatal Python error|driver/library version)\b"
)
_EXCEPTION = re.compile(
    r"\s{0,40}(?:\[?rank ?\d{1,5}\]?:\s{0,4})?(?:[\w.]{1,120}\.)?\w{0,60}(?:Error|Exception|Exit|Interrupt)\b[:(]"
)
# `- `, `1. `, `- [x] `, `## `: marks of lists and headings.
_MARKED = re.compile(r"\s{0,12}(?:[-*+•] (?!-)|\d{1,2}[.)] |#{1,6} )")
# What people write before they name an error, and programs do not.
_NARRATIVE = re.compile(
    r"\b(?:we|our|you|your|my|they|guys|hi|hello|hey|thanks|yesterday|remember|anyone|some(?:body|one)|expected no"
    r"|last (?:week|month|year|night|time)|this time|used to|known (?:issue|failure|problem|error)s?|means?|had"
    r"|avoids?|prevents?|fixe[sd])\b|^\s{0,8}fix\b|\bI(?:'m|'ve)?(?= [a-z']{1,20} )",
    re.I,
)
_NARRATED_AFTER = re.compile(
    r"\b(?:CUDA error|out of memory|OOM|Xid(?: \d{1,3})?|cudaError\w+)s?[`'\"”]?,? "
    r"(?:means?|happen\w*|again|any ?more|went|gone|was|were|are|yesterday|last|issues?|problems?|thing)\b",
    re.I,
)
_OPENING = "`“„‘«"
_ERROR_KEY = re.compile(
    r"\b(?:err(?:or)?|message|msg|details?|reason|exception|what\(\)|std(?:err|out)|cause|type|log|text)[\"']?\s?[:=]\s?$",
    re.I,
)
# What a user wrote, in the log of a service.
_OF_USER = re.compile(
    r"\b(?:(?:user|chat|system)[ _](?:prompt|message|input|query|question)|prompts?|questions?|inputs?|completion"
    r"|generated[ _]text|request[ _]body|role[\"']?\s?[:=]\s?[\"']?user[\"']?,.{0,40}?content)[\"']?\s?[:=]\s?"
    r"(?:\[?\s?(?P<quote>[\"'“‘«])|(?=[^\s\"'\[{]))",
    re.I,
)
_CLOSES = {"“": "”", "‘": "’", "«": "»"}


def is_mention(line: LogLine, text: str) -> bool:
    """Whether the error that `line` contains is mentioned in it and not reported; `text` is the whole line."""
    if line.writer == KERNEL:
        return False
    found = _NEEDLE.search(line.message)
    if found is None:
        return False
    before = line.message[: found.start()]
    if _is_of_user(before):
        return True
    return line.writer == BARE and not _EXCEPTION.match(text) and _is_prose(text, before)


def _is_of_user(before: str) -> bool:
    """Whether what follows `before` is within what a user wrote."""
    for opened in _OF_USER.finditer(before):
        quote = opened["quote"]
        if not quote or not re.search(re.escape(_CLOSES.get(quote, quote)) + r"\s?[,)}\]]", before[opened.end() :]):
            return True
    return False


def _is_prose(text: str, before: str) -> bool:
    if _MARKED.match(text) or _NARRATIVE.search(before) or _NARRATED_AFTER.search(text):
        return True
    return _is_quoted(before)


def _is_quoted(before: str) -> bool:
    """Whether `before` ends in an opening quote that is not that of an error's value (`"error": "…`)."""
    end = before[-1:]
    if not end or end in _OPENING:
        return bool(end)
    if end not in "\"'":
        return False
    rest = before[:-1]
    return (not rest or rest[-1].isspace()) and not _ERROR_KEY.search(rest)
