"""Features: what a request tells the model beside its text, two tokens each; and which of them are left out.

A feature stands for something that a service knows of its customer (the channel, the hour, the last order), here drawn
from the session's or the text's hash. Each costs computation. With `features.trim` the ones of least weight are left
out, always or while the circuit breaker is open. Their order is measured (`python -m bench.feature_trimming`).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from latdoctor.lab.server.config import FEATURE_NAMES, FeaturesConfig
from latdoctor.load.text_tokens import RESERVED, VOCABULARY

LEVELS = 16  # that a feature can have


def by_weight(settings: FeaturesConfig) -> tuple[str, ...]:
    """The features that requests have, the weightiest first: as measured, then the others as they are declared."""
    present = FEATURE_NAMES[: settings.count]
    first = tuple(name for name in settings.order if name in present)
    return (*first, *(name for name in present if name not in first))


def features_of(settings: FeaturesConfig, *, trimmed: bool) -> tuple[str, ...]:
    """The names of the features that a request is computed with, in the order of their declaration."""
    kept = frozenset(by_weight(settings)[: settings.kept] if trimmed else FEATURE_NAMES[: settings.count])
    return tuple(name for name in FEATURE_NAMES if name in kept)


def feature_tokens(names: Sequence[str], key: str) -> list[int]:
    """Two tokens for each feature, its name and its level, which is drawn by `key`; the same everywhere."""
    tokens: list[int] = []
    for name in names:
        level = zlib.crc32(f"{name}/{key}".encode("utf-8", "replace")) % LEVELS
        tokens += (_token(name), _token(f"{name}={level}"))
    return tokens


def _token(text: str) -> int:
    return RESERVED + zlib.crc32(text.encode()) % (VOCABULARY - RESERVED)
