"""LangGraph: the functional API on SqliteSaver, with durability="sync"."""

import sqlite3
import time

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from protocol import Stage, arguments, at_once, drive

stage = Stage(time.perf_counter())
# As its documentation makes a saver that threads share.
saver = SqliteSaver(sqlite3.connect(stage.path("saver.sqlite"), check_same_thread=False))


@task
def charge(number, sent):
    return stage.body(number)


@entrypoint(checkpointer=saver)
def work(steps):
    for number in range(steps):
        charge(number, arguments(number)).result()
        stage.finished(number)
    return steps


def run(ids, steps):
    def one(name):
        config = {"configurable": {"thread_id": name}}
        # A thread that exists goes on when it is invoked without an input.
        begun = saver.get_tuple(config) is not None
        work.invoke(None if begun else steps, config, durability="sync")

    at_once(one, ids)


drive(stage, run)
