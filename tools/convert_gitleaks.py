"""Writes the rules of gitleaks as the data that the redaction reads.

    git clone https://github.com/gitleaks/gitleaks && python tools/convert_gitleaks.py gitleaks

Of its config/gitleaks.toml (MIT, `gitleaks.LICENSE` beside the data) each rule keeps its id, its keywords, its least
entropy and its expression, made into the syntax that RE2 and `re` share. Left out are rules of file names alone, and
`COVERED`: what spans lines or knows a secret by the name before it, for which the redaction has means of its own. What
an expression asks for behind a secret (a quote, a blank) becomes the end of its letters: in a log anything may follow.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src" / "latdoctor" / "evidence" / "redaction"
COVERED = {
    "curl-auth-header",
    "curl-auth-user",
    "generic-api-key",
    "hashicorp-tf-password",
    "kubernetes-secret-yaml",
    "microsoft-teams-webhook",
    "private-key",
}
_NAME_BEFORE = r"[\w.-]{0,50}?"
_END = r"(?:[^0-9A-Za-z]|$)"
# A bare digest of 40 digits is a commit far more often than a token of Sourcegraph.
_EDITS = {"sourcegraph-access-token": (r"|[a-fA-F0-9]{40})\b)", r")\b)")}
# Words that the expression itself contains, for rules that go by a word elsewhere in the file.
_KEYWORDS = {"airtable-personnal-access-token": ["pat"], "facebook-access-token": ["|", "%"]}


def converted(rule: dict[str, Any]) -> dict[str, Any]:
    """One rule as data."""
    old, new = _EDITS.get(rule["id"], ("", ""))
    text = rule["regex"].replace(old, new) if old else rule["regex"]
    text = text.replace(_NAME_BEFORE, "").replace("[[:alnum:]]", "[0-9A-Za-z]").replace(r"\z", "$")
    text = re.sub(r"\(\?:\[\\x60'\"\\s;\]\|\\\\\[nr\]\|\$(?:\|\\b)?\)", lambda _: _END, text)
    text = re.sub(r"\(\?P<\w+>", "(?:", text)
    text = _scoped(text)
    made = {"id": rule["id"], "keywords": _KEYWORDS.get(rule["id"], rule["keywords"]), "regex": text}
    if "entropy" in rule:
        made["entropy"] = rule["entropy"]
    group = rule.get("secretGroup", 1 if re.compile(text).groups else 0)
    return made | ({} if group == 1 else {"group": group})


def _scoped(text: str) -> str:
    """`a(?i)b` as `a(?i:b)`: a flag in the middle of an expression is an error to `re`."""
    while (at := text.find("(?i)")) >= 0:
        end = _end_of_group(text, at + 4)
        text = f"{text[:at]}(?i:{text[at + 4 : end]}){text[end:]}"
    return text


def _end_of_group(text: str, at: int) -> int:
    depth, in_class = 0, False
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth < 0:
                return at
        at += 1
    return at


def _output(place: str, *words: str) -> str:
    command = ["git", "-C", place, *words]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout  # noqa: S603


def main(place: str) -> None:
    whole, licence = _output(place, "show", "HEAD:config/gitleaks.toml"), _output(place, "show", "HEAD:LICENSE")
    commit = _output(place, "rev-parse", "HEAD").strip()
    rules = [one for one in tomllib.loads(whole)["rules"] if "regex" in one and one["id"] not in COVERED]
    source = {"source": "https://github.com/gitleaks/gitleaks", "commit": commit, "licence": "MIT, gitleaks.LICENSE"}
    lines = ",\n".join(json.dumps(converted(one), sort_keys=True) for one in rules)
    head = json.dumps(source)[:-1]
    (TARGET / "gitleaks.json").write_text(f'{head}, "rules": [\n{lines}\n]}}\n', encoding="utf-8")
    (TARGET / "gitleaks.LICENSE").write_text(licence, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
