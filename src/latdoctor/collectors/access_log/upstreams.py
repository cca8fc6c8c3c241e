"""What a proxy writes of the servers behind it: nginx's lists of attempts, and the stages that follow from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from latdoctor.collectors.access_log import entry as times
from latdoctor.collectors.access_log.entry import RequestDuration
from latdoctor.collectors.access_log.stages import RequestStage

_BETWEEN = re.compile(r"\s*,\s*|\s+:\s+")  # nginx: between servers, and between groups of them after a redirect
_LIST = r"(?:[\w.:\[\]/-]+(?:\s*,\s*|\s+:\s+))*[\w.:\[\]/-]+"
# ingress-nginx: request length and time, the names of the services, then four lists.
_INGRESS = re.compile(
    rf"(?P<time>\d{{1,9}}\.\d{{3}}) \[[^\]]{{0,300}}\] \[[^\]]{{0,300}}\] (?P<address>{_LIST}) (?P<length>{_LIST})"
    rf" (?P<upstream>{_LIST}) (?P<status>{_LIST}) (?P<id>[\w-]{{1,64}})"
)
_NAMED = re.compile(
    r"\b(?P<name>urt|upstream_response_time|upstream_time|uct|upstream_connect_time|us|upstream_status|ua|upstream_addr"
    rf'|upstream)[=:]\s?"?(?P<list>{_LIST})"?'
)
_STAGES = {
    **dict.fromkeys(("urt", "upstream_response_time", "upstream_time"), RequestStage.UPSTREAM),
    **dict.fromkeys(("uct", "upstream_connect_time"), RequestStage.CONNECT),
}


@dataclass(frozen=True, slots=True)
class Upstreams:
    """The servers to which one request was sent. `status` is the last one's; `attempts` is 0 if unknown."""

    stages: tuple[tuple[str, float], ...] = ()
    status: int | None = None
    attempts: int = 0
    address: str = ""  # of the last one, as the proxy writes it
    request_id: str = ""
    total: RequestDuration | None = None  # of the request, where the same part of the line says it


def total_of(text: str) -> float | None:
    """The sum of `0.004, 1.2` in seconds; None if none of the attempts has a time."""
    parts = _parts(text)
    found = [parsed.seconds for one in parts if (parsed := times.parse_duration(one, 1.0))]
    return sum(found) if found else None


def _parts(text: str) -> Sequence[str]:
    return _BETWEEN.split(text) if "," in text or " " in text else (text,)


def last_status(text: str) -> int | None:
    """The last server's status in `502, 200`; None if it gave none (`-`)."""
    last = _parts(text)[-1].strip()
    return int(last) if last.isascii() and last.isdecimal() and 0 < int(last) < 1000 else None


def count(text: str) -> int:
    """How many servers a list names; 0 for `-`."""
    return sum(one.strip() not in ("", "-") for one in _parts(text))


def last_address(text: str) -> str:
    """The last server that a list names; empty for `-`."""
    return _parts(text)[-1].strip().strip("-")


def of_tail(tail: str) -> Upstreams | None:
    """What follows the combined form, as ingress-nginx or as names and values; None if it is neither."""
    if found := _INGRESS.search(tail):
        upstream = total_of(found["upstream"])
        stages = ((RequestStage.UPSTREAM, upstream),) if upstream is not None else ()
        return Upstreams(
            stages,
            last_status(found["status"]),
            count(found["address"]),
            last_address(found["address"]),
            found["id"].strip("-"),
            times.parse_duration(found["time"], 1.0),
        )
    return of_names((match["name"], match["list"]) for match in _NAMED.finditer(tail[:8000]))


def of_names(pairs: Iterable[tuple[str, str]]) -> Upstreams | None:
    """The same of nginx's variables by name; None if there is none."""
    stages: dict[str, float] = {}
    status, attempts, address, known = None, 0, "", False
    for name, text in pairs:
        if name in _STAGES:
            seconds = total_of(text)
            known = True
            attempts = max(attempts, count(text))
            if seconds is not None:
                stages[_STAGES[name]] = seconds
        elif name in ("us", "upstream_status"):
            status, known = last_status(text), True
            attempts = max(attempts, count(text))
        elif name in ("ua", "upstream_addr"):
            attempts, address, known = max(attempts, count(text)), last_address(text), True
    return Upstreams(tuple(stages.items()), status, attempts, address) if known else None
