"""A text that a regular expression matches, chosen by chance."""

from __future__ import annotations

import random
import string
import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import re._constants as codes
    import re._parser as parser

_ALL = string.ascii_letters + string.digits + "_-/+=.:'\" ;~%|>,"
_CATEGORIES = {
    codes.CATEGORY_DIGIT: string.digits,
    codes.CATEGORY_WORD: string.ascii_letters + string.digits + "_",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_SPACE: string.ascii_letters + string.digits,
}
_MOST = 40  # of a repetition without an end


def matching(regex: str, chance: random.Random) -> str:
    """A text that `regex` matches as a whole."""
    return _of(parser.parse(regex), chance, False)


def _of(parts: Any, chance: random.Random, any_case: bool) -> str:
    return "".join(_one(kind, value, chance, any_case) for kind, value in parts)


def _one(kind: Any, value: Any, chance: random.Random, any_case: bool) -> str:
    match kind:
        case codes.LITERAL:
            return chr(value)
        case codes.NOT_LITERAL:
            return chance.choice([char for char in _ALL if char != chr(value)])
        case codes.ANY:
            return "."
        case codes.AT:
            return ""
        case codes.IN:
            return chance.choice(_letters(value))
        case codes.BRANCH:
            return _of(chance.choice([one for one in value[1] if len(one)] or value[1]), chance, any_case)
        case codes.SUBPATTERN:
            return _of(value[3], chance, any_case)
        case codes.MAX_REPEAT | codes.MIN_REPEAT:
            low, high, inner = value
            times = chance.randint(low, max(low, min(int(high), low + _MOST)))
            if times > 1 and inner[0][0] is codes.ANY:  # one alone stands for a full stop
                return "".join(chance.choices(string.ascii_letters, k=times))
            return "".join(_of(inner, chance, any_case) for _ in range(times))
    raise NotImplementedError(str(kind))


def _letters(parts: Any) -> str:
    found: list[str] = []
    negated = False
    for kind, value in parts:
        match kind:
            case codes.NEGATE:
                negated = True
            case codes.LITERAL:
                found.append(chr(value))
            case codes.RANGE:
                found += [chr(code) for code in range(value[0], value[1] + 1)]
            case codes.CATEGORY:
                found += _CATEGORIES[value]
            case _:
                raise NotImplementedError(str(kind))
    return "".join(
        [char for char in _ALL if char not in found] if negated else [char for char in found if char.isprintable()]
    )
