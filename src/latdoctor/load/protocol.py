"""Constants of the load generator and the reference server: audio frame rate, body sizes, latency buckets."""

from __future__ import annotations

FRAMES_PER_SECOND = 25  # of audio; one frame is one token to the model
SMALL_BODY_BYTES = 1024  # a body up to here fits one packet of any network with its headers
BODY_SIZES = ("small", "large")
# 0.0005·1.5ⁿ up to 60 s: a quantile from these buckets is at most 22 % off.
SECONDS = tuple(float(f"{0.0005 * 1.5**n:.6g}") for n in range(29))


def body_size(content_bytes: int) -> str:
    """The class of a request body (one of BODY_SIZES) on the server's and the client's metrics page."""
    return BODY_SIZES[content_bytes > SMALL_BODY_BYTES]
