"""Collectors: one package per source, with its I/O and its parser, which are imported when the source is read."""

from latdoctor.collectors import (
    access_log,
    changes,
    documents,
    host,
    kubernetes,
    logs,
    nsight,
    nvml,
    prometheus,
    promql,
    server_config,
    tensorrt,
    torch_memory,
    torch_trace,
)
from latdoctor.collectors.base import Collector

# All collectors in the order of the report. A new collector is a package and a line here.
COLLECTORS: tuple[Collector, ...] = (
    prometheus.COLLECTOR,
    promql.COLLECTOR,
    kubernetes.COLLECTOR,
    server_config.COLLECTOR,
    nvml.COLLECTOR,
    host.COLLECTOR,
    torch_trace.COLLECTOR,
    nsight.COLLECTOR,
    tensorrt.COLLECTOR,
    torch_memory.COLLECTOR,
    logs.COLLECTOR,
    access_log.COLLECTOR,
    changes.COLLECTOR,
    documents.COLLECTOR,
)
