"""A configuration from a file and from settings; every error is reported with its position."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from latdoctor.errors import DefinitionError, UsageError
from latdoctor.lab.server.config import BatchingConfig, GovernanceConfig, ModelSettings, ServerConfig, load_config


def test_settings_win_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(
        "batching:\n  max_batch_tokens: 512\n  age_ms: 10\ngovernance:\n  lanes: true\nmodel:\n  version: 7\n"
    )
    config = load_config(file, ["batching.age_ms=20", "batching.buckets=64,128"])
    assert config == ServerConfig(
        batching=BatchingConfig(max_batch_tokens=512, age_ms=20, buckets=(64, 128)),
        governance=GovernanceConfig(lanes=True),
        model=ModelSettings(version="7"),
    )


def test_a_configuration_written_as_json_reads_back(tmp_path: Path) -> None:
    config = ServerConfig(batching=BatchingConfig(scheduler="count-only", buckets=(32, 512)))
    file = tmp_path / "server.yaml"
    file.write_bytes(msgspec.json.encode(config))
    assert load_config(file) == config


def test_every_unknown_name_in_a_file_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("batching:\n  size: 5\nbatches:\n  a: 1\nqueue: 7\n")
    with pytest.raises(DefinitionError) as caught:
        load_config(file)
    assert [problem.where.rpartition(":")[2] for problem in caught.value.problems] == ["2", "4", "5"]


def test_value_out_of_range_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("queue:\n  max_requests: 0\n")
    with pytest.raises(DefinitionError, match="max_requests"):
        load_config(file)


@pytest.mark.parametrize(
    "setting", ["", "queue", "queue.max_requests", "queue.size=1", "queue.max_requests=many", "queue.max_requests=0"]
)
def test_wrong_setting_is_reported(setting: str) -> None:
    with pytest.raises(UsageError):
        load_config(None, [setting])
