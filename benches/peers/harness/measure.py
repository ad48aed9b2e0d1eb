"""What is measured: rates beside the floor, syncs, replays, and kills."""

import os
import random
import re
import shutil
import statistics
import time

from .postgres import traced
from .programs import Failed, Program

STEPS = 100
STEP_BYTES = 300
FLOOR_BYTES = 64 << 20
MANY = 64


class Floor:
    """One `pwrite` into a preallocated, zero-filled file and one `fdatasync`, for each step."""

    def __init__(self, folder):
        self.file = os.open(os.path.join(folder, "floor"), os.O_RDWR | os.O_CREAT, 0o644)
        for chunk in range(FLOOR_BYTES >> 20):
            os.pwrite(self.file, bytes(1 << 20), chunk << 20)
        os.fsync(self.file)
        self.at = 0

    def step(self, steps=STEPS):
        """Seconds for one step."""
        step = b"\x5a" * STEP_BYTES
        begun = time.perf_counter()
        for _ in range(steps):
            if self.at + STEP_BYTES > FLOOR_BYTES:
                self.at = 0
            os.pwrite(self.file, step, self.at)
            os.fdatasync(self.file)
            self.at += STEP_BYTES
        return (time.perf_counter() - begun) / steps


class Bench:
    """One peer at a time, each measurement in a folder of its own."""

    def __init__(self, folder, floor, amount, command):
        self.folder, self.floor, self.amount = folder, floor, amount
        self.command = command
        self.clusters = {}
        self.made = 0

    def place(self, peer, cluster="plain"):
        """A new folder, and the environment of the programs that work there."""
        self.made += 1
        name = f"{peer.name}-{self.made}"
        folder = os.path.join(self.folder, name)
        os.makedirs(folder)
        # The programs are run from the tree, which stays as it is.
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **peer.env}
        if peer.postgres:
            if cluster not in self.clusters:
                raise Failed("PostgreSQL does not start")
            env["PEER_URL"] = self.clusters[cluster].fresh(name)
            if peer.setup:
                self.command.prepare(peer, env["PEER_URL"])
        return folder, env

    def start(self, peer, place, mode, *about, log=None):
        folder, env = place
        command = [*self.command.of(peer), mode, folder, os.path.join(folder, "ledger"), *about]
        return Program(traced(command, log) if log else command, env, folder)

    def rates(self, peer, workflows):
        """Rounds of so many workflows at once, the floor before and after each."""
        place = self.place(peer)
        with self.start(peer, place, "rate") as program:
            program.answer(60)
            program.ask("warm 1 20", 60)
            rounds = self.amount.rounds if workflows == 1 else self.amount.many_rounds
            return self.rounds(program, workflows, rounds)

    def rounds(self, program, workflows, rounds):
        steps = workflows * STEPS
        took, floors, ratios = [], [], []
        begun = time.monotonic()
        for at in range(rounds):
            # Whoever is slow is measured less often, not for hours.
            spent = (time.monotonic() - begun) / self.amount.seconds
            if at >= 3 and spent > 1 or at >= 1 and spent > 3:
                break
            before = self.floor.step()
            step = float(program.ask(f"r{workflows}.{at} {workflows} {STEPS}", 600)) / steps
            beside = (before + self.floor.step()) / 2
            took.append(step)
            floors.append(beside)
            ratios.append(step / beside)
        return {
            "rounds": len(took),
            "step_us": statistics.median(took) * 1e6,
            "floor_us": statistics.median(floors) * 1e6,
            "steps_per_s": 1 / statistics.median(took),
            "ratio": statistics.median(ratios),
            "ratios": ratios,
        }

    def syncs(self, peer, workflows):
        """Syncs for a step, of the program and of its server."""
        place = self.place(peer, "traced")
        logs = [os.path.join(place[0], "strace")]
        if peer.postgres:
            logs.append(self.clusters["traced"].log)
        steps = STEPS if workflows == 1 else 20
        with self.start(peer, place, "rate", log=logs[0]) as program:
            program.answer(60)
            program.ask("warm 1 20", 60)
            before = sum(map(count, logs))
            program.ask(f"counted {workflows} {steps}", 300)
            return (sum(map(count, logs)) - before) / (workflows * steps)

    def replay(self, peer, steps):
        """From the start of a program to the begin of the first new step, in milliseconds."""
        recorded = self.place(peer)
        with self.start(peer, recorded, "record", "replayed", str(steps)) as program:
            limit = self.amount.record_seconds
            try:
                line = program.answer(limit)
            except Failed as failed:
                raise Failed(f"{steps:,} steps were not recorded in {limit} s: {failed}") from None
            if line != "hung":
                raise Failed(f"not recorded: {line}")
        took, again = [], []
        for at in range(self.amount.replays):
            folder, env = recorded
            if not peer.postgres:
                # Each replay finds what the kill left.
                folder = f"{recorded[0]}-{at}"
                shutil.copytree(recorded[0], folder)
            time.sleep(peer.lapse)
            with self.start(peer, (folder, env), "replay", "replayed", str(steps)) as program:
                seconds, bodies = program.answer(300).split()
            took.append(float(seconds) * 1e3)
            again.append(int(bodies))
            if not peer.postgres:
                shutil.rmtree(folder)
        return {"ms": statistics.median(took), "again": max(again), "all_ms": took}

    def kills(self, peer, kills):
        """Kills in the middle of a workflow, at random points; each is resumed to its end."""
        chance = random.Random(f"kills of {peer.name}")
        done, stopped, why = [], 0, ""
        place = self.place(peer) if peer.postgres else None
        begun = time.monotonic()
        for at in range(kills):
            if at >= 5 and time.monotonic() - begun > 2 * self.amount.seconds:
                break
            try:
                done.append(self.kill(peer, place or self.place(peer), f"killed-{at}", chance))
            except Failed as error:
                stopped, why = stopped + 1, str(error)
        if not done:
            raise Failed(why)
        total = {key: sum(one[key] for one in done) for key in done[0]}
        return {"kills": len(done), "stopped": stopped, "why": why, **total}

    def kill(self, peer, place, name, chance):
        """One kill. Tries again when the workflow was done before it could be killed."""
        folder, env = place
        for attempt in range(20):
            id = f"{name}-{attempt}"
            here = os.path.join(folder, id) if not peer.postgres else folder
            os.makedirs(here, exist_ok=True)
            ledger = os.path.join(here, "ledger")
            if os.path.exists(ledger):
                os.remove(ledger)
            with self.start(peer, (here, env), "kill", id, str(STEPS)) as program:
                wait_for(program, ledger, chance.randint(5, 90), chance.random())
                program.kill()
            before = read(ledger)
            if len(set(steps_of(before, "f"))) == STEPS:
                continue
            time.sleep(peer.lapse)
            with self.start(peer, (here, env), "kill", id, str(STEPS)) as program:
                line = program.answer(120)
                if line != "done":
                    raise Failed(f"not resumed: {line}")
            return judged(before, read(ledger)[len(before) :])
        raise Failed("always done before it could be killed")


