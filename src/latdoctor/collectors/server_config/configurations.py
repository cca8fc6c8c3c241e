"""What servers answer about their configuration, as values of signals: Triton, TorchServe, Ray Serve.

A field that a version does not report yields no value; nothing is assumed from defaults. Formats: Triton's
model_config.proto as JSON, TorchServe's describe-model response, and Ray Serve's ServeInstanceDetails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from latdoctor.collectors.server_config import text_protobuf
from latdoctor.evidence.model import Value

_US, _MS = 1e-6, 1e-3  # seconds
CPU = "cpu"  # of config.device
_OWN_DEVICES = ("tensorrtllm", "vllm")  # backends of Triton that choose their GPUs whatever the instances are
MOST = 256  # models of one document


@dataclass(frozen=True, slots=True)
class ModelConfiguration:
    """The configuration of one model or deployment."""

    name: str
    values: Mapping[str, Value]  # by signal


@dataclass(frozen=True, slots=True)
class ConfigurationKind:
    """A kind of configuration document. `read` raises ValueError for a text that is none."""

    name: str
    title: str
    signals: tuple[str, ...]
    read: Callable[[bytes], Sequence[ModelConfiguration]]


class _QueuePolicy(msgspec.Struct):
    max_queue_size: int = 0
    default_timeout_microseconds: int = 0


class _Batching(msgspec.Struct):
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    default_queue_policy: _QueuePolicy | None = None


class _InstanceGroup(msgspec.Struct):
    count: int = 1
    gpus: tuple[int, ...] = ()
    kind: str = ""


class _Transactions(msgspec.Struct):
    decoupled: bool = False


class _TritonModel(msgspec.Struct):
    name: str
    max_batch_size: int
    backend: str = ""
    dynamic_batching: _Batching | None = None
    instance_group: tuple[_InstanceGroup, ...] = ()
    sequence_batching: dict[str, Any] | None = None
    ensemble_scheduling: dict[str, Any] | None = None
    model_transaction_policy: _Transactions | None = None


def _triton(content: bytes) -> Sequence[ModelConfiguration]:
    model = msgspec.json.decode(content, type=_TritonModel, strict=False)
    return (ModelConfiguration(model.name, dict(_of_triton(model))),)


_REPEATED = ("instance_group", "gpus", "preferred_batch_size")


def _triton_text(content: bytes) -> Sequence[ModelConfiguration]:
    """`config.pbtxt` of a model repository. Triton takes the name of the folder where it gives none."""
    fields = _with_lists(text_protobuf.decode(content.decode("utf-8", "replace")))
    try:
        model = msgspec.convert({"name": "", "max_batch_size": 0, **fields}, _TritonModel, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"it is no configuration of a model: {error}") from error
    return (ModelConfiguration(model.name, dict(_of_triton(model))),)


def _with_lists(fields: text_protobuf.Message) -> text_protobuf.Message:
    """The fields with a list for each that the schema repeats, however often it occurs."""
    found: text_protobuf.Message = {}
    for name, value in fields.items():
        values = value if isinstance(value, list) else [value]
        inner: list[text_protobuf.Value] = [_with_lists(one) if isinstance(one, dict) else one for one in values]
        found[name] = inner if name in _REPEATED or isinstance(value, list) else inner[0]
    return found


def _of_triton(model: _TritonModel) -> Iterator[tuple[str, Value]]:
    yield "config.batch_max", float(max(1, model.max_batch_size))  # 0: the model takes no batches
    if model.model_transaction_policy is not None:
        yield "config.decoupled", float(model.model_transaction_policy.decoupled)
    if model.instance_group:
        yield "config.instances", float(sum(one.count * max(1, len(one.gpus)) for one in model.instance_group))
        if all(one.kind == "KIND_CPU" for one in model.instance_group) and model.backend not in _OWN_DEVICES:
            yield "config.device", CPU
    if model.sequence_batching is not None or model.ensemble_scheduling is not None:
        return  # these schedule requests without the dynamic batcher
    batching = model.dynamic_batching
    yield "config.dynamic_batching", float(batching is not None)
    if batching is None:
        return
    yield "config.queue_delay", batching.max_queue_delay_microseconds * _US
    if batching.preferred_batch_size:
        yield "config.batch_preferred", ", ".join(map(str, batching.preferred_batch_size[:20]))
    policy = batching.default_queue_policy or _QueuePolicy()
    if policy.max_queue_size > 0:  # 0: no limit
        yield "config.queue_limit", float(policy.max_queue_size)
    if policy.default_timeout_microseconds > 0:
        yield "config.queue_timeout", policy.default_timeout_microseconds * _US


class _JobQueue(msgspec.Struct, rename="camel"):
    remaining_capacity: int
    pending_requests: int


class _Worker(msgspec.Struct):
    gpu: bool | None = None


class _TorchServeModel(msgspec.Struct, rename="camel"):
    model_name: str
    batch_size: int
    min_workers: int
    max_workers: int
    max_batch_delay: float = 0.0
    job_queue_status: _JobQueue | None = None
    device_type: str = ""
    workers: tuple[_Worker, ...] = ()


def _torchserve(content: bytes) -> Sequence[ModelConfiguration]:
    models = msgspec.json.decode(content, type=list[_TorchServeModel], strict=False)
    return tuple(ModelConfiguration(one.model_name, dict(_of_torchserve(one))) for one in models[:MOST])


def _of_torchserve(model: _TorchServeModel) -> Iterator[tuple[str, Value]]:
    yield "config.batch_max", float(model.batch_size)
    yield "config.dynamic_batching", float(model.batch_size > 1)
    if model.batch_size > 1:  # a batch of one waits for nothing
        yield "config.queue_delay", model.max_batch_delay * _MS
    yield "config.instances", float(model.min_workers)
    yield "config.instances_max", float(model.max_workers)
    if model.job_queue_status is not None:
        queue = model.job_queue_status
        yield "config.queue_limit", float(queue.remaining_capacity + queue.pending_requests)
        yield "queue.depth", float(queue.pending_requests)
    on_gpu = [one.gpu for one in model.workers]
    if model.device_type == CPU or (on_gpu and not model.device_type and all(one is False for one in on_gpu)):
        yield "config.device", CPU


class _Autoscaling(msgspec.Struct):
    max_replicas: int | None = None


class _DeploymentConfig(msgspec.Struct):
    num_replicas: int | str | None = None  # a number, or "auto"
    max_ongoing_requests: int | None = None
    max_queued_requests: int | None = None
    autoscaling_config: _Autoscaling | None = None


class _Deployment(msgspec.Struct):
    deployment_config: _DeploymentConfig
    target_num_replicas: int | None = None


class _Application(msgspec.Struct):
    deployments: dict[str, _Deployment] = {}


class _RayServe(msgspec.Struct):
    applications: dict[str, _Application]


def _ray_serve(content: bytes) -> Sequence[ModelConfiguration]:
    found = msgspec.json.decode(content, type=_RayServe, strict=False)
    deployments = [item for one in found.applications.values() for item in one.deployments.items()]
    return tuple(ModelConfiguration(name, dict(_of_ray(one))) for name, one in deployments[:MOST])


def _of_ray(deployment: _Deployment) -> Iterator[tuple[str, Value]]:
    config = deployment.deployment_config
    replicas = deployment.target_num_replicas
    if replicas is None and isinstance(config.num_replicas, int):
        replicas = config.num_replicas
    if replicas is not None:
        yield "config.instances", float(replicas)
    if config.autoscaling_config is not None and config.autoscaling_config.max_replicas is not None:
        yield "config.instances_max", float(config.autoscaling_config.max_replicas)
    if config.max_ongoing_requests is not None:
        yield "config.concurrency", float(config.max_ongoing_requests)
    if config.max_queued_requests is not None and config.max_queued_requests >= 0:  # -1: no limit
        yield "config.queue_limit", float(config.max_queued_requests)


_WORKERS = ("config.instances", "config.instances_max", "config.queue_limit")
_BATCHES = ("config.dynamic_batching", "config.queue_delay", "config.batch_max")
_TRITON_ONLY = ("config.batch_preferred", "config.queue_timeout", "config.decoupled")
TRITON = ConfigurationKind(
    "triton-model-config",
    "configuration of a Triton model",
    (*_BATCHES, "config.instances", "config.queue_limit", "config.device", *_TRITON_ONLY),
    _triton,
)
TRITON_TEXT = ConfigurationKind("triton-config-pbtxt", "config.pbtxt of a Triton model", TRITON.signals, _triton_text)
TORCHSERVE = ConfigurationKind(
    "torchserve-models",
    "description of TorchServe models",
    (*_BATCHES, *_WORKERS, "config.device", "queue.depth"),
    _torchserve,
)
RAY_SERVE = ConfigurationKind(
    "ray-serve-applications", "applications of Ray Serve", (*_WORKERS, "config.concurrency"), _ray_serve
)
KINDS = (TRITON, TORCHSERVE, RAY_SERVE)
