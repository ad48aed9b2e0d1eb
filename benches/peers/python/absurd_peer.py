"""absurd: tasks of a queue in PostgreSQL, whose schema is there already.

A worker has one connection for all of its threads, so there are eight workers of eight, as eight
processes would be. Where it is killed a claim of the dead process lasts a second instead of 120.
"""

import os
import threading
import time

from absurd_sdk import Absurd
from protocol import Stage, arguments, drive

WORKERS = 8
stage = Stage(time.perf_counter())
url = os.environ["PEER_URL"]


def register(app):
    @app.register_task(name="work")
    def work(steps, ctx):
        for number in range(steps):
            sent = arguments(number)
            ctx.step(f"charge-{number}", lambda: (sent, stage.body(number))[1])
            stage.finished(number)


client = Absurd(url, queue_name="peer")
client.create_queue()
register(client)


def serve():
    app = Absurd(url, queue_name="peer")
    register(app)
    app.start_worker(claim_timeout=1 if stage.is_killed else 120, concurrency=8)


for _ in range(WORKERS if stage.mode == "rate" else 1):
    threading.Thread(target=serve, daemon=True).start()


def run(ids, steps):
    spawned = [
        client.spawn("work", steps, idempotency_key=name, max_attempts=1_000) for name in ids
    ]
    for one in spawned:
        ended = client.await_task_result(one["task_id"])
        if ended.state != "completed":
            raise RuntimeError(f"a task ended as {ended.state}: {ended.failure}")


drive(stage, run)
