"""The page for those who come from another system: what it says is there, is there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, ProcessingWorker, config
from tests.docs.test_command_line import parsed
from tests.http.conftest import asking
from tests.servers import fresh_database

THEIRS = {"headless_workers", "headless_job_leases", "error", "failed"}
PAGE = (Path(__file__).parents[2] / "docs/howto/move.md").read_text()


def test_every_variable_is_read():
    (block,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    given = dict(line.split("=", 1) for line in block.splitlines())
    for name, value in given.items():
        assert name in config.read({name: value}).origin.values(), name
    read = config.read(given)
    assert (read.worker_type, read.group_id, read.concurrency) == ("intake", "intake-workers", 3)


def test_every_command_can_be_given():
    found = re.findall(r"`holdfast ([^`]+)`", PAGE)
    assert len(found) > 5
    for command in found:
        parsed(shlex.split(command))


def test_every_name_in_python_is_there():
    for name in re.findall(r"`app\.(\w+)\(", PAGE):
        assert callable(getattr(Holdfast, name)), name
    for name in ("start", "process_job", "get_status", "create"):
        assert callable(getattr(ProcessingWorker, name)), name


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/move.db"
        return
    with fresh_database(request.getfixturevalue("postgres_current")) as database:
        yield database


async def test_every_path_metric_and_view_answers(url: str):
    async with (
        Holdfast.bootstrap(url, serve=True, worker_id="worker-1") as app,
        asking(app) as http,
    ):
        for verb, path in re.findall(r"`(GET|POST) (/[\w/-]+)`", PAGE):
            if path not in ("/render", "/tasks"):
                assert (await http.request(verb, path)).status_code == 200, path
        (path,) = re.findall(r"`(/worker/stats\?[^`]+)`", PAGE)
        assert (await http.get(path)).json()["worker_id"] == "worker-1"
        text = (await http.get("/metrics")).text
        (names,) = re.findall(r"^\| (`tasks_acquired_total`.*?) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names):
            assert f'{name}{{worker_id="worker-1"}}' in text
        store = (await app.home.client()).store
        (sql,) = re.findall(r"## SQL\n(.*?)\n## ", PAGE, re.DOTALL)
        views = set(re.findall(r"`([a-z_]+)`", sql)) - THEIRS
        assert len(views) == 7
        for view in views:
            await store.query(f"select * from {view} limit 1")
