"""Families of causes: which were looked at while the rules were written, and which causes are hard to tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

from msgspec import Struct, convert

from latdoctor.yamlfile import Node, load

_FILE = Path(__file__).with_name("split.yaml")


class Split(Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """As published in split.yaml."""

    looked_at: tuple[str, ...]
    never: tuple[str, ...]
    hard_pairs: tuple[tuple[str, ...], ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every two causes that are hard to tell apart, each pair once."""
        found = (pair for group in self.hard_pairs for pair in combinations(group, 2))
        return tuple(dict.fromkeys(found))

    def neighbours(self, causes: Sequence[str]) -> frozenset[str]:
        """Whatever is hard to tell from one of `causes`."""
        return frozenset(name for pair in self.pairs for name in pair if set(pair) & set(causes)) - set(causes)

    def is_never(self, causes: Sequence[str]) -> bool:
        """Whether all of `causes` are of families that were never looked at."""
        return bool(causes) and all(family(cause) in self.never for cause in causes)


def family(cause: str) -> str:
    """`app.load` of `app.load.burst`."""
    return ".".join(cause.split(".")[:2])


@cache
def split() -> Split:
    """The published split. Raises DefinitionError."""
    return convert(_plain(load(_FILE)), Split)


def _plain(node: Node) -> object:
    if isinstance(node.value, dict):
        return {key: _plain(child) for key, child in node.value.items()}
    return [_plain(child) for child in node.value] if isinstance(node.value, tuple) else node.value
