"""A PostgreSQL cluster of its own: its defaults, a temporary folder, a free port of this host."""

import glob
import os
import pwd
import shutil
import socket
import subprocess
import time

from .programs import Failed, call


class Cluster:
    """A server that runs from `__enter__` to `__exit__`, under `strace` if a log is given."""

    def __init__(self, folder, log=None):
        self.folder, self.log = folder, log
        self.user = account()
        self.bin = binaries()

    def __enter__(self):
        os.makedirs(self.folder)
        options = {"cwd": self.folder}
        if self.user:
            shutil.chown(self.folder, self.user)
            options["user"] = self.user
        data = os.path.join(self.folder, "data")
        initdb = [os.path.join(self.bin, "initdb"), "-D", data, "-U", "peer", "-A", "trust"]
        call(initdb, "initdb", **options)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        server = [os.path.join(self.bin, "postgres"), "-D", data, "-p", str(self.port)]
        server += ["-h", "127.0.0.1", "-k", self.folder]
        if self.log:
            server = traced(server, self.log)
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.server = subprocess.Popen(server, stdout=log, stderr=log, **options)
        self.wait()
        return self

    def __exit__(self, *_):
        # The postmaster ends its children; a kill would leave them.
        stop = [os.path.join(self.bin, "pg_ctl"), "stop", "-m", "immediate"]
        stop += ["-D", os.path.join(self.folder, "data")]
        options = {"user": self.user} if self.user else {}
        subprocess.run(stop, cwd=self.folder, stdout=subprocess.DEVNULL, check=False, **options)
        self.server.wait()

    def wait(self):
        ready = [os.path.join(self.bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p"]
        for _ in range(300):
            if subprocess.run([*ready, str(self.port)], check=False).returncode == 0:
                return
            if self.server.poll() is not None:
                break
            time.sleep(0.1)
        raise Failed("PostgreSQL does not start")

    def fresh(self, name):
        """The address of a new database."""
        psql = [os.path.join(self.bin, "psql"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        create = f'CREATE DATABASE "{name}"'
        call([*psql, "-U", "peer", "-d", "postgres", "-c", create], "createdb")
        return f"postgresql://peer@127.0.0.1:{self.port}/{name}"

    def version(self):
        return call([os.path.join(self.bin, "postgres"), "--version"], "postgres").strip()


def traced(command, log):
    """The command with its syncs written to a log; other calls cost nothing."""
    calls = "trace=fsync,fdatasync,sync_file_range,msync,sync,syncfs"
    return ["strace", "-f", "--seccomp-bpf", "-qq", "-e", calls, "-o", log, *command]


def account():
    """A user the server may run as: it refuses to be root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise Failed("PostgreSQL does not run as root, and there is no other user")


def binaries():
    """Where the server's programs are; Debian keeps them out of the path."""
    found = shutil.which("initdb")
    places = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not found and not places:
        raise Failed("PostgreSQL is not installed")
    return os.path.dirname(os.path.realpath(found)) if found else places[-1]
