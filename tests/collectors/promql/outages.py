"""An hour of servers of which some go away, as a Prometheus keeps it: `up` and a few vLLM series, every 15 s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

END, HOUR, EVERY = 1_795_300_000, 3600, 15


@dataclass(frozen=True)
class Server:
    """A replica of `job` that answers up to `down` seconds before the end; from `gone` before it on it is no target."""

    instance: str
    job: str
    down: int = 0
    gone: int = 0

    @property
    def answered(self) -> int:
        """Its last good scrape."""
        return max(time for time in _times() if time <= END - max(self.down, self.gone))


SERVERS = (
    Server("fine:8000", "steady"),
    Server("lost:8000", "pair", down=1200),
    Server("other:8000", "pair"),
    Server("fresh:8000", "single", down=100),
    Server("blink:8000", "flaky", down=1),  # one failed scrape
    Server("last:8000", "removed", gone=1500),
    Server("old:8000", "rollout", gone=1500),
    Server("new:8000", "rollout"),
)


def _times() -> range:
    return range(END - HOUR, END + 1, EVERY)


def openmetrics(servers: tuple[Server, ...] = SERVERS) -> str:
    """In the format that `promtool tsdb create-blocks-from openmetrics` reads."""
    ups, gauges, counts = [], [], []
    for server in servers:
        target = f'job="{server.job}",instance="{server.instance}"'
        labels = f'{target},model_name="m"'
        for time, up in _scrapes(server):
            ups.append(f"up{{{target}}} {int(up)} {time}")
            if up:
                done = 2 * (time - END + HOUR)
                gauges.append(f"vllm:num_requests_running{{{labels}}} 3 {time}")
                counts.append(f'vllm:request_success_total{{{labels},finished_reason="stop"}} {done} {time}')
    families = (("up", "gauge", ups), ("vllm:num_requests_running", "gauge", gauges))
    lines: list[str] = []
    for name, kind, samples in (*families, ("vllm:request_success", "counter", counts)):
        lines += [f"# TYPE {name} {kind}", *samples]
    return "\n".join([*lines, "# EOF", ""])


def _scrapes(server: Server) -> Iterator[tuple[int, bool]]:
    for time in _times():
        if not server.gone or time <= END - server.gone:
            yield time, not server.down or time <= END - server.down
