"""The page on secrets does what it says."""

import re
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.redaction import _NAMES, Redaction
from holdfast.sealing import KeyRing

PAGE = (Path(__file__).parents[2] / "docs/howto/secrets.md").read_text()


async def test_the_example_seals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Holdfast] = {}
    exec(code, names)
    app = names["app"]

    @app.durable(name="greet")
    async def greet(word: str) -> None: ...

    async with app:
        await app.dispatch(greet, "canary-4711")
        store = (await app.home.client()).store
        assert b"canary" not in repr((await store.query("select payload from task"))[1]).encode()


def test_the_page_names_what_is_hidden() -> None:
    named = PAGE.partition("Values of fields named ")[2].partition(" (case")[0]
    assert tuple(re.findall(r"`(\w+)`", named)) == _NAMES
    assert Redaction().hide(b'{"api_key": 1}') == b'{"api_key":"[hidden]"}'


def test_a_key_is_what_the_page_says() -> None:
    assert len(KeyRing.make()) == 44
