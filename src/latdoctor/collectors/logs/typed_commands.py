"""Commands that a paste shows above their output: they are no log lines, and some print a part of a log only. Pure."""

from __future__ import annotations

import re

_LONGEST = 400  # characters of a line that are looked at
# What a shell prints before what is typed: `$ `, `root@node:~# `, `(venv) [me@node ~]$ `. A `#` alone begins a heading.
_PROMPT = re.compile(
    r"\s{0,4}(?:>\s?){0,5}(?:[\w.@:~/()\[\] +-]{0,80}[$❯]|[\w.@:~/()\[\] +-]{0,80}(?<!\d)%"
    r"|[\w.()\[\] -]{0,40}@[\w.@:~/()\[\] +-]{1,80}#|#(?= ?(?:sudo )?(?:dmesg|journalctl|kubectl|docker|[efz]?grep)\b))"
    r" (?=\S)"
)
_READERS = r"(?:dmesg|journalctl|[efz]?grep|rg|awk|sed|(?:kubectl|docker|podman|oc) logs|(?:tail|head) -\S)"
_BARE_COMMAND = re.compile(rf"\s{{0,4}}(?:sudo )?(?:/[\w/]{{1,80}}/)?{_READERS}(?:\s|$)")
_SELECTS = r"(?:[efz]?grep|rg|ag|g?awk|sed|head|tail|cut|uniq|perl|jq|findstr|Select-String)"
# A pipe into a filter, a filter itself, or an option that selects lines or times.
_CUTS = re.compile(
    rf"\|\s{{0,4}}(?:sudo )?{_SELECTS}\b|(?:^|[;&(]\s?|sudo ){_SELECTS}\s"
    r"|\s--(?:since|until|tail|lines|grep|level|facility|priority|identifier|since-time|limit-bytes|pager-end|follow)\b"
    r"|\bjournalctl\b.{0,200}?\s-(?:[a-zA-Z]{0,6}[nefpgtSU])(?=[\s=\d]|$)"
    r"|\bdmesg\b.{0,80}?\s-[a-zA-Z]{0,4}[lf]\b|\b(?:docker|podman) logs\b.{0,200}?\s-n\b"
)
# Bytes of lines that may be such a command, in the syntax that `re` and RE2 share.
HINTS = (
    rb"\| ?(?:sudo )?(?:[efz]?grep|rg|awk|sed|head|tail) |\bjournalctl -|\bdmesg -|\blogs .{0,200}--(?:tail|since)"
    rb"|[$#%] (?:sudo )?(?:[efz]?grep|tail|head|awk|sed|dmesg|journalctl) "
)


def command_in(text: str) -> str:
    """The command that is typed in `text`, a line without a log's prefix; empty where there is none."""
    begin = text[:_LONGEST]
    if prompt := _PROMPT.match(begin):
        return begin[prompt.end() :].strip()
    return begin.strip() if _BARE_COMMAND.match(begin) else ""


def is_selective(command: str) -> bool:
    """Whether the output of `command` is a part of a log: selected lines, the last ones, or those of some time."""
    return _CUTS.search(command) is not None
