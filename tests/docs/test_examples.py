"""What the documents show is true."""

import re
from pathlib import Path

import psycopg
import pytest

from holdfast.stores.opening import open_store
from holdfast.stores.sqlite.driver import SqliteDriver
from tests.mutants.catalogue import MUTANTS

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ *```", re.MULTILINE)
SQL = re.compile(r"```sql\n(.*?)```", re.DOTALL)


def statements(kind: str) -> list[str]:
    """The statements of the SQL page: those that only read, that enqueue, or about the wall."""
    page = (ROOT / "docs/reference/sql.md").read_text()
    found = [one for block in SQL.findall(page) for one in block.split(";") if one.strip()]
    return [one for one in found if _kind(one) == kind]


def _kind(statement: str) -> str:
    if any(word in statement for word in ("create role", "wall(", "set_config", "holdfast.tasks")):
        return "wall"
    return "enqueue" if "holdfast.enqueue" in statement else "read"


def test_every_block_of_code_has_an_end():
    """Else prose is shown as code from there on, and the commands below it are run by no test."""
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), ROOT / "README.md"]
    assert [page.name for page in pages if len(FENCE.findall(page.read_text())) % 2] == []


@pytest.mark.parametrize("statement", statements("read"))
async def test_the_queries_of_the_sql_page_run_on_sqlite(statement: str, tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/holdfast.db")
    await store.close()
    driver = SqliteDriver(tmp_path / "holdfast.db")
    async with driver.transaction() as conn:
        await conn.execute(statement)
    await driver.close()


async def test_the_statements_of_the_sql_page_run_on_postgres(postgres_current, fresh_database):
    url = fresh_database(postgres_current)
    await (await open_store(url)).close()
    with psycopg.connect(url) as conn:
        for statement in statements("enqueue") + statements("read"):
            conn.execute(statement)
        rows = conn.execute("select queue, status, priority from tasks order by queue").fetchall()
    assert rows == [("default", "pending", 0), ("vip", "pending", 5)]


async def test_the_wall_of_the_sql_page_is_built(postgres_current, fresh_database):
    url = fresh_database(postgres_current)
    await (await open_store(url)).close()
    create, wall, name, ask = statements("wall")
    with psycopg.connect(url) as conn:  # and rolled back: roles belong to the whole server
        conn.execute(create)
        conn.execute(wall)
        conn.execute("select holdfast.enqueue('job', tenant => 'acme')")
        conn.execute("select holdfast.promote(9)")
        conn.execute("set local role holdfast_api")
        assert conn.execute(ask).fetchall() == []
        conn.execute(name)
        assert len(conn.execute(ask).fetchall()) == 1
        conn.rollback()


def test_every_mutant_is_in_the_documents():
    page = (ROOT / "docs/why/proofs.md").read_text()
    assert [m.name for m in MUTANTS if f"| {m.name.partition(': ')[2]} |" not in page] == []


def test_the_readme_names_the_two_commands_and_ci_runs_them():
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"^make \w+", readme, re.MULTILINE) == ["make demo", "make test"]
    assert "\nmake test\n" in (ROOT / ".ci/run").read_text()


def test_the_documents_link_to_files_that_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
