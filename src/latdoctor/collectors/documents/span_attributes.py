"""What attributes of spans say of a request: the times that inference engines write, tokens, and failures.

vLLM writes `gen_ai.latency.*` in seconds on its span `llm_request`; SGLang and others follow. Counts of tokens have
the names of the OpenTelemetry conventions, old and new.
"""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.collectors.documents.request_spans import Span

Value = str | float | bool

_PARTS = {
    "queue": ("gen_ai.latency.time_in_queue",),
    "prefill": ("gen_ai.latency.time_in_model_prefill", "gen_ai.latency.time_in_model.prefill"),
    "decode": ("gen_ai.latency.time_in_model_decode", "gen_ai.latency.time_in_model.decode"),
}
_MODEL = ("gen_ai.latency.time_in_model_inference", "gen_ai.latency.time_in_model_execute",
          "gen_ai.latency.time_in_model_forward")  # fmt: skip
_VALUES = {
    "ttft": ("gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token"),
    "input.length": ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens", "llm.usage.prompt_tokens"),
    "output.length": ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens", "llm.usage.completion_tokens"),
}
# Old and new names of the conventions, and of OpenTracing.
_STORE = ("db.system", "db.system.name", "db.type", "messaging.system")
_STATUS = ("http.response.status_code", "http.status_code")
_FAILED = 500
_TOO_MANY = 429


def describe(span: Span, attributes: Mapping[str, Value]) -> None:
    """Put into `span` what its attributes report."""
    for stage, names in _PARTS.items():
        seconds = _number(attributes, names)
        if seconds is not None:
            span.parts[stage] = seconds
    model = _number(attributes, _MODEL)
    if model is not None and "decode" not in span.parts:
        span.parts["model"] = model
    for signal, names in _VALUES.items():
        value = _number(attributes, names)
        if value is not None:
            span.values[signal] = value
    span.of_store |= any(name in attributes for name in _STORE)
    status = _number(attributes, _STATUS)
    code = attributes.get("rpc.grpc.status_code")
    failed = status is not None and (status >= _FAILED or status == _TOO_MANY)
    span.failed |= failed or attributes.get("error") in (True, "true") or code not in (None, 0, 0.0, "0", "OK")


def _number(attributes: Mapping[str, Value], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = attributes.get(name)
        if isinstance(value, bool) or value is None:
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        if 0 <= number < float("inf"):
            return number
    return None
