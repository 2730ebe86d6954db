"""A whole scene with secrets in it, and a search for them in all that came of it.

An API, a worker and the command line as real processes, on each database, with keys, sealed data, a
database password and fields that are to be hidden: none of it may be in what they write, answer
or store. A key is seen where it is made, and arguments by who runs the task; by nobody else.
"""

import base64
import itertools
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx
import pytest

from holdfast.sealing import KeyRing
from tests.cli.shell import WITHIN, Shell, shell_in
from tests.http.test_serving import address
from tests.servers import ask as ask_database

ENDED = ("done", "failed", "cancelled")


class Secrets:
    """All that nobody may find, by name."""

    def __init__(self) -> None:
        self.ring = KeyRing.make()
        self.known = {
            "api key": f"boot-{uuid4().hex}",
            "signing key": f"sign-{uuid4().hex}",
            "database password": f"db{uuid4().hex}",
            "encryption key": self.ring,
            "encryption key, bare": base64.b64decode(self.ring).hex(),
            "password": f"pass-{uuid4().hex}",
            "card": f"card-{uuid4().hex}",
            "result of a signal": f"hush-{uuid4().hex}",
        }

    def __getitem__(self, name: str) -> str:
        return self.known[name]

    def keep(self, name: str, key: str) -> str:
        """A key of the API: what is secret of it is its last part."""
        self.known[name] = key.rpartition("_")[2]
        return key

    def found_in(self, heap: dict[str, bytes]) -> list[str]:
        """Where each of them stands, also as hex, as base64, and in a URL."""
        found = []
        for (name, secret), (place, data) in itertools.product(self.known.items(), heap.items()):
            forms = (
                secret.encode(),
                secret.encode().hex().encode(),
                base64.b64encode(secret.encode()).rstrip(b"=")[:-1],
                quote(secret).encode(),
            )
            if any(form in data for form in forms):
                found.append(f"{name} in {place}")
        return found


class Scene:
    """Everything that was written or answered, by where."""

    def __init__(self, shell: Shell, secrets: Secrets) -> None:
        self.shell, self.secrets = shell, secrets
        self.heap: dict[str, bytes] = {}

    def keep(self, place: str, *texts: str | bytes) -> None:
        data = b"\n".join(t.encode() if isinstance(t, str) else t for t in texts)
        self.heap[place] = self.heap.get(place, b"") + b"\n" + data

    def command(self, *args: str, **environ: str) -> None:
        done = self.shell.run(*args, **environ)
        self.keep(f"holdfast {' '.join(args)}", done.stdout, done.stderr)

    def new_key(self, name: str, *args: str) -> str:
        """It is seen this once, on stdout."""
        done = self.shell.run("token", "create", name, *args)
        assert done.returncode == 0, done.stderr
        self.keep(f"stderr of token create {name}", done.stderr)
        return self.secrets.keep(f"key {name}", done.stdout.strip())

    def ask(
        self, http: httpx.Client, method: str, path: str, *, shown: bool = True, **more: Any
    ) -> httpx.Response:
        answer = http.request(method, path, **more)
        assert answer.status_code < 500, answer.text
        said = answer.content if shown else b""
        self.keep(f"{method} {path} {answer.status_code}", str(answer.headers), said)
        return answer


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture(params=["sqlite", "postgres"])
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, secrets: Secrets
) -> Iterator[tuple[Scene, str]]:
    store = f"sqlite:///{tmp_path}/till.db"
    if request.param == "postgres":
        fresh = request.getfixturevalue("fresh_database")
        store = with_password(
            fresh(request.getfixturevalue("postgres_current")), secrets["database password"]
        )
    shutil.copy(Path(__file__).parent / "till.py", tmp_path)
    environ = {
        "HOLDFAST_STORE": store,
        "HOLDFAST_APP": "till:app",
        "HOLDFAST_API_KEY": secrets["api key"],
        "HOLDFAST_SIGNING_KEY": secrets["signing key"],
        "HOLDFAST_ENCRYPTION_KEYS": f"one:{secrets.ring}",
        "HOLDFAST_REDACT": "card",
    }
    with shell_in(tmp_path, **environ) as shell:
        yield Scene(shell, secrets), store


def with_password(url: str, password: str) -> str:
    """The servers of the tests let everybody in; what they are told is a secret all the same."""
    parts = urlsplit(url)
    user, _, rest = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.partition(':')[0]}:{password}@{rest}").geturl()


