"""`holdfast bench`: figures, and nothing left behind."""

import json

from tests.cli.shell import Shell
from tests.servers import ask


def test_the_bench_on_sqlite_measures_and_leaves_nothing(shell: Shell):
    figures = json.loads(shell.says("bench", "--tasks", "300", "--processes", "2", "-o", "json"))
    assert (figures["store"], figures["tasks"], figures["processes"]) == ("sqlite", 300, 2)
    assert figures["enqueued_per_second"] > 0
    assert figures["drained_per_second"] > 0
    assert 0 <= figures["pick_up_p50_ms"] <= figures["pick_up_p99_ms"]
    assert [path.name for path in shell.folder.iterdir()] == ["shop.py"]


def test_the_bench_on_postgres_works_in_a_schema_of_its_own(
    shell: Shell, postgres_current, fresh_database
):
    url = fresh_database(postgres_current)
    lines = shell.says("bench", "--tasks", "300", "--store", url).splitlines()
    assert lines[0] == "what\tfigure"
    assert any(line.startswith("drained per second\t") for line in lines)
    assert ask(url, "select count(*) from pg_namespace where nspname like 'holdfast%'") == [(0,)]