def wait_for(program, ledger, finished, chance):
    """Until so many steps are finished, and a random part of a step more."""
    begun = time.perf_counter()
    until = begun + 300
    while time.perf_counter() < until and program.process.poll() is None:
        # Distinct ones: some peers run the workflow from its begin for each step.
        seen = len(set(steps_of(read(ledger), "f")))
        if seen >= finished:
            time.sleep((time.perf_counter() - begun) / seen * chance)
            return
        time.sleep(0.0002)
    if program.process.poll() is None:
        raise Failed("not half done after 300 s")
    if program.process.returncode != 0:
        raise Failed(program.last_words())


def read(ledger):
    """The whole lines of the ledger, empty if there is none yet."""
    try:
        with open(ledger, encoding="ascii") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    return text.splitlines() if text.endswith("\n") else text.splitlines()[:-1]


def steps_of(lines, what):
    """The numbers in the lines of this kind."""
    return [int(line[2:]) for line in lines if line.startswith(what)]


def judged(before, after):
    """What a kill did to steps: `before` and `after` are the lines of the ledger around it."""
    finished, again = set(steps_of(before, "f")), set(steps_of(after, "b"))
    # The world has seen that they are finished: the next body had begun.
    built_on = finished & {number - 1 for number in steps_of(before, "b")}
    bodies = steps_of(before, "b") + steps_of(after, "b")
    return {
        "finished": len(finished),
        "finished_again": len(finished & again),
        "built_on_again": len(built_on & again),
        "bodies_again": len(bodies) - len(set(bodies)),
        "never": STEPS - len(set(bodies)),
    }


def count(log):
    """Calls in a log of strace; a call that was interrupted has a second line, not counted."""
    try:
        with open(log, errors="replace") as file:
            return sum(1 for line in file if re.search(r"\b(f|fdata|m)?sync\w*\(", line))
    except FileNotFoundError:
        return 0
