"""What the programs of the peers in Python have in common.

The same as `../rust/protocol/src/lib.rs`, which says how a program is started and what it answers.
"""

import os
import sys
import threading
import time


class Stage:
    """Where the work happens: bodies and finished steps are told here."""

    def __init__(self, started):
        self.mode, self.folder, ledger, *workflow = sys.argv[1:]
        if self.mode not in ("rate", "record", "replay", "kill"):
            raise SystemExit(f"no mode is called {self.mode}")
        self.id, self.steps = (workflow[0], int(workflow[1])) if workflow else (None, None)
        self.ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.started = started
        self.lock = threading.Lock()
        self.again = 0
        self.first_body = None
        self.last_finish = None

    @property
    def is_killed(self):
        """Whether the program is killed on purpose: a lease of the dead one is to be short."""
        return self.mode != "rate"

    def path(self, name):
        """A file in the folder of the journal."""
        return os.path.join(self.folder, name)

    def body(self, number):
        """The body of a step: notes that it begins, and returns at once or never."""
        now = time.perf_counter()
        if self.mode == "rate":
            with self.lock:
                self.first_body = self.first_body or now
        elif self.mode == "kill":
            self.note(f"b {number}\n")
        elif self.mode == "record" and number == self.steps:
            say("hung")
            threading.Event().wait()
        elif self.mode == "replay" and number < self.steps:
            with self.lock:
                self.again += 1
        elif self.mode == "replay" and number > self.steps:
            say(f"{now - self.started:.9f} {self.again}")
            threading.Event().wait()
        return result(number)

    def finished(self, number):
        """Notes that the workflow has the result of a step."""
        if self.mode == "rate":
            self.last_finish = time.perf_counter()
        elif self.mode == "kill":
            self.note(f"f {number}\n")

    def note(self, line):
        """One write: a kill finds a line there, or not."""
        os.write(self.ledger, line.encode())


def arguments(number):
    """The arguments of a step: 200 B."""
    return f"order {number:010}: two tickets, row 7, refundable until the day".ljust(200)


def result(number):
    """What its body returns: 100 B."""
    return f"receipt {number:010}: accepted by the bank, value today".ljust(100)


def say(line):
    """Answers the program that started this one."""
    sys.stdout.write(f"peer: {line}\n")
    sys.stdout.flush()


def drive(stage, run):
    """Does what the arguments say; `run` runs workflows, given ids and a number of steps."""
    if stage.mode == "rate":
        say("ready")
        for line in sys.stdin:
            name, workflows, steps = line.split()
            stage.first_body = stage.last_finish = None
            run([f"{name}-{at}" for at in range(int(workflows))], int(steps))
            say(f"{stage.last_finish - stage.first_body:.9f}")
    elif stage.mode == "kill":
        run([stage.id], stage.steps)
        say("done")
    else:
        # One step more that is cut off, and one that is new.
        run([stage.id], stage.steps + 2)
    # Nothing is closed: what ends a process here is a kill.
    os._exit(0)


def at_once(one, ids):
    """Runs `one(id)` for each id, each on a thread of its own, and waits for all."""
    failed = []

    def guarded(name):
        try:
            one(name)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(name,)) for name in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
