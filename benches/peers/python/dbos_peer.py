"""DBOS: steps of a workflow, on SQLite or, with PEER_URL set, on PostgreSQL; the defaults."""

import os
import time

from dbos import DBOS, SetWorkflowID
from protocol import Stage, arguments, drive

stage = Stage(time.perf_counter())
DBOS(
    config={
        "name": "peer",
        "system_database_url": os.environ.get("PEER_URL") or f"sqlite:///{stage.path('dbos.sqlite')}",
        "run_admin_server": False,
        "log_level": "ERROR",
    }
)


@DBOS.step()
def charge(number, sent):
    return stage.body(number)


@DBOS.workflow()
def work(steps):
    for number in range(steps):
        charge(number, arguments(number))
        stage.finished(number)


def run(ids, steps):
    handles = []
    for name in ids:
        with SetWorkflowID(name):
            handles.append(DBOS.start_workflow(work, steps))
    for handle in handles:
        handle.get_result()


# Resumes what is unfinished.
DBOS.launch()
drive(stage, run)
