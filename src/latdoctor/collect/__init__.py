"""One module per source: reading it, and parsing what was read."""

from latdoctor.collect import host, logs, nvml, prometheus, torch_trace
from latdoctor.collect.source import Collector

# Every source, in the order in which the report lists them. A new collector is a module and a line here.
COLLECTORS: tuple[Collector, ...] = (
    prometheus.COLLECTOR,
    nvml.COLLECTOR,
    host.COLLECTOR,
    torch_trace.COLLECTOR,
    logs.COLLECTOR,
)
