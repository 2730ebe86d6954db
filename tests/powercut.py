"""A disk whose power is cut: of SQLite's log only what was flushed is left."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, ClassVar

import apsw
import pytest

__all__ = ["Disk", "disk"]


class Disk(apsw.VFS):
    """Knows how much of each file has been flushed."""

    flushed: ClassVar[dict[str, int]] = {}

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File("unix", name, flags)

    def __init__(self, folder: Path) -> None:
        super().__init__("holdfast-disk", "unix", makedefault=True)
        self._folder = folder

    def cut_power(self, path: Path) -> Path:
        """What a machine finds that comes up again: the log as far as it was flushed."""
        copy = Path(mkdtemp(dir=self._folder)) / path.name
        shutil.copy(path, copy)
        log = Path(f"{path}-wal")
        Path(f"{copy}-wal").write_bytes(log.read_bytes()[: self.flushed[str(log)]])
        return copy


class _File(apsw.VFSFile):
    def __init__(self, vfs: str, name: Any, flags: list[int]) -> None:
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__(vfs, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        Disk.flushed[self.path] = self.xFileSize()


@pytest.fixture
def disk() -> Iterator[Disk]:
    with TemporaryDirectory(prefix="hf-") as folder:  # short: sockets lie beside a store
        disk = Disk(Path(folder))
        yield disk
        disk.unregister()
