"""`holdfast sql`: questions to the store in its own language."""

from tests.cli.shell import Shell


def test_a_query_is_answered_as_lines_or_as_json(either: Shell):
    either.says("enqueue", "t", "1")
    query = "select type, created_at <= now() as past, null as gap from tasks"
    lines = either.says("sql", query).splitlines()
    assert lines[0] == "type\tpast\tgap"
    assert lines[1].split("\t")[0] == "t"
    assert bool(either.rows(query)[0]["past"]) is True


def test_a_query_may_begin_with_a_comment(either: Shell):
    either.says("enqueue", "t", "1")
    query = "-- Are they locked?\nSELECT job_id FROM processing_jobs WHERE locked_until > NOW();"
    assert either.says("sql", query).strip() == "job_id"
    assert "No such option" in either.fails(2, "sql", "--stor", "select 1")


def test_what_would_write_is_refused(either: Shell):
    either.says("enqueue", "t")
    assert "would write" in either.fails(6, "sql", "with x as (select 1) delete from task")
    assert either.fails(2, "sql", "select 1; delete from task")
    assert either.rows("select count(*) as n from tasks") == [{"n": 1}]


def test_asking_makes_no_store(shell: Shell):
    assert "there is no store" in shell.fails(4, "sql", "select 1")
    assert not shell.has("holdfast.db")
