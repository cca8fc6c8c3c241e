"""Model input from audio: synthetic feature frames; and the token between two texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latdoctor.load.mix import FRAMES_PER_SECOND

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEPARATOR = 1


def audio_length(seconds: float) -> int:
    """Frames in `seconds` of audio; at least one."""
    return max(1, round(seconds * FRAMES_PER_SECOND))


def audio_frames(seconds: float, features: int) -> NDArray[np.float32]:
    """Frames of synthetic features for `seconds` of audio, seeded by the length: (frames, features)."""
    import numpy as np

    frames = audio_length(seconds)
    return np.random.default_rng(frames).standard_normal((frames, features), dtype=np.float32)
