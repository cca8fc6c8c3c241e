"""Sends alerts to a listener as fast as it answers, and counts what it journaled.

Usage: python -m bench.alerts [--alerts 1000] [--senders 8]

Three storms: every alert in a notification of its own, of one group; the same once more (repetitions); every alert in a
group of its own, which opens as many incidents. The listener is a process of its own and its journal a real one.
The exit code is 1 where an alert was lost or journaled twice.
"""

from __future__ import annotations

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

from bench.harness import arguments, print_result
from latdoctor.incident import events
from latdoctor.incident.state import decode_body
from tests.incident.alert_builders import alert, notification
from tests.incident.listen_process import Listener, listener


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--alerts", type=int, default=1000)
    parser.add_argument("--senders", type=int, default=8)
    options = parser.parse_args()
    numbers = range(options.alerts)
    storms = {
        "one group, new": [notification([alert(n)], key="one") for n in numbers],
        "one group, again": [notification([alert(n)], key="one") for n in numbers],
        "a group each, new": [notification([alert(options.alerts + n)], key=f"group-{n}") for n in numbers],
    }
    with tempfile.TemporaryDirectory() as folder, listener(Path(folder)) as running:
        found: dict[str, object] = {}
        for name, contents in storms.items():
            before = entries(running)
            seconds, each = sent(running.url, contents, options.senders)
            median, tail = statistics.median(each), statistics.quantiles(each, n=100)[98]
            found[name] = {
                "seconds": round(seconds, 2),
                "p50_ms": round(median * 1e3, 1),
                "p99_ms": round(tail * 1e3, 1),
                "entries": entries(running) - before,
            }
        found |= counted(running, 2 * options.alerts)
    print_result(found, options.output)
    return int(bool(found["lost"] or found["duplicated"]))


def sent(url: str, contents: Sequence[bytes], senders: int) -> tuple[float, list[float]]:
    """The seconds of all requests together, and of each response."""
    place, waiting, each = urlsplit(url), list(contents), []

    def send() -> None:
        while waiting:
            try:
                content = waiting.pop()
            except IndexError:
                return
            begun = time.perf_counter()
            connection = http.client.HTTPConnection(place.netloc, timeout=60)
            connection.request("POST", place.path, content, {"Content-Type": "application/json"})
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


def counted(running: Listener, expected: int) -> dict[str, int]:
    received = (
        decode_body(entry, events.AlertsReceived) for one in running.incidents for entry in one.of(events.ALERTED)
    )
    found = Counter(one.fingerprint for batch in received for one in batch.alerts)
    duplicated = sum(count > 1 for count in found.values())
    return {"incidents": len(running.incidents), "lost": expected - len(found), "duplicated": duplicated}


if __name__ == "__main__":
    sys.exit(main())
