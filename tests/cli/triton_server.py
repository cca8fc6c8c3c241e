"""A real Triton with one model, run by an interpreter that has nvidia-pytriton: `python triton_server.py FOLDER`.

The model takes 50 ms for a batch of any size up to four; the ports that it took stand in FOLDER/ports afterwards. It
ends when its standard input does.
"""

# No annotations of our own packages: this file runs where latdoctor is not installed.
import socket
import sys
import time
from pathlib import Path

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def double(x):
    time.sleep(0.05)
    return {"y": x * 2}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main(folder):
    http, grpc, metrics = free_port(), free_port(), free_port()
    config = TritonConfig(
        http_port=http,
        grpc_port=grpc,
        metrics_port=metrics,
        http_address="127.0.0.1",
        metrics_interval_ms=200,
        log_verbose=0,
    )
    with Triton(config=config, workspace=str(folder / "workspace")) as triton:
        triton.bind(
            model_name="double",
            infer_func=double,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(1,))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(1,))],
            config=ModelConfig(max_batch_size=4, batcher=DynamicBatcher(max_queue_delay_microseconds=2000)),
        )
        triton.run()
        (folder / "ports.tmp").write_text(f"{http} {metrics}")
        (folder / "ports.tmp").rename(folder / "ports")
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
