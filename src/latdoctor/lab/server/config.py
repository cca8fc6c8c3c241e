"""Every knob of the server, in one schema that records which are live and which need a restart.

The admin interface reads and patches this value as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from latdoctor import strict_yaml
from latdoctor.errors import DefinitionError, Problem, UsageError

_LIVE = {"live": True}
_RESTART = {"live": False}

Milliseconds = Annotated[float, Meta(ge=0, le=600_000, extra=_LIVE)]
LiveFlag = Annotated[bool, Meta(extra=_LIVE)]
SchedulerName = Annotated[
    Literal["token-budget", "long-alone", "count-only", "duration-bounded", "length-buckets", "no-timer", "single"],
    Meta(extra=_LIVE),
]
Tokens = Annotated[int, Meta(ge=1, le=4096)]


class BatchingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests run together. The defaults are measured by `bench/schedulers.py`."""

    scheduler: SchedulerName = "token-budget"
    max_batch_requests: Annotated[int, Meta(ge=1, le=512, extra=_LIVE)] = 32
    max_batch_tokens: Annotated[int, Meta(ge=16, le=1 << 20, extra=_LIVE)] = 1024
    max_waste: Annotated[float, Meta(ge=0, le=1, extra=_LIVE)] = 0.3
    age_ms: Milliseconds = 0  # an older request leads the next batch; above 0 the short ones may overtake until then
    max_wait_ms: Milliseconds = 0
    adaptive_wait: LiveFlag = False
    long_seconds: Annotated[float, Meta(gt=0, le=600, extra=_LIVE)] = 15.0
    total_seconds: Annotated[float, Meta(gt=0, le=3600, extra=_LIVE)] = 20.0
    buckets: Annotated[tuple[Tokens, ...], Meta(min_length=1, max_length=32, extra=_LIVE)] = (64, 128, 256, 384, 512)
    size_by_complexity: LiveFlag = False

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if any(later <= before for before, later in pairwise(self.buckets)):
            raise ValueError(f"buckets are {list(self.buckets)}, and each must be longer than the one before it")


class QueueConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the request queue."""

    max_requests: Annotated[int, Meta(ge=1, le=100_000, extra=_LIVE)] = 2000
    max_tokens: Annotated[int, Meta(ge=16, le=1 << 24, extra=_LIVE)] = 200_000
    deadline_ms: Milliseconds = 0  # 0: no shedding by deadline
    max_tokens_per_request: Annotated[int, Meta(ge=1, le=4096, extra=_RESTART)] = 512


class MemoryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The allocator of buffers. `returning` returns every large block to the kernel: the allocation storm."""

    backend: Annotated[Literal["glibc", "arena", "cuda"], Meta(extra=_RESTART)] = "glibc"
    glibc: Annotated[Literal["default", "pooled", "returning"], Meta(extra=_LIVE)] = "pooled"
    pool_mib: Annotated[int, Meta(ge=1, le=4096, extra=_RESTART)] = 64
    segment_mib: Annotated[int, Meta(ge=1, le=1024, extra=_RESTART)] = 2
    limit_mib: Annotated[float, Meta(ge=0.1, le=65_536, extra=_LIVE)] = 4096  # what the arena may hold at most
    long_share: Annotated[float, Meta(ge=0, le=0.9, extra=_RESTART)] = 0.2
    wait_ms: Annotated[float, Meta(ge=0, le=10_000, extra=_LIVE)] = 50  # for memory, before a batch is cut in two
    compaction_ms: Milliseconds = 0  # 0: never
    reuse_buffers: LiveFlag = True


class GovernanceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Load limits. 0 disables a limit."""

    breaker_p99_ms: Milliseconds = 0
    breaker_open_ms: Milliseconds = 2000
    lanes: LiveFlag = False
    lane_boundary_tokens: Annotated[int, Meta(ge=1, le=4096, extra=_LIVE)] = 200
    lane_age_ms: Milliseconds = 250  # a long request that waited longer is next
    fallback_ms: Milliseconds = 0
    standby: Annotated[Literal["off", "auto", "on"], Meta(extra=_LIVE)] = "off"
    retry_budget: Annotated[float, Meta(ge=0, le=1, extra=_LIVE)] = 0.0  # share of requests that may be retries; 0: any


ClassName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,39}$")]


class PrioritiesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Classes of requests, by the header X-Priority-Class, each with a share of `seats` requests that are computed or
    queued and of `waiting` before (`priority_classes`). `seats` 0: off. A request without the header is of `default`.
    """

    seats: Annotated[int, Meta(ge=0, le=100_000, extra=_LIVE)] = 0
    waiting: Annotated[int, Meta(ge=0, le=100_000, extra=_LIVE)] = 200
    names: Annotated[tuple[ClassName, ...], Meta(min_length=1, max_length=16, extra=_LIVE)] = (
        *("interactive", "standard", "batch"),
    )
    shares: Annotated[
        tuple[Annotated[float, Meta(ge=0, le=1)], ...], Meta(min_length=1, max_length=16, extra=_LIVE)
    ] = (0.6, 0.3, 0.1)
    default: Annotated[ClassName, Meta(extra=_LIVE)] = "standard"

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if len(self.names) != len(self.shares) or len(set(self.names)) != len(self.names):
            raise ValueError(f"names are {list(self.names)} and shares {list(self.shares)}: one share for each name")
        if sum(self.shares) > 1 + 1e-9:
            raise ValueError(f"shares are {list(self.shares)}, together more than 1")
        if self.default not in self.names:
            raise ValueError(f"default is {self.default!r}, and must be one of {list(self.names)}")


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The model and how it is computed. `auto` is bf16 where the processor has AMX, else fp32.

    `inductor` makes machine code, tens of seconds for a shape; `eager-graph` only captures the graph and its guards, a
    fraction of a second for a shape, and runs it operator by operator. With a `registry` a version is loaded from there
    (`model_registry`), with its own layers and width; `shared` weights are one copy in memory for all replicas.
    """

    version: Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^[ -~]+$", extra=_LIVE)] = "v1"
    registry: Annotated[str, Meta(max_length=4096, extra=_RESTART)] = ""  # a folder; empty: weights are drawn
    weights: Annotated[Literal["private", "shared"], Meta(extra=_RESTART)] = "private"  # of the registry's versions
    precision: Annotated[Literal["auto", "fp32", "bf16", "int8"], Meta(extra=_LIVE)] = "auto"
    attention: Annotated[Literal["sdpa", "naive"], Meta(extra=_LIVE)] = "sdpa"
    threads: Annotated[int, Meta(ge=1, le=64, extra=_LIVE)] = 1
    compile: Annotated[bool, Meta(extra=_RESTART)] = False
    compiler: Annotated[Literal["inductor", "eager-graph"], Meta(extra=_RESTART)] = "inductor"
    compile_buckets: LiveFlag = True  # batches are padded to a few shapes; without, every new shape is compiled
    warm_up: Annotated[bool, Meta(extra=_RESTART)] = True
    layers: Annotated[int, Meta(ge=1, le=48, extra=_RESTART)] = 4
    width: Annotated[int, Meta(ge=32, le=2048, extra=_RESTART)] = 256


FEATURE_NAMES = (
    *("channel", "language", "region", "hour", "weekday", "device", "app-version", "loyalty", "orders", "open-orders"),
    *("last-order-age", "last-order-value", "returns", "refunds", "complaints", "payment", "delivery", "warehouse"),
    *("campaign", "coupon", "page", "referrer", "waiting-time", "previous-intent"),
)
FeatureName = Annotated[str, Meta(min_length=1, max_length=40)]


class FeaturesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What a request tells the model beside its text: the first `count` of FEATURE_NAMES. With `trim` only the `kept`
    weightiest are computed: always (`on`), or while the circuit breaker is open (`auto`). `order`: by measured weight.
    """

    count: Annotated[int, Meta(ge=0, le=len(FEATURE_NAMES), extra=_RESTART)] = 0
    trim: Annotated[Literal["off", "auto", "on"], Meta(extra=_LIVE)] = "off"
    kept: Annotated[int, Meta(ge=0, le=len(FEATURE_NAMES), extra=_LIVE)] = 12
    order: Annotated[tuple[FeatureName, ...], Meta(max_length=len(FEATURE_NAMES), extra=_LIVE)] = ()

    def __post_init__(self) -> None:
        """Raises ValueError."""
        unknown = [name for name in self.order if name not in FEATURE_NAMES]
        if unknown or len(set(self.order)) != len(self.order):
            raise ValueError(
                f"order has {unknown[0] if unknown else 'a name twice'}; features: {', '.join(FEATURE_NAMES)}"
            )


class SessionsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Conversation state. Levels: this process (`max_sessions` 0: not), Redis (`store`), the client's transcript.

    Each call to Redis takes `store_timeout_ms` at most; after `store_breaker_failures` in a row (0: never) it is not
    called for a while. `store_limit_mib`, when it is changed, overrides its maxmemory; 0 restores its own.
    `redis_address` is that of Redis; with a `sentinel_primary`, of the Sentinels that know the primary by this name.
    """

    ttl_s: Annotated[float, Meta(ge=0, le=86_400, extra=_LIVE)] = 3600
    window_turns: Annotated[int, Meta(ge=0, le=1000, extra=_LIVE)] = 5  # 0: unlimited
    max_sessions: Annotated[int, Meta(ge=0, le=1_000_000, extra=_LIVE)] = 10_000  # in this process
    store: Annotated[Literal["process", "redis"], Meta(extra=_LIVE)] = "process"
    redis_address: Annotated[str, Meta(max_length=400, extra=_LIVE)] = ""
    sentinel_primary: Annotated[str, Meta(max_length=100, pattern=r"^[A-Za-z0-9._-]*$", extra=_LIVE)] = ""
    store_timeout_ms: Annotated[float, Meta(ge=1, le=60_000, extra=_LIVE)] = 20
    store_breaker_failures: Annotated[int, Meta(ge=0, le=1000, extra=_LIVE)] = 3
    store_breaker_open_ms: Milliseconds = 2000
    store_limit_mib: Annotated[float, Meta(ge=0, le=1 << 20, extra=_LIVE)] = 0
    compress_bytes: Annotated[int, Meta(ge=0, le=1 << 20, extra=_LIVE)] = 0  # turns above it; 0: none

    def __post_init__(self) -> None:
        """Raises ValueError."""
        each = self.redis_address.split(",") if self.redis_address else []
        if not all(_is_address(one) for one in each) or (len(each) > 1 and not self.sentinel_primary):
            what = "HOST:PORT, or with a sentinel_primary HOST:PORT,HOST:PORT,…"
            raise ValueError(f"redis_address is {self.redis_address!r}, and must be {what}")

    @property
    def redis_addresses(self) -> tuple[tuple[str, int], ...]:
        """Hosts and ports of Redis, or of its Sentinels."""
        pairs = (one.rpartition(":") for one in self.redis_address.split(",") if one)
        return tuple((host, int(port)) for host, _, port in pairs)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65_536


class AnswerCacheConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Answers to frequent questions. `check_share` of the hits are computed as well and compared."""

    mode: Annotated[Literal["off", "exact", "normalised"], Meta(extra=_LIVE)] = "off"
    ttl_s: Annotated[float, Meta(ge=0, le=86_400, extra=_LIVE)] = 300
    max_entries: Annotated[int, Meta(ge=1, le=1_000_000, extra=_LIVE)] = 10_000
    by_version: LiveFlag = True  # an answer of another model version is dropped
    check_share: Annotated[float, Meta(ge=0, le=1, extra=_LIVE)] = 0.02


class DependencyConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The feature store called for each request; an empty address disables it."""

    address: Annotated[str, Meta(max_length=200, extra=_LIVE)] = ""
    timeout_ms: Milliseconds = 1000
    bypass: LiveFlag = False

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.address:
            parts = urlsplit(self.url)
            if parts.scheme != "http" or not parts.hostname or not parts.port:  # urlsplit raises for a wrong port
                raise ValueError(f"address is {self.address!r}, and must be HOST:PORT")

    @property
    def url(self) -> str:
        """The address with its scheme."""
        return self.address if "://" in self.address else f"http://{self.address}"


class ControlConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Feedback control of batch bound, wait and admission by measured latency (`control`). `observe` changes nothing.

    The objective is a P99 of `slo_ms`; within `dead_band` below it nothing is changed. A step changes a knob by
    `max_step` at most; one that made it worse is rolled back and not repeated for `hold_off_s`.
    """

    mode: Annotated[Literal["off", "observe", "on"], Meta(extra=_LIVE)] = "off"
    slo_ms: Annotated[float, Meta(gt=0, le=600_000, extra=_LIVE)] = 500
    interval_ms: Annotated[float, Meta(ge=50, le=60_000, extra=_LIVE)] = 500  # between two decisions
    window_ms: Annotated[float, Meta(ge=100, le=60_000, extra=_LIVE)] = 2000  # of measurements for one decision
    dead_band: Annotated[float, Meta(ge=0, le=0.9, extra=_LIVE)] = 0.15
    max_step: Annotated[float, Meta(gt=0, le=0.9, extra=_LIVE)] = 0.5
    hold_off_s: Annotated[float, Meta(ge=0, le=3600, extra=_LIVE)] = 30
    min_batch_requests: Annotated[int, Meta(ge=1, le=512, extra=_LIVE)] = 4
    max_batch_requests: Annotated[int, Meta(ge=1, le=512, extra=_LIVE)] = 128
    min_batch_tokens: Annotated[int, Meta(ge=16, le=1 << 20, extra=_LIVE)] = 256
    max_batch_tokens: Annotated[int, Meta(ge=16, le=1 << 20, extra=_LIVE)] = 4096
    max_wait_ms: Milliseconds = 20
    min_deadline: Annotated[float, Meta(gt=0, le=10, extra=_LIVE)] = 0.5  # of the objective
    max_deadline: Annotated[float, Meta(gt=0, le=10, extra=_LIVE)] = 1.0
    log: Annotated[str, Meta(max_length=4096, extra=_RESTART)] = ""  # a file for the steps, one JSON object a line

    def __post_init__(self) -> None:
        """Raises ValueError."""
        for low, high in (("min_batch_requests", "max_batch_requests"), ("min_batch_tokens", "max_batch_tokens"),
                          ("min_deadline", "max_deadline")):  # fmt: skip
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} is {getattr(self, low)}, and {high} is lower: {getattr(self, high)}")


class ServerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration of one replica."""

    batching: BatchingConfig = BatchingConfig()
    queue: QueueConfig = QueueConfig()
    memory: MemoryConfig = MemoryConfig()
    governance: GovernanceConfig = GovernanceConfig()
    priorities: PrioritiesConfig = PrioritiesConfig()
    model: ModelSettings = ModelSettings()
    features: FeaturesConfig = FeaturesConfig()
    sessions: SessionsConfig = SessionsConfig()
    dependency: DependencyConfig = DependencyConfig()
    answer_cache: AnswerCacheConfig = AnswerCacheConfig()
    control: ControlConfig = ControlConfig()

    @property
    def etag(self) -> str:
        """A digest of the value: equal configurations have equal tags."""
        canonical = msgspec.convert(msgspec.to_builtins(self), ServerConfig)  # 250 and 250.0 are the same time
        return hashlib.sha256(msgspec.json.encode(canonical, order="sorted")).hexdigest()[:16]


def patched(config: ServerConfig, patch: Mapping[str, Any], *, strict: bool = True) -> ServerConfig:
    """`config` with `{group: {knob: value}}` applied. Raises UsageError for an unknown knob or a bad value.

    Without `strict`, text is converted to numbers and flags, as in YAML and command-line settings.
    """
    whole = msgspec.to_builtins(config)
    for group, knobs in patch.items():
        if group not in whole or not isinstance(knobs, Mapping):
            what = "is no object" if group in whole else "is no group of knobs"
            raise UsageError(f"{group!r} {what}", next_step=f"{{group: {{knob: value}}}}, groups: {', '.join(whole)}")
        whole[group] = {**whole[group], **knobs}
    try:
        return msgspec.convert(whole, ServerConfig, strict=strict)
    except msgspec.ValidationError as error:
        raise UsageError(f"the configuration is not valid: {error}") from error


def changed_restart_knobs(before: ServerConfig, after: ServerConfig) -> tuple[str, ...]:
    """The knobs that differ and need a restart, as `group.knob`."""
    live = dict(knobs())
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    changed = [f"{group}.{name}" for group in old for name in old[group] if old[group][name] != new[group][name]]
    return tuple(name for name in changed if not live[name])


def knobs() -> Iterator[tuple[str, bool]]:
    """Every knob as `group.knob`, and whether it is live."""
    for group in msgspec.structs.fields(ServerConfig):
        for field in msgspec.structs.fields(group.type):
            info = msgspec.inspect.type_info(field.type)
            extra = info.extra if isinstance(info, msgspec.inspect.Metadata) else None
            yield f"{group.name}.{field.name}", bool((extra or {}).get("live"))


def load_config(file: Path | None, settings: Sequence[str] = ()) -> ServerConfig:
    """The configuration in `file` with `settings` over it; what neither names has its default.

    Raises DefinitionError for the file, UsageError for a setting.
    """
    config = ServerConfig()
    if file is not None:
        texts = _texts(file)
        try:
            config = patched(config, texts, strict=False)
        except UsageError as error:
            raise DefinitionError([Problem(str(file), error.what)]) from error
    return with_settings(config, settings)


def with_settings(config: ServerConfig, settings: Sequence[str]) -> ServerConfig:
    """`config` with settings as `queue.max_requests=500` over it. Raises UsageError."""
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in dict(knobs()):
            raise UsageError(f"{setting!r} sets no knob", next_step="write GROUP.KNOB=VALUE, as queue.max_requests=500")
        group, _, knob = name.partition(".")
        written = value.split(",") if _is_list(config, group, knob) else value
        config = patched(config, {group: {knob: written}}, strict=False)
    return config


def _texts(file: Path) -> dict[str, dict[str, Any]]:
    """`{group: {knob: text or texts}}` of a file, with every unknown name reported at its line."""
    problems: list[Problem] = []
    known = dict(knobs())
    groups = {name.partition(".")[0] for name in known}
    root = strict_yaml.load(file)
    found: dict[str, dict[str, Any]] = {}
    for group, node in _entries(root, problems):
        if group not in groups:
            problems.append(Problem(node.where, f"there is no group {group!r}; one of {', '.join(sorted(groups))}"))
            continue
        found[group] = {}
        for knob, value in _entries(node, problems):
            if f"{group}.{knob}" not in known:
                problems.append(Problem(value.where, f"there is no knob {group}.{knob}"))
            found[group][knob] = value.text if value.text is not None else _list(value, problems)
    if problems:
        raise DefinitionError(problems)
    return found


def _entries(node: strict_yaml.Node, problems: list[Problem]) -> list[tuple[str, strict_yaml.Node]]:
    if isinstance(node.value, dict):
        return list(node.value.items())
    problems.append(Problem(node.where, "a mapping is expected here"))
    return []


def _list(node: strict_yaml.Node, problems: list[Problem]) -> list[str]:
    if isinstance(node.value, tuple) and all(item.text is not None for item in node.value):
        return [item.text or "" for item in node.value]
    problems.append(Problem(node.where, "here a value or a list of values is needed"))
    return []


def _is_list(config: ServerConfig, group: str, knob: str) -> bool:
    return isinstance(getattr(getattr(config, group), knob), tuple)
