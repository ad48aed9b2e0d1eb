"""Programs of peers, each a process of its own with a time limit."""

import os
import selectors
import signal
import subprocess
import time

ANSWER = "peer: "


class Failed(Exception):
    """What a peer, or what builds it, said instead of a figure."""


class Program:
    """A running program that answers in lines."""

    def __init__(self, command, env, folder):
        self.said = os.path.join(folder, "stderr")
        with open(self.said, "ab") as stderr:
            self.process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.selector.close()
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def ask(self, line, seconds):
        """Writes a line, and waits for the answer."""
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer(seconds)

    def answer(self, seconds):
        """The next answer, or [`Failed`] after so many seconds or at the end of the process."""
        until = time.monotonic() + seconds
        while True:
            line = self.line(until, seconds)
            # Whatever else is there, a library has written.
            if line.startswith(ANSWER):
                return line.removeprefix(ANSWER)

    def line(self, until, seconds):
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not self.selector.select(left):
                raise Failed(f"no answer after {seconds:.0f} s")
            got = os.read(self.process.stdout.fileno(), 65536)
            if not got:
                raise Failed(self.last_words())
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def kill(self):
        """SIGKILL to the process and all it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def last_words(self):
        """Why it ended."""
        code = self.process.wait()
        with open(self.said, errors="replace") as stderr:
            lines = [line.strip() for line in stderr if line.strip()]
        return lines[-1] if lines else f"ended with {code}"


def call(command, why, **options):
    """Runs a command to its end, or fails with what it said last."""
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error")] or lines[-1:]
        raise Failed(f"{why}: {errors[0] if errors else done.returncode}")
    return done.stdout