def test_no_secret_of_a_whole_scene_is_in_what_was_written_answered_or_stored(
    scene: tuple[Scene, str], secrets: Secrets
):
    all_of_it, store = scene
    shell = all_of_it.shell
    all_of_it.command("migrate", "up")
    admin = all_of_it.new_key("admin", "--role", "admin")
    operator = all_of_it.new_key("operator", "--role", "operator")
    worker_key = all_of_it.new_key("far", "--role", "worker", "--tenant", "acme")
    api = shell.start("api", "--port", "0", "--log-level", "debug")
    base = address(kept(all_of_it, "api's stdout", api.line("api is ready")))
    worker = shell.start(
        "worker", "--worker-id", "near", "--log-level", "debug", "--health-port", "0",
        "--tenants", "default",
    )  # fmt: skip
    kept(all_of_it, "worker's stdout", worker.line("is ready"))

    with httpx.Client(base_url=base, timeout=WITHIN) as http:
        ids = work(all_of_it, http, admin)
        remote_work(all_of_it, http, admin, worker_key)
        look(all_of_it, http, ids, admin, operator)
        err(all_of_it, http, admin, worker_key)
    command_line(all_of_it, ids, base, admin)

    for process, name in ((worker, "worker"), (api, "api")):
        process.send(signal.SIGTERM)
        assert process.end() == 0
        all_of_it.keep(f"{name}'s stderr", process.said)
    all_of_it.keep("the database", *dump(store))

    assert b"[hidden]" in all_of_it.heap["worker's stderr"], "it was not said, or not hidden"
    assert all(ids[name].encode() in all_of_it.heap["the database"] for name in ids)
    leaks = secrets.found_in(all_of_it.heap)
    assert not leaks, "\n".join(leaks)


def kept(scene: Scene, place: str, line: str) -> str:
    scene.keep(place, line)
    return line


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def arguments(secrets: Secrets) -> dict[str, Any]:
    return {"card": secrets["card"], "login": {"password": secrets["password"]}, "note": "hi"}


def work(scene: Scene, http: httpx.Client, key: str) -> dict[str, str]:
    """A task of each kind, until all have ended."""
    ids: dict[str, str] = {}
    http.headers.update(bearer(key))
    given = arguments(scene.secrets)
    for name in ("blurt", "stumble", "stumble_in_a_thread", "stumble_apart"):
        wish = {"type": f"till:{name}", "kwargs": given}
        ids[name] = scene.ask(http, "POST", "/v1/tasks", json=wish).json()["id"]
    placed = {"type": "till:stumble", "args": list(given.values())}
    ids["placed"] = scene.ask(http, "POST", "/tasks", json=placed).json()["id"]
    wish = {"type": "till:wait", "kwargs": {"card": scene.secrets["card"]}}
    ids["wait"] = scene.ask(http, "POST", "/v1/tasks", json=wish).json()["id"]
    hush = {"payload": {"password": scene.secrets["result of a signal"]}}
    for _ in range(2):
        once = {"Idempotency-Key": "once"}
        path = f"/v1/flows/{ids['wait']}/signals/go"
        scene.ask(http, "POST", path, json=hush, headers=once)
    for id in ids.values():
        found = scene.ask(http, "GET", f"/v1/tasks/{id}?wait=50").json()
        assert found["status"] in ENDED, found
    return ids


def remote_work(scene: Scene, http: httpx.Client, admin: str, key: str) -> None:
    """A worker over HTTP is given the arguments, and repeats them."""
    given = arguments(scene.secrets)
    wish = {"type": "till:blurt", "kwargs": given, "tenant_id": "acme", "max_tries": 1}
    id = scene.ask(http, "POST", "/v1/tasks", json=wish, headers=bearer(admin)).json()["id"]
    me = {"worker_id": "far", "types": ["till:blurt"]}
    worker = scene.ask(http, "POST", "/v1/workers", json=me, headers=bearer(key)).json()["worker"]
    claim = {"worker": worker, "request_id": str(uuid4()), "wait": 30}
    found = scene.ask(http, "POST", "/v1/claims", json=claim, headers=bearer(key), shown=False)
    (task,) = found.json()["data"]
    said = f"no luck with {scene.secrets['card']} of {scene.secrets['password']}"
    lease = f"/v1/leases/{task['lease']}"
    report = {"percent": 10, "message": said}
    scene.ask(http, "POST", f"{lease}:progress", json=report, headers=bearer(key))
    error = {"type": "Oops", "message": said, "traceback": said}
    end = {"outcome": "failed", "error": error}
    ended = scene.ask(http, "POST", f"{lease}:settle", json=end, headers=bearer(key))
    assert ended.json() == {"ended": "failed"}
    scene.ask(http, "GET", f"/v1/tasks/{id}/result", headers=bearer(admin))


def look(scene: Scene, http: httpx.Client, ids: dict[str, str], admin: str, operator: str) -> None:
    of_all = [
        "/v1/tasks", "/tasks", "/v1/queues", "/v1/workers", "/v1/leases", "/v1/recoveries",
        "/v1/stats", "/distributed/stats", "/worker/stats", "/metrics", "/v1/task-types",
        "/v1/dead-letters", "/v1/dead-letters/groups", "/v1/events?format=json", "/v1/keys",
        "/v1/audit", "/v1/operations", "/v1/stats/timeseries", "/health", "/livez", "/readyz",
        "/startupz", "/openapi.json", "/v1/tasks?limit=1",
    ]  # fmt: skip
    of_one = ("", "/result", "/arguments", "/attempts", "/logs", "/why")
    of_one_flow = ("", "/export")
    for key in (operator, admin, scene.secrets["api key"]):
        for path in of_all:
            scene.ask(http, "GET", path, headers=bearer(key))
        for id, more in itertools.product(ids.values(), of_one):
            scene.ask(http, "GET", f"/v1/tasks/{id}{more}", headers=bearer(key))
    for id, more in itertools.product(ids.values(), of_one_flow):
        scene.ask(http, "GET", f"/v1/flows/{id}{more}", headers=bearer(operator))
    with http.stream("GET", "/v1/events?after=0", headers=bearer(operator)) as stream:
        parts = stream.iter_bytes()
        scene.keep("the stream", next(parts), next(parts))


