"""Which connection is closed to make room for the next."""

from __future__ import annotations

import pytest

from latdoctor.incident.connection_places import ConnectionPlaces, Full


def places(*addresses: str, capacity: int = 4) -> ConnectionPlaces[int]:
    """Connections numbered in the order of their arrival."""
    found: ConnectionPlaces[int] = ConnectionPlaces(capacity)
    for number, address in enumerate(addresses):
        found.add(number, address)
    return found


@pytest.mark.parametrize(
    ("addresses", "evicted"),
    [
        (["10.0.0.1"] * 3, None),
        (["10.0.0.1"] * 4, 0),
        (["10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.3"], 1),
        (["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"], 0),
        (["2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:2::2", "2001:db8:0:3::1"], 1),
        (["::ffff:10.0.0.2", "10.0.0.3", "::ffff:10.0.0.4", "::ffff:10.0.0.4"], 2),
        (["fe80::1%eth0", "fe80::2%eth0", "10.0.0.1", "no address"], 0),
    ],
)
def test_oldest_connection_of_the_busiest_network_is_evicted(addresses: list[str], evicted: int | None) -> None:
    found = places(*addresses)
    assert found.add(99, "10.0.0.9") == evicted
    assert len(found) == min(4, len(addresses) + 1)


def test_connections_of_others_survive_a_flood() -> None:
    found = places("10.0.0.2", capacity=8)
    evicted = [found.add(number, "10.0.0.66") for number in range(1, 1000)]
    assert 0 not in evicted


def test_kept_connections_are_never_evicted() -> None:
    found = places("a", "a", "a", "a")
    found.keep(0)
    assert found.add(4, "a") == 1
    for number in range(2, 5):
        found.keep(number)
    with pytest.raises(Full):
        found.add(5, "a")
    found.remove(3)
    assert found.add(5, "a") is None
    assert found.add(6, "a", evictable=False) == 5
