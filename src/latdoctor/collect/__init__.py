"""One package per source: reading it, and parsing what was read."""

from latdoctor.collect.access_log import collector as access_log
from latdoctor.collect.changes import collector as changes
from latdoctor.collect.host import collector as host
from latdoctor.collect.logs import collector as logs
from latdoctor.collect.nsight import collector as nsight
from latdoctor.collect.nvml import collector as nvml
from latdoctor.collect.prometheus import collector as prometheus
from latdoctor.collect.promql import collector as promql
from latdoctor.collect.source import Collector
from latdoctor.collect.tensorrt import collector as tensorrt
from latdoctor.collect.torch_memory import collector as torch_memory
from latdoctor.collect.torch_trace import collector as torch_trace

# Every source, in the order in which the report lists them. A new collector is a package and a line here.
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