def err(scene: Scene, http: httpx.Client, admin: str, worker_key: str) -> None:
    """Whatever is wrong, nothing of it is repeated."""
    secret, given = scene.secrets, arguments(scene.secrets)
    for wrong in (admin + "x", admin[:-1], secret["api key"][:-1], "hf_aaaaaaaa_" + "x" * 32):
        scene.ask(http, "GET", "/v1/tasks", headers=bearer(wrong))
    scene.ask(http, "GET", "/v1/tasks", headers=bearer(worker_key))
    scene.ask(http, "GET", "/v1/tasks", headers={"Authorization": f"Basic {admin}"})
    http.headers.update(bearer(admin))
    for kwargs in (
        {**given, "login": secret["password"]},
        {**given, "more": secret["password"]},
        {**given, "card": 1, "login": {"password": [secret["password"]]}},
    ):
        wish = {"type": "till:blurt", "kwargs": kwargs}
        assert scene.ask(http, "POST", "/v1/tasks", json=wish).status_code == 422
    wish = {"type": "till:blurt", "kwargs": given, "idempotency_key": "k", "queue": "later"}
    scene.ask(http, "POST", "/v1/tasks", json=wish)
    other = {**wish, "kwargs": {**given, "note": "other"}}
    assert scene.ask(http, "POST", "/v1/tasks", json=other).status_code == 409
    scene.ask(http, "POST", "/v1/tasks", content=f'{{"type": "{secret["password"]}'.encode())
    scene.ask(
        http, "POST", "/v1/tasks", content=f'{{"kwargs": "{secret["card"]}"}}'.encode(),
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    scene.ask(http, "GET", "/nowhere")
    scene.ask(http, "DELETE", "/v1/tasks")


def command_line(scene: Scene, ids: dict[str, str], base: str, admin: str) -> None:
    file = scene.shell.folder / "token"
    file.write_text(admin)
    over_http = {"HOLDFAST_API": base, "HOLDFAST_TOKEN_FILE": str(file)}
    both: tuple[dict[str, str], ...] = ({}, over_http)
    for environ in both:
        for args in (
            ("tasks", "ls", "-o", "json"), ("dead-letter", "ls"), ("workers", "ls"), ("stats",),
            ("token", "ls", "--all"), ("doctor",),
        ):  # fmt: skip
            scene.command(*args, **environ)
        for name in ("blurt", "stumble_apart"):
            scene.command("tasks", "show", ids[name], **environ)
        scene.command("flows", "show", ids["wait"], **environ)
        scene.command("dead-letter", "show", ids["stumble"], **environ)
    scene.command("dead-letter", "show", ids["placed"], HOLDFAST_APP="")
    scene.command("config", "show", "--origin")
    scene.command("config", "show", **over_http)
    scene.command("migrate", "status")
    scene.command("sql", "select * from tasks")
    wrong = scene.shell.folder / "wrong"
    wrong.write_text(admin[:-1])
    scene.command("tasks", "ls", **over_http | {"HOLDFAST_TOKEN_FILE": str(wrong)})
    scene.command("tasks", "ls", HOLDFAST_API=f"http://key:{admin}@127.0.0.1:1")
    password = scene.secrets["database password"]
    for store in (
        f"postgresql://somebody:{password}@127.0.0.1:1/none",
        f"postgresql://somebody:{password}@[/none",
        f"mysql://somebody:{password}@127.0.0.1/none",
    ):
        scene.command("tasks", "ls", HOLDFAST_STORE=store)
        scene.command("worker", HOLDFAST_STORE=store)
    scene.command("tasks", "ls", HOLDFAST_ENCRYPTION_KEYS=f"one {scene.secrets.ring}")
    scene.command("tasks", "ls", HOLDFAST_API_KEY=f"{scene.secrets['api key']}é")


def dump(store: str) -> list[bytes]:
    """Every byte of the files, or every row of every table."""
    if store.startswith("sqlite"):
        path = Path(store.removeprefix("sqlite:///"))
        return [found.read_bytes() for found in path.parent.glob(f"{path.name}*")]
    tables = ask_database(
        store,
        "select format('%I.%I', table_schema, table_name) from information_schema.tables "
        "where table_type = 'BASE TABLE' and table_schema <> all "
        "(array['pg_catalog', 'information_schema'])",
    )
    assert len(tables) > 20
    return [
        row.encode()
        for (table,) in tables
        for (row,) in ask_database(store, f"select t::text from {table} t")
    ]
