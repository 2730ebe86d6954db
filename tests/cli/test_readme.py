"""What the README shows works as it is written."""

import re
import shlex
import signal
from pathlib import Path

from tests.cli.shell import Shell

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_app_of_the_readme_is_served_and_called_as_it_says(shell: Shell):
    (code,) = re.findall(r"```python\n# shop.py\n(.*?)```", README, re.DOTALL)
    (shell.folder / "shop.py").write_text(code)
    serve, call = (
        shlex.split(line, comments=True)[1:]
        for line in re.findall(r"^holdfast .*$", README, re.MULTILINE)
    )
    worker = shell.start(*serve)
    worker.line("is ready")
    assert shell.says(*call) == '"order 7 is paid"'
    worker.send(signal.SIGTERM)
    assert worker.end() == 0
