"""Samples of private texts, made when they are needed: nothing that looks like a credential is in a file.

A template names what stands in it as `{alphabet:length}`, so that each sample knows its own private parts.
"""

from __future__ import annotations

import json
import random
import re
import string
from dataclasses import dataclass
from pathlib import Path

_WORDS = ("umbrella", "giraffe", "marmalade", "lighthouse", "cinnamon", "trombone", "walnut", "glacier", "saffron")
_ALPHABETS = {
    "base62": string.ascii_letters + string.digits,
    "base36": string.ascii_lowercase + string.digits,
    "base36u": string.ascii_uppercase + string.digits,
    "base32": string.ascii_uppercase + "234567",
    "b64": string.ascii_letters + string.digits + "+/",
    "hex": "0123456789abcdef",
    "hexu": "0123456789ABCDEF",
    "digits": string.digits,
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}
_PLACE = re.compile(r"\{(\w+):(\d+)\}|\{word\}")


@dataclass(frozen=True, slots=True)
class Sample:
    """A private text, and its parts that must be gone."""

    id: str
    text: str
    private: tuple[str, ...]


def samples(seed: int = 1) -> tuple[Sample, ...]:
    """One of each kind of `kinds.json`."""
    kinds = json.loads(Path(__file__).with_name("kinds.json").read_text(encoding="utf-8"))["kinds"]
    return tuple(filled(one["id"], one["text"], random.Random(f"{seed} {one['id']}")) for one in kinds)


def filled(name: str, template: str, chance: random.Random) -> Sample:
    """The template with each place filled by chance."""
    private: list[str] = []

    def made(found: re.Match[str]) -> str:
        if found[1] is None:
            text = chance.choice(_WORDS) + "".join(chance.choices(string.ascii_lowercase, k=4))
        else:
            text = _string(found[1], int(found[2]), chance)
        if len(text) >= 4:  # shorter parts stand elsewhere by chance
            private.append(text)
        return text

    return Sample(name, _PLACE.sub(made, template), tuple(private))


def _string(alphabet: str, length: int, chance: random.Random) -> str:
    if alphabet == "b64p":  # base64 as a whole
        return "".join(chance.choices(_ALPHABETS["base62"], k=length - 6)) + "aB3dEf"
    if alphabet == "mixed":  # as many changes of kind as chance gives on average
        return "".join(chance.choice(_ALPHABETS["base62"][kind::3]) for kind in range(length) for kind in [kind % 3])
    letters = _ALPHABETS[alphabet]
    while True:
        text = "".join(chance.choices(letters, k=length))
        if len(letters) < 30 or length < 10 or (re.search(r"\d", text) and re.search("[A-Za-z]", text)):
            return text
