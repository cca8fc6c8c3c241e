"""One module per source: reading it, and parsing what was read."""

from latdoctor.collect import logs, nvml, prometheus
from latdoctor.collect.source import Collector

# Every source, in the order in which the report lists them. A new collector is a module and a line here.
COLLECTORS: tuple[Collector, ...] = (prometheus.COLLECTOR, nvml.COLLECTOR, logs.COLLECTOR)
