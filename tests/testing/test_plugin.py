"""The plugin as users have it: pytest runs files of theirs."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
SHOP = """
from holdfast import Holdfast

app = Holdfast("postgresql://nobody@nowhere.invalid/none")

@Holdfast.durable
async def charge(order: int) -> str:
    return f"order {order} is paid"

@app.durable(queue="mail")
async def mail(to: str) -> str:
    return await Holdfast.step("send", str.upper, to)
"""

PROBE = """
import sys, pytest
before = {*sys.modules}
import holdfast.testing
print(*{*sys.modules} - before)
"""
INI = """
[pytest]
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs these tests; with the plugin by name where this checkout is not installed with it."""
    pytester.makepyfile(shop=SHOP)
    pytester.makeini(INI)
    monkeypatch.setenv("PYTHONPATH", str(Path(holdfast.__file__).parents[1]), prepend=os.pathsep)
    installed = any(found.name == "holdfast" for found in entry_points(group="pytest11"))

    def begin(tests: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(tests)
        plugin = () if installed else ("-p", "holdfast.testing")
        return pytester.runpytest_subprocess(*plugin, *options, timeout=100)

    return begin


def test_pytest_finds_it_by_itself():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"holdfast": "holdfast.testing"}


def test_it_costs_nothing_before_it_is_used():
    said = subprocess.run([sys.executable, "-c", PROBE], check=True, capture_output=True, text=True)
    assert set(said.stdout.split()) == {"holdfast", "holdfast.version", "holdfast.testing"}


def test_with_pytest_asyncio_with_anyio_and_with_neither_on_a_store_for_each_test(run):
    result = run("""
        import asyncio
        import pytest
        import shop

        async def pays(holdfast):
            task = await holdfast.dispatch(shop.charge, 7)
            holdfast.assert_enqueued(shop.charge, args=[7], count=1)
            assert await holdfast.drain() == 1
            assert await task.result(timeout=30) == "order 7 is paid"
            await holdfast.dispatch(shop.charge, 8)

        @pytest.mark.asyncio
        async def test_by_pytest_asyncio(holdfast):
            await pays(holdfast)

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_by_anyio(holdfast, anyio_backend):
            await pays(holdfast)

        def test_by_hand(holdfast):
            asyncio.run(pays(holdfast))
            assert asyncio.run(holdfast.drain()) == 1
            asyncio.run(pays(holdfast))

        def test_without_await(holdfast):
            task = holdfast.dispatch_sync(shop.charge, 7)
            assert holdfast.run_sync(holdfast.drain()) == 1
            assert holdfast.run_sync(task.result(timeout=30)) == "order 7 is paid"

        class TestWithAnAppOfOnesOwn:
            @pytest.fixture
            def holdfast_app(self):
                return shop.app

            @pytest.mark.asyncio
            async def test_it_lives_in_memory(self, holdfast):
                task = await shop.app.dispatch(shop.mail, "ada")
                holdfast.assert_enqueued(shop.mail, queue="mail")
                holdfast.crash_at(shop.mail, after="send")
                assert await holdfast.drain() == 1
                assert await task.result(timeout=30) == "ADA"

            def test_it_is_given_back(self):
                assert "nowhere" in shop.app.home.url
    """)
    result.assert_outcomes(passed=6)


def test_what_fails_is_told_in_words(run):
    result = run("""
        import shop

        def test_of_what_is_missing(holdfast):
            holdfast.dispatch_sync(shop.charge, 7)
            holdfast.assert_enqueued(shop.charge, args=[8])

        def test_of_a_crash_that_never_came(holdfast):
            holdfast.crash_at(shop.charge, after="step")
            holdfast.dispatch_sync(shop.charge, 7)
            holdfast.run_sync(holdfast.drain())
    """)
    result.assert_outcomes(failed=1, passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            '*AssertionError: no shop:charge {"args":[[]8],"kwargs":{}} is enqueued*',
            '*  shop:charge {"args":[[]7],"kwargs":{}} on queue default, due *',
        ]
    )
    result.stdout.fnmatch_lines(["*crash_at(shop:charge, after='step') never came*"])
