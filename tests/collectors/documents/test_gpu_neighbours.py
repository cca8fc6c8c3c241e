"""Which processes beside an inference server on a GPU are another program's, by their names."""

from __future__ import annotations

import pytest

from latdoctor.collectors.documents.nvidia_smi.neighbours import foreign_processes
from latdoctor.collectors.nvml.samples import GpuProcess

GIB = 2.0**30
CASES: dict[str, tuple[list[tuple[str, float | None]], int | None]] = {
    "nothing runs": ([], None),
    "one server": ([("tritonserver", 18 * GIB)], 0),
    "its own workers": ([("VLLM::EngineCore", GIB), ("VLLM::Worker_TP0", 70 * GIB)], 0),
    "a training job": ([("tritonserver", 18 * GIB), ("python train_lora.py", 20 * GIB)], 1),
    "a job of which the memory is not shown": ([("VLLM::EngineCore", None), ("jupyter-lab", None)], 1),
    "two servers": ([("ollama_llama_server", 5 * GIB), ("sglang::scheduler", 60 * GIB)], 1),
    "an interpreter may be the server's": ([("tritonserver", 18 * GIB), ("/usr/bin/python3", 2 * GIB)], None),
    "an interpreter and a job": ([("vllm", GIB), ("python3.12", GIB), ("blender", 3 * GIB)], 1),
    "no server by name": ([("python", 18 * GIB), ("python", 20 * GIB)], None),
    "the display": ([("tritonserver", 18 * GIB), ("/usr/lib/xorg/Xorg", GIB / 16)], 0),
    "a name is withheld": ([("[Not Found]", 18 * GIB), ("tritonserver", GIB)], None),
}


@pytest.mark.parametrize("name", CASES)
def test_processes_of_other_programs(name: str) -> None:
    listed, expected = CASES[name]
    found = foreign_processes([GpuProcess(pid, memory, text) for pid, (text, memory) in enumerate(listed)])
    assert found == expected
