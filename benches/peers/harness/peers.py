"""Who is measured: their programs, settings, and what each promises."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Peer:
    """A row of the tables."""

    name: str
    """As `--only` takes it."""
    label: str
    program: str
    """A package of `rust/`, or a file of `python/`."""
    settings: str
    """What differs from the defaults, and what the defaults are."""
    promise: str
    """What it says of a step whose process is killed."""
    packages: tuple = ()
    """What it is made of, as the lock file or the requirements name it."""
    env: dict = field(default_factory=dict)
    postgres: bool = False
    """Whether it needs a PostgreSQL database."""
    setup: str = ""
    """A program of the venv that prepares the database."""
    lapse: float = 0.0
    """Seconds until what a killed process held is free again; no figure has this wait in it."""

    @property
    def is_python(self):
        return self.program.endswith(".py")


AT_LEAST_ONCE = "no intent; a body that was cut off runs again"

PEERS = [
    Peer(
        name="deedbook",
        label="**Deedbook**",
        program="deedbook",
        settings="defaults; `idempotent` steps",
        promise="intent durable before the body; the arguments compared; by policy: again under the"
        " same key, asked, or in doubt for a person",
        packages=("deedbook", "redb"),
    ),
    Peer(
        name="sqlite-table",
        label="a SQLite table by hand",
        program="sqlite-table",
        settings="WAL, `synchronous=FULL`, one transaction for the intent and one for the outcome,"
        " one connection",
        promise="intent durable before the body; the arguments compared; runs again",
        packages=("rusqlite", "libsqlite3-sys"),
    ),
    Peer(
        name="agentplane",
        label="agentplane",
        program="agentplane",
        settings="redb store, defaults; `Recovery::Idempotent`; lease of 2 s instead of 30 s where"
        " it is killed",
        promise="intent durable before the body; the arguments are part of the key, so a change"
        " quarantines the run; by policy: again under the same key, asked, or an operator"
        " (the default)",
        packages=("agentplane", "redb"),
        lapse=3.2,
    ),
    Peer(
        name="memable",
        label="memable",
        program="memable",
        settings="redb store, defaults",
        promise=f"{AT_LEAST_ONCE}; arguments are not recorded",
        packages=("memable", "redb"),
    ),
    Peer(
        name="durare",
        label="durare, as it comes",
        program="durare",
        settings="SQLite provider's defaults: WAL, `synchronous=NORMAL`, which power loss can undo",
        promise=f"{AT_LEAST_ONCE}; arguments are not recorded",
        packages=("durare", "sqlx", "libsqlite3-sys"),
    ),
    Peer(
        name="durare-full",
        label="durare, `FULL`",
        program="durare",
        settings="the same on a pool with `synchronous=FULL`",
        promise=f"{AT_LEAST_ONCE}; arguments are not recorded",
        packages=("durare", "sqlx", "libsqlite3-sys"),
        env={"PEER_FULL": "1"},
    ),
    Peer(
        name="duroxide",
        label="duroxide, as it comes",
        program="duroxide",
        settings="SQLite provider and runtime defaults (idle polls each 100 ms, 2 + 2 workers; the"
        " provider sets `synchronous=WAL`, which SQLite reads as NORMAL); locks of 1 s instead of"
        " 5 and 30 s where it is killed",
        promise="queued durably before the body; a body that was cut off runs again after its lock",
        packages=("duroxide", "sqlx", "libsqlite3-sys"),
        lapse=1.5,
    ),
    Peer(
        name="duroxide-eager",
        label="duroxide, polling each ms",
        program="duroxide",
        settings="the same, polling each millisecond",
        promise="as above",
        packages=("duroxide", "sqlx", "libsqlite3-sys"),
        env={"PEER_EAGER": "1"},
        lapse=1.5,
    ),
    Peer(
        name="langgraph",
        label="LangGraph (Python)",
        program="langgraph_peer.py",
        settings='functional API, `SqliteSaver`, `durability="sync"`; WAL and'
        " `synchronous=FULL` by default",
        promise="a task's result is written in the background: the workflow goes on before it is"
        " durable, and the task may run again",
        packages=("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Peer(
        name="dbos-sqlite",
        label="DBOS (Python), SQLite",
        program="dbos_peer.py",
        settings="defaults: rollback journal, `synchronous=FULL`",
        promise=f"{AT_LEAST_ONCE}; arguments of steps are not recorded",
        packages=("dbos", "SQLAlchemy"),
    ),
    Peer(
        name="dbos-postgres",
        label="DBOS (Python), PostgreSQL",
        program="dbos_peer.py",
        settings="defaults of both; the server on the same disk",
        promise=f"{AT_LEAST_ONCE}; arguments of steps are not recorded",
        packages=("dbos", "psycopg"),
        postgres=True,
    ),
    Peer(
        name="idempotent-tools",
        label="idempotent-tools (Python)",
        program="idempotent_tools_peer.py",
        settings='SQLite backend: rollback journal, `synchronous=FULL`; `on_duplicate="retry"`, as'
        " the default refuses a call that was cut off for ever",
        promise="`pending` durable before the body; by setting: refused, waited for, or again;"
        " the arguments are part of the key",
        packages=("idempotent-tools",),
    ),
    Peer(
        name="absurd",
        label="absurd (Python), PostgreSQL",
        program="absurd_peer.py",
        settings="defaults of both; 8 workers of 8 threads; claims of 1 s instead of 120 s where"
        " it is killed",
        promise=f"{AT_LEAST_ONCE} after its claim; arguments of steps are not recorded",
        packages=("absurd-sdk", "psycopg"),
        postgres=True,
        setup="absurdctl",
        lapse=1.5,
    ),
]
