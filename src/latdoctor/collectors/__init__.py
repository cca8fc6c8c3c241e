"""Collectors: one package per source, with its I/O and its parser."""

from latdoctor.collectors.access_log import collector as access_log
from latdoctor.collectors.base import Collector
from latdoctor.collectors.changes import collector as changes
from latdoctor.collectors.host import collector as host
from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.nsight import collector as nsight
from latdoctor.collectors.nvml import collector as nvml
from latdoctor.collectors.prometheus import collector as prometheus
from latdoctor.collectors.promql import collector as promql
from latdoctor.collectors.tensorrt import collector as tensorrt
from latdoctor.collectors.torch_memory import collector as torch_memory
from latdoctor.collectors.torch_trace import collector as torch_trace

# All collectors in the order of the report. A new collector is a package and a line here.
COLLECTORS: tuple[Collector, ...] = (
    prometheus.COLLECTOR,
    promql.COLLECTOR,
    nvml.COLLECTOR,
    host.COLLECTOR,
    torch_trace.COLLECTOR,
    nsight.COLLECTOR,
    tensorrt.COLLECTOR,
    torch_memory.COLLECTOR,
    logs.COLLECTOR,
    access_log.COLLECTOR,
    changes.COLLECTOR,
)
