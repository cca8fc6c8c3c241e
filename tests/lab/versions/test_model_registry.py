"""The registry: what is added is loaded bit for bit, and what is damaged in any way is refused with a code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.faults.model_files import REFUSED_AS, ModelDamage, damage_version
from latdoctor.lab.server.config import MemoryConfig, ModelSettings
from latdoctor.lab.server.intent_model import INTENTS, IntentModel
from latdoctor.lab.server.memory import build
from latdoctor.lab.server.sleeping_model import ARCHITECTURE, SleepingVersion
from latdoctor.lab.server.versions.model_registry import (
    MANIFEST,
    WEIGHTS,
    ModelRefused,
    RefusalCode,
    add_version,
    read_manifest,
    registered_versions,
)
from latdoctor.lab.server.versions.model_weights import load_weights
from latdoctor.lab.server.versions.network_weights import drawn_weights

DIMENSIONS = {"layers": 1, "width": 32, "intents": len(INTENTS), "positions": 64}
INPUTS = [[5, 6, 7], [8, 9, 10, 11]]


@pytest.fixture(scope="module")
def file() -> bytes:
    return drawn_weights("v1", dtype=torch.float32, **DIMENSIONS)


@pytest.fixture
def registry(tmp_path: Path, file: bytes) -> Path:
    add_version(tmp_path / "registry", "v1", file)
    return tmp_path / "registry"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "memory"
    folder.mkdir()
    yield folder
    assert [path for kept in folder.iterdir() for path in kept.iterdir()] == [], "shared weights are left behind"


def built(registry: Path | None, **knobs: str) -> IntentModel:
    model = ModelSettings(precision="fp32", layers=1, width=32, registry=str(registry or ""), **knobs)  # type: ignore[arg-type]
    return IntentModel(model, build(MemoryConfig(backend="arena", pool_mib=4)), positions=64)


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def test_a_registered_version_answers_as_the_network_it_was_made_from(registry: Path) -> None:
    drawn, loaded = built(None).forward(INPUTS), built(registry).forward(INPUTS)
    assert (loaded.intents, loaded.scores, loaded.version) == (drawn.intents, drawn.scores, "v1")
    assert built(registry).checksum == read_manifest(registry, "v1").sha256[:16]


def test_weights_stored_in_bf16_are_used_as_they_are(tmp_path: Path) -> None:
    narrow = drawn_weights("v1", dtype=torch.bfloat16, **DIMENSIONS)
    add_version(tmp_path, "v1", narrow)
    settings = ModelSettings(precision="bf16", registry=str(tmp_path))
    model = IntentModel(settings, build(MemoryConfig(backend="arena", pool_mib=4)), positions=64)
    plain = IntentModel(
        ModelSettings(precision="bf16", layers=1, width=32),
        build(MemoryConfig(backend="arena", pool_mib=4)),
        positions=64,
    )
    assert model.forward(INPUTS).scores == plain.forward(INPUTS).scores


def test_a_version_is_never_changed(registry: Path, file: bytes) -> None:
    with pytest.raises(UsageError, match="already has version v1"):
        add_version(registry, "v1", file + b"\0")
    assert (registry / "v1" / WEIGHTS).read_bytes() == file
    assert [entry.name for entry in registry.iterdir()] == ["v1"]


@pytest.mark.parametrize("name", ["", ".", "..", "../v1", "a/b", ".hidden", "v" * 41, "v1\n", "ü"])
def test_a_name_that_could_be_a_path_is_refused(registry: Path, file: bytes, name: str) -> None:
    with pytest.raises(UsageError):
        add_version(registry, name, file)
    with pytest.raises(ModelRefused) as refused:
        load_weights(registry, name, "private")
    assert refused.value.code is RefusalCode.UNKNOWN_VERSION


@pytest.mark.parametrize("damage", ModelDamage)
@pytest.mark.parametrize("sharing", ["private", "shared"])
def test_a_damaged_version_is_refused_with_its_code(
    registry: Path, memory: Path, damage: ModelDamage, sharing: str
) -> None:
    damage_version(registry, "v1", damage)
    if damage is ModelDamage.PICKLE:  # its checksum is right: it is refused where it is opened
        with pytest.raises(ModelRefused) as refused:
            built(registry)
    else:
        with pytest.raises(ModelRefused) as refused:
            load_weights(registry, "v1", sharing, memory)  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.status) == (REFUSED_AS[damage], 409)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 1 << 40), damage=st.sampled_from([ModelDamage.FLIPPED_BIT, ModelDamage.TRUNCATED]))
def test_any_changed_bit_and_any_lost_byte_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, at: int, damage: ModelDamage
) -> None:
    registry = tmp_path_factory.mktemp("registry")
    file = SleepingVersion().file()
    add_version(registry, "v1", file, ARCHITECTURE)
    damage_version(registry, "v1", damage, at % len(file))
    with pytest.raises(ModelRefused):
        load_weights(registry, "v1", "private")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format": "pickle"}, RefusalCode.WRONG_FORMAT),
        ({"version": "v2"}, RefusalCode.BAD_MANIFEST),
        ({"sha256": "0"}, RefusalCode.BAD_MANIFEST),
        ({"size": -1}, RefusalCode.BAD_MANIFEST),
        ({"more": 1}, RefusalCode.BAD_MANIFEST),
    ],
)
def test_a_manifest_is_read_strictly(registry: Path, change: dict[str, object], code: RefusalCode) -> None:
    path = registry / "v1" / MANIFEST
    path.chmod(0o600)
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), **change}))
    with pytest.raises(ModelRefused) as refused:
        load_weights(registry, "v1", "private")
    assert refused.value.code is code
    assert [(one.version, one.refused) for one in registered_versions(registry)] == [("v1", code)]


@pytest.mark.parametrize(
    ("dimensions", "architecture"),
    [
        ({"intents": 3}, "intent-encoder"),
        ({"positions": 32}, "intent-encoder"),
        ({}, ARCHITECTURE),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path: Path, dimensions: dict[str, int], architecture: str) -> None:
    other = drawn_weights("v1", dtype=torch.float32, **{**DIMENSIONS, **dimensions})
    add_version(tmp_path, "v1", other, architecture)
    with pytest.raises(ModelRefused) as refused:
        built(tmp_path)
    assert refused.value.code is RefusalCode.WRONG_TENSORS


@pytest.mark.parametrize("sharing", ["private", "shared"])
def test_a_file_that_is_damaged_later_changes_nothing(registry: Path, memory: Path, file: bytes, sharing: str) -> None:
    weights = load_weights(registry, "v1", sharing, memory)  # type: ignore[arg-type]
    for damage in (ModelDamage.FLIPPED_BIT, ModelDamage.TRUNCATED, ModelDamage.MISSING):
        damage_version(registry, "v1", damage)
        assert content(weights.path) == file
    weights.close()


def test_shared_weights_are_one_file_until_the_last_has_closed(registry: Path, memory: Path, file: bytes) -> None:
    first, second = (load_weights(registry, "v1", "shared", memory) for _ in range(2))
    assert (first.shared_before, second.shared_before) == (False, True)
    assert os.stat(first.path).st_ino == os.stat(second.path).st_ino  # noqa: PTH116 - follows the link to the file
    first.close()
    assert content(second.path) == file
    third = load_weights(registry, "v1", "shared", memory)
    assert third.shared_before
    second.close()
    third.close()


def test_shared_weights_that_were_damaged_in_memory_are_copied_anew(registry: Path, memory: Path, file: bytes) -> None:
    first = load_weights(registry, "v1", "shared", memory)
    (path,) = next(memory.iterdir()).iterdir()
    path.chmod(0o600)
    path.write_bytes(b"x" * len(file))
    second = load_weights(registry, "v1", "shared", memory)
    assert not second.shared_before
    assert content(second.path) == file
    first.close()
    second.close()


LEFT_BEHIND = """
import os, signal, sys
from pathlib import Path
from latdoctor.lab.server.versions.model_weights import load_weights
kept = load_weights(Path(sys.argv[1]), "v1", "shared", Path(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_load(registry: Path, memory: Path, file: bytes) -> None:
    subprocess.run([sys.executable, "-c", LEFT_BEHIND, str(registry), str(memory)], check=False)
    folder = next(memory.iterdir())
    assert len(list(folder.iterdir())) == 1
    add_version(registry, "v2", SleepingVersion().file(), ARCHITECTURE)
    weights = load_weights(registry, "v2", "shared", memory)
    assert [path.name for path in folder.iterdir()] == [read_manifest(registry, "v2").sha256]
    weights.close()


def test_a_folder_of_shared_weights_that_others_can_write_is_not_used(registry: Path, tmp_path: Path) -> None:
    (tmp_path / f"latdoctor-weights-{os.getuid()}").mkdir()
    (tmp_path / f"latdoctor-weights-{os.getuid()}").chmod(0o777)
    with pytest.raises(OperationError, match="memory"):
        load_weights(registry, "v1", "shared", tmp_path)
