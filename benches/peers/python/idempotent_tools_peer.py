"""idempotent-tools: a decorator around each call, the default SQLite backend.

It is no workflow engine: a workflow is a loop that is run again after a crash. A call that was in
flight at the crash is "pending" for ever; by default it is refused then, so that no workflow could
go on: on_duplicate="retry" executes it again, which is what all the others do.
"""

import time

from idempotent_tools import idempotent
from idempotent_tools.backends.sqlite_backend import SQLiteBackend
from protocol import Stage, arguments, at_once, drive

stage = Stage(time.perf_counter())
backend = SQLiteBackend(stage.path("store.sqlite"))


def run(ids, steps):
    def one(name):
        @idempotent(backend=backend, context=name, on_duplicate="retry")
        def charge(number, sent):
            return stage.body(number)

        for number in range(steps):
            charge(number, arguments(number))
            stage.finished(number)

    at_once(one, ids)


drive(stage, run)
