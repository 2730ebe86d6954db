"""`holdfast config`, `completion`, `init`, `dev`: what people begin with."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import Shell, until

STAYED = "select 1 as n from workers where status <> 'stopped'"
SECRET = "s3cret-of-mine"


def test_settings_are_shown_with_their_origin_and_without_secrets(shell: Shell):
    (shell.folder / "redis").write_text(f"redis://:{SECRET}@cache/0")
    environ = {
        "DATABASE_URL": f"postgresql://me:{SECRET}@db/shop?sslpassword={SECRET}",
        "HOLDFAST_REDIS_URL_FILE": str(shell.folder / "redis"),
        "HOLDFAST_TOKEN": SECRET,
        "WORKER_LEASE_DURATION_SECONDS": "30",
        "HOLDFAST_QUEUES": "mail,default",
    }
    done = shell.run("config", "show", "--origin", **environ)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    rows = {row[0]: row[1:] for row in (line.split("\t") for line in done.stdout.splitlines())}
    assert rows["store"] == ["postgresql://db/shop", "DATABASE_URL"]
    assert rows["redis_url"] == ["redis://cache/0", "HOLDFAST_REDIS_URL_FILE"]
    assert rows["token"] == ["***", "HOLDFAST_TOKEN"]
    assert rows["lease"] == ["30s", "WORKER_LEASE_DURATION_SECONDS"]
    assert rows["concurrency"] == ["", "default"]
    found = json.loads(shell.run("config", "show", "--set", "-o", "json", **environ).stdout)
    assert {row["setting"] for row in found} == {"store", "redis_url", "token", "lease", "queues"}


def test_settings_that_cannot_be_used_are_all_named(shell: Shell):
    said = shell.fails(2, "config", "show", HOLDFAST_LEASE="soon", HOLDFAST_CONCURRENCY="0")
    assert "HOLDFAST_LEASE" in said
    assert "HOLDFAST_CONCURRENCY" in said


def test_shells_are_told_how_to_complete(shell: Shell):
    for name in ("bash", "zsh", "fish"):
        assert "_HOLDFAST_COMPLETE" in shell.says("completion", name)
    asked = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast de", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli import main; main(prog_name='holdfast')"],
        env=shell.environ | asked, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.stdout.split() == ["plain,dead-letter", "plain,demo", "plain,dev"]


def test_a_project_that_is_begun_runs_and_its_tests_pass(shell: Shell):
    made = shell.says("init", "shop2").splitlines()
    assert made == ["shop2/app.py", "shop2/test_app.py", "shop2/README.md"]
    folder = shell.folder / "shop2"
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, env=shell.environ, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr
    assert "is there already" in shell.fails(5, "init", "shop2")
    (folder / "README.md").unlink()
    assert "app.py" in shell.fails(5, "init", "shop2")
    assert not (folder / "README.md").exists()


def test_a_project_is_served_while_it_is_written(shell: Shell):
    shell.says("init")
    shell.environ["HOLDFAST_APP"] = "app"
    dev = shell.start("dev", "--no-api")
    dev.line("is ready")
    assert shell.says("enqueue", "greet", '"Ada"', "--wait", "--timeout", "60") == '"hello, Ada"'
    app = shell.folder / "app.py"
    app.write_text(app.read_text().replace("hello", "good morning"))
    dev.line("is ready")
    assert "app.py changed" in dev.said
    done = shell.says("enqueue", "greet", '"Ada"', "--wait", "--timeout", "60")
    assert done == '"good morning, Ada"'
    app.write_text("this is no Python")
    until(lambda: "ended with 10" in dev.said, "the broken app is told of")
    dev.send(signal.SIGINT)
    assert dev.end() == 0
    until(lambda: shell.rows(STAYED) == [], "all gone")


def test_what_was_served_goes_with_whoever_served_it(shell: Shell):
    """Also when that is killed."""
    dev = shell.start("dev", "--no-api", "--app", "shop")
    dev.line("is ready")
    dev.send(signal.SIGKILL)
    dev.end()
    until(lambda: shell.rows(STAYED) == [], "all gone")


def test_an_api_is_served_too_where_it_is_installed(shell: Shell):
    dev = shell.start("dev", "--app", "shop", "--port", "0")
    url = dev.line("api is ready: ").split(" ")[3].rstrip(",")
    task = shell.says("enqueue", "add", "1", "2", "--api", url)
    assert shell.says("tasks", "wait", task, "--api", url, "--timeout", "60") == "3"
    dev.send(signal.SIGTERM)
    assert dev.end() == 0


def test_an_api_that_is_not_there_does_not_answer(shell: Shell):
    with socket.socket() as silent:  # a port that nobody else can take meanwhile
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "does not answer" in shell.fails(4, "tasks", "ls", "--api", url)


def test_dev_hears_the_environment_as_a_worker_does(shell: Shell):
    dev = shell.start("dev", "--no-api", "--app", "shop", WORKER_ID="worker-1", WORKER_MAX_JOBS="3")
    dev.line("is ready")
    assert shell.rows("select name, max_concurrent from workers") == [
        {"name": "worker-1", "max_concurrent": 3}
    ]
    dev.send(signal.SIGTERM)
    assert dev.end() == 0


def test_dev_needs_an_app(shell: Shell):
    assert "--app" in shell.fails(2, "dev")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full disk at hand")
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_full_disk_is_told_in_words(shell: Shell, form: str):
    shell.says("migrate", "up")
    command = f"{sys.executable} -m holdfast migrate status -o {form} --store sqlite:///holdfast.db"
    for place, code in ((">/dev/full", 1), (">&-", 0)):
        done = subprocess.run(
            ["sh", "-c", f"{command} {place}"],
            cwd=shell.folder,
            env=shell.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if code:
            assert "the output cannot be written: No space left on device" in done.stderr
