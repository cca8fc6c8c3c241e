"""What tells the process behind a metrics page from another one: when it started, and how far its counters are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

_SAME_START = 2.0  # seconds: an uptime and a start are read at slightly different times


class PageState(Struct, frozen=True):
    """One metrics page at one moment. `started` in unix seconds; None where the page does not show it."""

    page: str
    started: float | None
    counters: Mapping[str, float]


def other_process(before: Sequence[PageState], after: Sequence[PageState]) -> str:
    """Why the pages after are not those of the processes before; empty where nothing shows that.

    A process that started anew counts from zero again, and so does another replica that answers at the same address.
    """
    then = {one.page: one for one in before}
    for now in after:
        if now.page not in then:
            return f"{now.page} was not read before the change"
        if why := _difference(then[now.page], now):
            return why
    return ""


def _difference(then: PageState, now: PageState) -> str:
    if then.started is not None and now.started is not None and abs(now.started - then.started) > _SAME_START:
        return f"{now.page} is that of a process that started later or earlier"
    lower = next((name for name, value in then.counters.items() if now.counters.get(name, value) < value), None)
    return f"{now.page}: the counter {lower} began anew, so another process answers" if lower else ""
