"""Bounded number of connections of an HTTP server: which one is closed to make room for the next."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

Connection = TypeVar("Connection")
_IPV6_SITE = 64  # leading bits that one site has to itself; it can send from any address of them


@dataclass(slots=True)
class _Place:
    network: str
    evictable: bool


class Full(Exception):  # noqa: N818 - a state
    """Every place is taken, and none by an evictable connection."""


class ConnectionPlaces(Generic[Connection]):
    """Up to `capacity` connections. Used by one thread.

    The next one takes the place of the oldest evictable connection of the network that has the most of them. So a
    client that floods the server evicts its own connections first. If others send from the same address (loopback, a
    proxy), the connection that has needed the longest is evicted: a well-behaved client needs milliseconds.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._places: dict[Connection, _Place] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._places)

    def add(self, connection: Connection, address: str, *, evictable: bool = True) -> Connection | None:
        """Add a connection; return the one that it evicts, if any. Raises Full."""
        evicted = self.evict() if len(self._places) >= self._capacity else None
        if evicted is None and len(self._places) >= self._capacity:
            raise Full
        self._places[connection] = _Place(_network(address), evictable)
        return evicted

    def keep(self, connection: Connection) -> None:
        """It is not evicted any more."""
        if connection in self._places:
            self._places[connection].evictable = False

    def remove(self, connection: Connection) -> None:
        self._places.pop(connection, None)

    def evict(self) -> Connection | None:
        """Remove and return the connection to close; None if there is no evictable one."""
        evictable = {connection: place.network for connection, place in self._places.items() if place.evictable}
        if not evictable:
            return None
        counts = Counter(evictable.values())
        most = max(counts.values())
        found = next(connection for connection, network in evictable.items() if counts[network] == most)
        self.remove(found)
        return found


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, _IPV6_SITE), strict=False))
    return str(parsed)
