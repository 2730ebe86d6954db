"""`holdfast init`: the beginning of a project."""

from importlib.resources import files
from pathlib import Path

import click

from holdfast.cli.exits import Exit, Stop
from holdfast.cli.render import say

__all__ = ["init"]

_FILES = {"app.py": "app.py.txt", "test_app.py": "test_app.py.txt", "README.md": "README.md.txt"}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
def init(folder: Path) -> None:
    """Write an app, a test and a page into FOLDER (default: here). Nothing is overwritten."""
    there = [name for name in _FILES if (folder / name).exists()]
    if there:
        raise Stop(
            Exit.CONFLICT,
            f"{', '.join(there)} is there already, and nothing was written; name another folder",
        )
    texts = files("holdfast.cli.scaffold")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in _FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(texts.joinpath(source).read_text("utf-8"))
            click.echo(str(folder / name))
    except OSError as error:
        raise Stop(Exit.FAILED, f"{folder} cannot be written: {error.strerror}") from None
    go = "" if folder == Path() else f"cd {folder} && "
    say(f"next: {go}holdfast dev --app app   (README.md says more)")
