"""Locust as most people use it: FastHttpUser in a closed loop, without a wait. Run by `bench.load_rate` with Locust."""

from itertools import count

from locust import FastHttpUser, task

TEXT = "the my a please order parcel invoice account refund ticket where is was not it when will arrive paid twice " * 2
NUMBERS = count()


class Client(FastHttpUser):
    """Sends the next request when the last is answered."""

    @task
    def ask(self) -> None:
        number = f"c-{next(NUMBERS)}"
        body = {"request_id": number, "attempt": 0, "text": TEXT}
        self.client.post("/v1/intent", json=body, headers={"X-Request-Id": number, "X-Attempt": "0"})
