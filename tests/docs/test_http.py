"""What the pages about HTTP show is true."""

import json
import re
import subprocess
from pathlib import Path

from holdfast.http import bounds, fields, house, patient
from tests.cli.shell import shell_in
from tests.conftest import need
from tests.http.test_serving import address
from tests.servers import program

ROOT = Path(__file__).parents[2]
HOWTO = (ROOT / "docs/howto/http.md").read_text()
PAGE = (ROOT / "docs/reference/http.md").read_text()


def test_the_calls_of_the_page_work(tmp_path: Path):
    curl = need(lambda: program("curl"))
    with shell_in(tmp_path) as shell:
        shell.worker()
        base = address(shell.start("api", "--app", "shop:app", "--port", "0").line("is ready"))
        id = ""
        commands = "\n".join(re.findall(r"```sh\n(.*?)```", HOWTO, re.DOTALL)).replace("\\\n", "")
        for command in filter(None, commands.splitlines()):
            line = command.replace("curl -s", f"{curl} -s --fail-with-body", 1)
            line = line.replace("localhost:8000", base.removeprefix("http://"))
            done = subprocess.run(
                ["/bin/sh", "-c", line], env={"ID": id}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            found = json.loads(done.stdout)
            id = id or found["id"]
            if "/result" in command:
                assert found["result"] == 3


def test_every_code_of_a_problem_is_on_the_page():
    sources = [
        path.read_text()
        for folder in ("http", "http/routes")
        for path in (ROOT / "src/holdfast" / folder).glob("*.py")
    ]
    codes = set(re.findall(r'Problem\(\s*(?:\d+|status),\s*"(\w+)"', "\n".join(sources)))
    assert len(codes) > 15
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


def test_the_limits_on_the_page_are_those_that_are_kept():
    assert bounds.MAX_BODY == 1024 * 1024
    for number in (
        f"{bounds.MAX_DEPTH} levels",
        f"{bounds.MAX_NODES:,} values",
        f"{fields.MAX_BATCH:,} tasks",
        f"within {patient.Patient.SECONDS:.0f} s",
        f"{house._RATE:.0f} requests a second ({house._BURST:,.0f} at once)",
        f"{house._STREAMS} streams",
    ):
        assert number in PAGE.replace("\n", " "), number
