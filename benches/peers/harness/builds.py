"""Builds the programs of peers, and says what they are made of."""

import os
import re
import subprocess
import sys
import tomllib

from .programs import Failed, call

PEERS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(PEERS))


class Commands:
    """How the program of a peer is started. Each is built when it is first asked for."""

    def __init__(self, work, say):
        self.say = say
        self.target = os.path.join(work, "cargo")
        self.venv = os.path.join(work, "venv")
        self.built = {}

    def of(self, peer):
        """The command, or [`Failed`] with what its build said."""
        what = "python" if peer.is_python else peer.program
        if what not in self.built:
            self.say(f"building {what}")
            try:
                self.built[what] = self.python() if peer.is_python else self.rust(peer.program)
            except Failed as failed:
                self.built[what] = failed
        if isinstance(self.built[what], Failed):
            raise self.built[what]
        command = self.built[what]
        return [*command, os.path.join(PEERS, "python", peer.program)] if peer.is_python else command

    def rust(self, package):
        # A peer that does not fit in the workspace has one of its own.
        alone = os.path.join(PEERS, "rust", package)
        is_alone = os.path.exists(os.path.join(alone, "Cargo.lock"))
        build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", f"peer-{package}"]
        env = {**os.environ, "CARGO_TARGET_DIR": self.target}
        folder = alone if is_alone else os.path.join(PEERS, "rust")
        call(build, "does not build", cwd=folder, env=env)
        return [os.path.join(self.target, "release", f"peer-{package}")]

    def python(self):
        python = os.path.join(self.venv, "bin", "python")
        if not os.path.exists(python):
            call([sys.executable, "-m", "venv", self.venv], "no venv")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]
        call([*pip, os.path.join(PEERS, "python", "requirements.txt")], "does not install")
        return [python]

    def prepare(self, peer, url):
        """Lets the peer make its schema in a new database."""
        setup = [os.path.join(self.venv, "bin", peer.setup), "init", "-d", url]
        call(setup, peer.setup)


def versions(peer):
    """Names and versions of what a peer is made of."""
    if peer.is_python:
        path = os.path.join(PEERS, "python", "requirements.txt")
        with open(path, encoding="utf-8") as file:
            known = dict(re.findall(r"^([\w.-]+)==([\w.]+)$", file.read(), re.MULTILINE))
    else:
        alone = os.path.join(PEERS, "rust", peer.program, "Cargo.lock")
        path = alone if os.path.exists(alone) else os.path.join(PEERS, "rust", "Cargo.lock")
        with open(path, "rb") as file:
            known = {one["name"]: one["version"] for one in tomllib.load(file)["package"]}
    return {name: known.get(name, "unknown") for name in peer.packages}


def machine(folder):
    """Where the figures come from."""
    # The last change of what is measured: a commit of the main branch, whatever is checked out.
    log = ["git", "-C", ROOT, "-c", "safe.directory=*", "log", "-1", "--format=%h", "--"]
    return {
        "processor": first(r"model name\s*: (.*)", said(["cat", "/proc/cpuinfo"])),
        "cores": str(os.cpu_count()),
        "kernel": os.uname().release,
        "file system": said(["df", "--output=fstype", folder]).split()[-1],
        "rustc": said(["rustc", "-V"]),
        "python": sys.version.split()[0],
        "SQLite of Python": said([sys.executable, "-c", "import sqlite3 as s; print(s.sqlite_version)"]),
        "Deedbook": said([*log, "runtime", "journal"]),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def said(command):
    try:
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def first(pattern, text):
    found = re.search(pattern, text)
    return found.group(1) if found else "unknown"
