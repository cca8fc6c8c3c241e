"""Texts that mention an error without reporting it: prose, quoted prompts of users, lists and headings. Pure.

A line without a log's prefix reports an error where the message stands at its beginning, behind at most what programs
write there. Within a sentence, in quotes, or behind the mark of a list it is what a person writes about errors. A line
of a program reports what it says, but not what a user wrote to the program.
"""

from __future__ import annotations

import re

from latdoctor.collectors.logs.line_prefix import BARE, KERNEL, LogLine
from latdoctor.evidence.prefilter import Prefilter

_NEEDLE = re.compile(
    r"\b(?:CUDA|cuda(?:Error\w*)?|HIP|ROCm|XPU|CU[A-Z]{2,8}_STATUS_\w+|CUDA_ERROR_\w+|hipError\w*|NVRM|S?Xid|NCCL|DCGM_FR_\w+"
    r"|OutOfMemoryError|[Oo]ut of memory|OOM|RESOURCE_EXHAUSTED|illegal memory access"
    r"|device-side assert|uncorrectable|fallen off|Watchdog caught|Fatal Python error|driver/library version)\b"
)
# In every line with one of these; found much faster.
_ANY = Prefilter(
    (
        rb"CUDA|cuda|HIP|ROCm|XPU|_STATUS_|hipError|NVRM|Xid|NCCL|DCGM_FR_|OutOfMemory|ut of memory|OOM|RESOURCE_EX"
        rb"|illegal memory|device-side|uncorrectable|fallen off|Watchdog caught|Fatal Python|version mismatch"
        rb"|driver/library",
    )
)
# What engines and other processes say of themselves, as people repeat it to each other. In a program's own line these
# words are neither in quotes that stand alone nor beside those of a person.
_ENGINE = re.compile(
    r"Serialization assertion|this version of TensorRT|KVTransferError|expired KV blocks|Bfloat16 is only supported"
    r"|compile time compute cap|GPUs or newer|Segmentation fault|\bSIG(?:SEGV|BUS|ABRT)\b|core dumped|GGML_ASSERT"
    r"|llama runner|EngineDeadError|EngineCore|shared memory broadcast|died unexpectedly|MPI_ABORT"
    r"|JIT compilation during|transfer failed|Hang detected|Model is overloaded|re-processing|system memory"
)
_ANY_ENGINE = Prefilter((_ENGINE.pattern.encode(),))
# Without a lone "I", which is the level of a line.
_PERSON = re.compile(
    r"\b(?:did|does|had|have) (?:any(?:one|body)|some(?:one|body)|you)\b|\bI(?:'m|'ve| think)\b"
    r"|\b(?:(?:any|some)(?:one|body)|thanks|we|our|my|they|guys|yesterday|remember|last (?:week|month|year|night))\b",
    re.I,
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
# In the log of a program, also one with times: these words are of people who speak to each other.
_PERSONAL = re.compile(
    r"\b(?:we|our|my|they|guys|yesterday|remember|anyone|last (?:week|month|year|night))\b"
    r"|\bI(?:'m|'ve)?(?= [a-z']{1,20} )",
    re.I,
)
_LEVEL = re.compile(r"\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL)\b|\blevel=")
_BEGINNING = 120  # characters in which a level may be
_SENTENCE = 3  # words before an error, by which they are a sentence
_WORD = re.compile(r"\b[A-Za-z']{1,20}\b")
_FUNCTION_WORD = re.compile(
    r"\b(?:the|an?|is|was|were|are|with|of|and|it|this|that|on|since|there|here|still|but|so|did|has|have)\b", re.I
)
_OF_PROGRAM = re.compile(r"[\]:=_(){}<>/\d]")
_DENIED = re.compile(r"\b(?:no|not|without|any|zero) (?:\w+ )?$", re.I)
_NOUN = re.compile(r"(?:CUDA (?:error|out of memory)|OOM|S?Xid|NVRM|out of memory|cudaError)", re.I)
_MESSAGE = re.compile(r"(?:CUDA|HIP) (?:error|failure): |.{0,60}Tried to allocate|NVRM: ")
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
    raw = line.message.encode("utf-8", "replace")
    if _ANY_ENGINE.search(raw) and _is_repeated(line):
        return True
    found = _NEEDLE.search(line.message) if _ANY.search(raw) else None
    if found is None:
        return False
    before, after = line.message[: found.start()], line.message[found.start() :]
    if _is_of_user(before):
        return True
    if _LEVEL.search(text[:_BEGINNING]):
        return False
    if line.writer != BARE:  # a chat with times
        return _PERSONAL.search(before) is not None
    return not _EXCEPTION.match(text) and (_is_prose(text, before) or _is_sentence(before, after))


def _is_repeated(line: LogLine) -> bool:
    """Whether a person repeats what an engine says."""
    found = _ENGINE.search(line.message)
    if found is None:
        return False
    before = line.message[: found.start()]
    if _is_of_user(before) or _is_quoted(before) or _PERSON.search(line.message):
        return True
    return line.writer == BARE and (_MARKED.match(line.message) is not None or _NARRATIVE.search(before) is not None)


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


def _is_sentence(before: str, after: str) -> bool:
    """Whether the error is a part of a sentence, such as `there was no CUDA error` or `it is slow since the OOM`."""
    if not _NOUN.match(after) or _MESSAGE.match(after):
        return False
    words = _WORD.findall(before)
    plain = len(words) >= _SENTENCE and not _OF_PROGRAM.search(before) and _FUNCTION_WORD.search(before) is not None
    return plain or _DENIED.search(before) is not None


def _is_quoted(before: str) -> bool:
    """Whether `before` ends in an opening quote that is not that of an error's value (`"error": "…`)."""
    end = before[-1:]
    if not end or end in _OPENING:
        return bool(end)
    if end not in "\"'":
        return False
    rest = before[:-1]
    return (not rest or rest[-1].isspace()) and not _ERROR_KEY.search(rest)
