"""The examples of docs/howto/testing.md, run by pytest as a user's files."""

import os
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import holdfast

PAGE = (Path(__file__).parents[2] / "docs/howto/testing.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_tests_of_the_page_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    shop, conftest, *tests = EXAMPLES
    assert shop.startswith("# shop.py")
    assert conftest.startswith("# conftest.py")
    pytester.makepyfile(
        shop=shop, conftest=conftest, test_shop="import shop\n\n" + "\n".join(tests)
    )
    pytester.makeini(
        "[pytest]\nasyncio_mode=auto\nasyncio_default_fixture_loop_scope=function\n"
        "filterwarnings=error\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(holdfast.__file__).parents[1]), prepend=os.pathsep)
    installed = any(found.name == "holdfast" for found in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "holdfast.testing")
    result = pytester.runpytest_subprocess(*plugin, timeout=100)
    result.assert_outcomes(passed=len(tests))
