"""The examples as a user has them: files, run on the store that the environment names."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli.shell import can_be_interrupted

EXAMPLES = Path(__file__).parents[2] / "examples"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, fresh_database: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    return str(fresh_database(request.getfixturevalue("postgres_current")))


@pytest.fixture
def on_store(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs an example as a process of its own."""
    begun: list[subprocess.Popen[str]] = []

    def begin(script: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
            env=os.environ | environment,
            preexec_fn=can_be_interrupted,
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def example(name: str) -> ModuleType:
    """The file as a module, named as it is when it runs as a script."""
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
