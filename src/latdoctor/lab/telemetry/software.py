"""Stories of what runs on the GPU: launches, waits, copies, fusion, precision, a full KV cache; and nothing wrong."""

from __future__ import annotations

from dataclasses import replace

from latdoctor.lab.telemetry import logs
from latdoctor.lab.telemetry.boards import A10, A100, H100, RTX4080, SERVED, T4
from latdoctor.lab.telemetry.forward import Pass
from latdoctor.lab.telemetry.gpus import SW_POWER_CAP, Machine, Work, machine
from latdoctor.lab.telemetry.hardware import usual
from latdoctor.lab.telemetry.story import Recording, Scene, Story, promised, triton_service
from latdoctor.lab.telemetry.tensorrt import DANGLING, FALLEN_BACK, SOUND
from latdoctor.lab.telemetry.timeline import Pace
from latdoctor.lab.telemetry.vllm import Engine, capacity

_TRACED = (H100, A100, A10)


def _traced(
    scene: Scene, work: Pass, busy: float, slower: float, *, pace: Pace | None = None, tensorrt: str = ""
) -> Story:
    """A server of which a trace was taken. Its GPUs are sound and `busy`; a pass takes `slower` times as long."""
    rng = scene.rng
    host = machine(rng, _TRACED)
    works = tuple(replace(one, utilization=(busy, busy), power=(0.3 + busy * 0.4,) * 2) for one in usual(scene, host))
    service = triton_service(scene, (slower,) * host.count, rng.uniform(0.42, 0.5))
    recording = Recording(work, pace or Pace(operator=rng.uniform(7.5, 11)), rng.randint(3, 6))
    return Story(host, works, promised(service), service, recording=recording, tensorrt=tensorrt, subjects=("trace",))


def tiny_kernels(scene: Scene) -> Story:
    """A small model, eagerly: each kernel is shorter than the launch of the next."""
    rng = scene.rng
    work = Pass(layers=rng.choice((6, 12)), size=scene.between(0.085, 0.02), fused=False, inputs=4_096)
    return _traced(scene, work, scene.between(0.5, 0.22), scene.between(1.3, 2.1))


def waits_in_the_middle(scene: Scene) -> Story:
    """Values are read back in every layer, and a branch in Python hangs on each."""
    rng = scene.rng
    work = Pass(layers=rng.choice((8, 12)), size=scene.between(0.3, 0.2), reads_back=round(scene.between(3, 7)))
    return _traced(scene, work, scene.between(0.7, 0.45), scene.between(1.25, 1.9))


def copies(scene: Scene) -> Story:
    """State lives on the host and goes to the device and back in each layer, through pageable memory."""
    rng = scene.rng
    size = round(scene.between(1.0, 6.0) * (1 << 20)) // 4096 * 4096
    work = Pass(layers=rng.choice((6, 8)), size=rng.uniform(0.45, 0.6), states=size, pinned=False)
    return _traced(scene, work, scene.between(0.45, 0.2), scene.between(1.4, 2.1))


def unfused(scene: Scene) -> Story:
    """Pointwise operators one by one, and an engine with conversions left between its layers."""
    work = Pass(layers=12, size=scene.rng.uniform(0.8, 1.1), fused=False)
    return _traced(scene, work, 0.93, scene.between(1.15, 1.7), tensorrt=DANGLING)


def wider_type(scene: Scene) -> Story:
    """Matrix products in FP32, without tensor cores, in an engine that was meant to compute in 8 and 16 bits."""
    work = Pass(layers=8, size=scene.rng.uniform(0.5, 0.8), precision="single")
    return _traced(scene, work, 0.97, scene.between(1.3, 2.1), tensorrt=FALLEN_BACK)


def full_cache(scene: Scene) -> Story:
    """More text in flight than the KV cache has blocks for: requests wait, and running ones are thrown back."""
    rng = scene.rng
    host = machine(rng, (H100, A100))
    blocks = rng.randint(3_000, 4_000)
    prompt, output = rng.uniform(140, 240), rng.uniform(280, 380)
    carried = capacity(blocks, prompt, output)
    rate = carried * scene.between(1.08, 1.4)
    engine = Engine(rate, carried * 0.6, rng.uniform(40, 70), blocks, prompt, output)
    works = tuple(_generating(scene, host) for _ in range(host.count))
    return Story(host, works, slo=45.0, engine=engine, subjects=("server",))


def _generating(scene: Scene, host: Machine) -> Work:
    """The GPU of an engine that generates text: its memory is reserved by design."""
    rng = scene.rng
    warm = rng.uniform(-26, -18)
    return Work(utilization=(0.96, 0.98), memory=rng.uniform(0.905, 0.925), temperature=(warm, warm + 1))


def healthy(scene: Scene) -> Story:
    """Nothing is wrong."""
    rng = scene.rng
    host = machine(rng, SERVED, watched=rng.random() < 0.5)
    service = triton_service(scene, (1.0,) * host.count, rng.uniform(0.4, 0.6))
    recording = Recording(Pass(size=rng.uniform(0.9, 1.3)), Pace(), 4)
    return Story(host, tuple(usual(scene, host)), promised(service), service, recording=recording, tensorrt=SOUND)


def busy(scene: Scene) -> Story:
    """Nothing is wrong, and the GPUs are nearly always at work; now and then they touch their power limit."""
    rng = scene.rng
    host = machine(rng, (H100, A100, A10), watched=rng.random() < 0.5)
    works = []
    for _ in range(host.count):
        warm = rng.uniform(-16, -12)
        works.append(
            Work(
                utilization=(0.95, 0.96),
                memory=rng.uniform(0.9, 0.93),
                clock=(rng.uniform(0.92, 0.95), rng.uniform(0.92, 0.95)),
                power=(0.88, 0.93),
                temperature=(warm, warm + 1),
                reasons=((SW_POWER_CAP, 0.25),),
            )
        )
    said = []
    if rng.random() < 0.5:  # a roll-out an hour ago ended the process before
        said = [(scene.earlier(3_000, 4_000), logs.xid(host.pci(0), 45, "Ch 00000008", host.pid - 700))]
    recording = Recording(Pass(size=rng.uniform(1.0, 1.4)), Pace(), 4)
    if rng.random() < 0.5:
        engine = Engine(rate=14.0, before=14.0, onset=20.0, blocks=4_200, prompt=500, output=140)
        return Story(host, tuple(works), 30.0, engine=engine, kernel=said, recording=recording)
    service = triton_service(scene, (1.0,) * host.count, rng.uniform(0.74, 0.8))
    story = Story(host, tuple(works), promised(service, 4.3), service, kernel=said, recording=recording)
    return replace(story, tensorrt=SOUND)


def idle(scene: Scene) -> Story:
    """Nothing is wrong, and hardly anybody asks: clocks are low, and links and boards power down."""
    rng = scene.rng
    host = machine(rng, (H100, A100, A10, T4, RTX4080))
    cool = rng.uniform(-58, -50)
    works = tuple(
        Work(utilization=(0.0, 0.0), memory=rng.uniform(0.2, 0.6), temperature=(cool, cool), generation=None)
        for _ in range(host.count)
    )
    service = triton_service(scene, (1.0,) * host.count, 0.5)
    quiet = replace(service, rate=rng.uniform(0.2, 0.8))
    return Story(host, works, promised(service), quiet)
