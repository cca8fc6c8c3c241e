"""Model input from text (token ids) and audio (synthetic feature frames)."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from latdoctor.load.mix import FRAMES_PER_SECOND

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VOCABULARY = 8192  # of the model; its module loads torch, this one does not


RESERVED = 4  # padding, separator, unknown, mask


SEPARATOR = 1


_PIECE = 16  # a longer word is read in pieces of so many characters


_WORDS = re.compile(r"\w+|[^\w\s]")


def text_tokens(text: str) -> list[int]:
    """Ids of the words and signs of `text`, long words in pieces: the same text gives the same ids everywhere.

    A hash stands in for a trained vocabulary (the hashing trick, Weinberger et al., ICML 2009).
    """
    words = _WORDS.findall(text.lower())
    pieces = (word[start : start + _PIECE] for word in words for start in range(0, len(word), _PIECE))
    return [RESERVED + zlib.crc32(piece.encode("utf-8", "replace")) % (VOCABULARY - RESERVED) for piece in pieces]


def audio_length(seconds: float) -> int:
    """Frames in `seconds` of audio; at least one."""
    return max(1, round(seconds * FRAMES_PER_SECOND))


def audio_frames(seconds: float, features: int) -> NDArray[np.float32]:
    """Frames of synthetic features for `seconds` of audio, seeded by the length: (frames, features)."""
    import numpy as np

    frames = audio_length(seconds)
    return np.random.default_rng(frames).standard_normal((frames, features), dtype=np.float32)
