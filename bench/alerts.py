"""Sends alerts to a listener as fast as it answers, and counts what it journaled.

Usage: python -m bench.alerts [--alerts 1000] [--senders 8]

Three storms: every alert in a notification of its own, of one group; the same once more (repetitions); every alert in a
group of its own, which opens as many incidents. The listener is a process of its own and its journal a real one.
Leaves with 1 where an alert was lost or journaled twice.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from latdoctor.incident import events
from latdoctor.incident.state import decode_body
from tests.incident.listening import Listener, listener
from tests.incident.made_alerts import alert, notification


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--alerts", type=int, default=1000)
    parser.add_argument("--senders", type=int, default=8)
    given = parser.parse_args()
    numbers = range(given.alerts)
    storms = {
        "one group, new": [notification([alert(n)], key="one") for n in numbers],
        "one group, again": [notification([alert(n)], key="one") for n in numbers],
        "a group each, new": [notification([alert(given.alerts + n)], key=f"group-{n}") for n in numbers],
    }
    with tempfile.TemporaryDirectory() as folder, listener(Path(folder)) as running:
        print(f"{'storm':20} {'seconds':>8} {'p50 ms':>8} {'p99 ms':>8} {'entries':>8}")
        for name, contents in storms.items():
            before = entries(running)
            seconds, each = sent(running.url, contents, given.senders)
            median, tail = statistics.median(each), statistics.quantiles(each, n=100)[98]
            print(f"{name:20} {seconds:8.2f} {median * 1e3:8.1f} {tail * 1e3:8.1f} {entries(running) - before:8}")
        return counted(running, 2 * given.alerts)


def sent(url: str, contents: Sequence[bytes], senders: int) -> tuple[float, list[float]]:
    """How long all of it took, and each answer (seconds)."""
    place, waiting, each = urlsplit(url), list(contents), []

    def send() -> None:
        while waiting:
            try:
                content = waiting.pop()
            except IndexError:
                return
            begun = time.perf_counter()
            connection = http.client.HTTPConnection(place.netloc, timeout=60)
            connection.request("POST", place.path, content)
            status = connection.getresponse().status
            connection.close()
            if status != 200:
                raise SystemExit(f"answered {status}")
            each.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    threads = [threading.Thread(target=send) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun, each


def entries(running: Listener) -> int:
    return sum(len(incident.entries) for incident in running.incidents)


def counted(running: Listener, expected: int) -> int:
    told = (decode_body(entry, events.AlertsReceived) for one in running.incidents for entry in one.of(events.ALERTED))
    found = Counter(one.fingerprint for piece in told for one in piece.alerts)
    doubled = sum(count > 1 for count in found.values())
    print(f"{len(running.incidents)} incidents; {expected - len(found)} of {expected} alerts lost, {doubled} doubled")
    return int(doubled > 0 or len(found) != expected)


if __name__ == "__main__":
    sys.exit(main())
