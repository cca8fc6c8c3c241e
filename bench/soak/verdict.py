"""The verdict of a soak: identities between the counts, and the growth of memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

MIB = 1 << 20

# A fresh server still grows while its heaps find their size: measured with memory given back at once (glibc
# `returning`), 22 MiB over the first 45 000 requests, from 1.2 KiB a request down to 0.13. At the 50 requests a second
# of the default model that is up to 2 MiB/min in the second half of ten minutes. A leak that loses one ticket with its
# input for each request (2 KiB or more) is 6 MiB/min there, and 50 MiB/min with the small model. Only the floor is
# judged: in `pooled` the heap itself spreads (550 MiB after 90 000 requests, with what is allocated flat at 152 MiB).
MOST_MIB_PER_MINUTE = 3.0
_MOST_POINTS = 400  # every pair counts, so the cost is quadratic


class Counted(Struct, frozen=True):
    """What both sides counted from rest to rest. `client` is the generator's, `crowd` the misbehaving clients' account.

    `client`: attempts by status; `crowd`: answers by status. The server's own are rises of its counters.
    """

    requests: int
    endings: dict[str, int]
    attempts: int
    client: dict[str, int]
    crowd: dict[str, int]
    crowd_arrived: int
    crowd_vanished: int
    crowd_unknown: int
    arrivals: int
    cancelled: int
    server: dict[str, int]
    shed: dict[str, int]
    rejected: dict[str, int]


def accounts(counted: Counted) -> Iterable[str]:
    """The violated identities."""
    yield from _client_side(counted)
    yield from _server_side(counted)
    yield from _between(counted)


def _client_side(counted: Counted) -> Iterable[str]:
    if sum(counted.endings.values()) != counted.requests:
        yield f"client: {counted.requests} requests; endings: {counted.endings}"
    if sum(counted.client.values()) != counted.attempts:
        yield f"client: {counted.attempts} attempts; statuses: {counted.client}"
    for word in ("reset", "no-connection", "bad-answer"):
        if counted.client.get(word):
            yield f"client: {counted.client[word]} attempts ended with {word}"


def _server_side(counted: Counted) -> Iterable[str]:
    answered = sum(counted.server.values())
    if counted.arrivals != answered + counted.cancelled:
        yield f"server: {counted.arrivals} arrived, {answered} were answered and {counted.cancelled} cancelled"
    refused = counted.server.get("429", 0) + counted.server.get("503", 0)
    if refused != sum(counted.shed.values()):
        yield f"server: {refused} times 429 or 503; reasons: {counted.shed}"
    wrong = sum(count for status, count in counted.server.items() if status[0] == "4" and status != "429")
    if wrong != sum(counted.rejected.values()):
        yield f"server: {wrong} other 4xx; reasons: {counted.rejected}"
    for status, count in counted.server.items():
        if status[0] == "5" and status != "503":
            yield f"server: {count} requests were answered {status}"


def _between(counted: Counted) -> Iterable[str]:
    """Count may differ only by attempts that timed out, which may have reached the server."""
    received = {status: count for status, count in counted.client.items() if status.isdigit()}
    timeouts = counted.client.get("timeout", 0)
    beyond = counted.arrivals - sum(received.values()) - counted.crowd_arrived
    if not 0 <= beyond <= timeouts:
        yield (
            f"between: {counted.arrivals} arrived at the server; the generator received {sum(received.values())}, "
            f"{counted.crowd_arrived} were the crowd's: {beyond} more, with {timeouts} timeouts"
        )
    for status in sorted({*received, *counted.crowd, *counted.server} - {"gone"}):
        ours = received.get(status, 0) + counted.crowd.get(status, 0)
        theirs = counted.server.get(status, 0)
        free = timeouts + counted.crowd_unknown
        if not ours <= theirs <= ours + free:
            yield f"between: clients saw {ours} times {status}, the server {theirs} ({free} may not have been seen)"
    if counted.crowd.get("gone"):
        yield f"between: {counted.crowd['gone']} connections were closed without an answer"
    unseen = counted.crowd_vanished + counted.crowd_unknown + beyond
    if not counted.crowd_vanished <= counted.cancelled <= unseen:
        yield f"between: {counted.cancelled} cancelled, not between {counted.crowd_vanished} and {unseen}"


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes of all pairs (Theil, 1950; Sen, 1968), which single jumps do not change.

    Raises ValueError for fewer than two points.
    """
    from scipy.stats import theilslopes

    kept = points[:: max(1, len(points) // _MOST_POINTS)]
    if len(kept) < 2:
        raise ValueError("a slope needs two points")
    at, values = zip(*kept, strict=True)
    return float(theilslopes(values, at).slope)


def floors(points: Sequence[tuple[float, float]], window: float) -> list[tuple[float, float]]:
    """The lowest value of each whole window of so many seconds.

    The memory modes that are turned differ by 200 MiB; a window as long as all of them in turn has the leanest in it.
    """
    if not points:
        return []
    start = points[0][0]
    whole = int((points[-1][0] - start) / window)
    return [
        (number * window, min(value for at, value in points if number <= (at - start) / window < number + 1))
        for number in range(whole)
    ]


def grows(bytes_per_second: float) -> bool:
    """Whether memory grows by more than the start of a server explains."""
    return bytes_per_second * 60 > MOST_MIB_PER_MINUTE * MIB


def mib_per_minute(slope_: float) -> str:
    return f"{slope_ * 60 / MIB:+.2f} MiB/min"
