"""All formats, in the order in which they are tried. A new format is a module and a line here."""

from latdoctor.collectors.documents.formats import (
    apache_bench,
    genai_perf,
    http_summary,
    k6,
    kubectl_describe,
    kubectl_tables,
    kubernetes_objects,
    locust,
    mlperf_loadgen,
    nvidia_smi_csv,
    nvidia_smi_dmon,
    nvidia_smi_query,
    nvidia_smi_table,
    nvidia_smi_xml,
    perf_analyzer,
    serving_benchmark,
    vegeta,
    wrk,
)
from latdoctor.collectors.documents.text_format import TextFormat

ALL: tuple[TextFormat, ...] = (
    apache_bench.TEXT,
    genai_perf.CSV,
    genai_perf.JSON,
    genai_perf.TEXT,
    http_summary.OHA_JSON,
    http_summary.TEXT,
    k6.JSON,
    k6.LINES,
    k6.TEXT,
    kubectl_describe.FORMAT,
    kubectl_tables.EVENT_COLUMNS,
    kubectl_tables.FORMAT,
    kubernetes_objects.JSON,
    kubernetes_objects.YAML,
    locust.CSV,
    locust.HISTORY,
    locust.TEXT,
    mlperf_loadgen.TEXT,
    nvidia_smi_csv.FORMAT,
    nvidia_smi_dmon.FORMAT,
    nvidia_smi_query.FORMAT,
    nvidia_smi_table.FORMAT,
    nvidia_smi_xml.FORMAT,
    perf_analyzer.CSV,
    perf_analyzer.TEXT,
    serving_benchmark.JSON,
    serving_benchmark.TEXT,
    vegeta.JSON,
    vegeta.TEXT,
    wrk.TEXT,
)
# Those that may be parts of a file, and those that are always a file of their own.
FORMATS = tuple(one for one in ALL if not one.whole)
WHOLE = tuple(one for one in ALL if one.whole)
