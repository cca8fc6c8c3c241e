"""LitServe with the intent model: `python -m bench.peers.litserve_server --port N [--batch N] [--wait-ms N] …`.

One inference worker and one API server (uvicorn with uvloop and httptools), each a process, as LitServe does it.
Only the settings are ours. Runs in the peers' own environment.
"""

from __future__ import annotations

import argparse
from typing import Any

import litserve as ls

from bench.peers.answering import Answering, Question


class Intent(ls.LitAPI):  # type: ignore[misc]  # not installed here, so its type is unknown
    """Hooks as its documentation has them: decode, predict (one, or a batch), encode."""

    def setup(self, device: str) -> None:
        self.answering = Answering.from_environment()

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe reads the annotation: none is JSON
        return self.answering.read(request)

    def batch(self, inputs: list[Question]) -> list[Question]:
        return inputs

    def predict(self, questions: Question | list[Question]) -> Any:
        if isinstance(questions, Question):
            return self.answering.answer([questions])[0]
        return self.answering.answer(questions)

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        return output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--wait-ms", type=float, default=0.0)
    parser.add_argument("--fast-queue", action="store_true")
    chosen = parser.parse_args()
    api = Intent(max_batch_size=chosen.batch, batch_timeout=chosen.wait_ms / 1000, api_path="/v1/intent")
    server = ls.LitServer(api, accelerator="cpu", devices=1, workers_per_device=1, fast_queue=chosen.fast_queue)
    server.run(host="127.0.0.1", port=chosen.port, log_level="warning", generate_client_file=False, access_log=False)


if __name__ == "__main__":
    main()
