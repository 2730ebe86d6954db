"""What SQLite's errors mean, in our own words."""

import re

import apsw

from holdfast.errors import InvalidInput, NotAStore, SchemaMismatch, StoreError, StoreUnreachable
from holdfast.stores.driver import DuplicateTask, MisplacedTask

__all__ = ["PROBLEMS", "explain"]

PROBLEMS = (apsw.Error, OverflowError, UnicodeError)

_PLACES = {"lease.id", "later.id", "outcome.id"}


def explain(error: Exception, where: str) -> Exception:
    """The error to raise instead."""
    match error:
        case OverflowError() | UnicodeError():
            return InvalidInput(f"SQLite cannot hold such a value: {error}")
        case apsw.ConstraintError():
            return _constraint(error)
        case apsw.NotADBError():
            return NotAStore(
                f"{where} is not an SQLite database; give the path of a new file, or of a store"
            )
        case apsw.CorruptError():
            return StoreError(
                f"{where} is damaged ({error}); restore it from a backup, or save what can be read "
                "with `sqlite3 FILE .recover`"
            )
        case apsw.FullError():
            return StoreError(f"the disk of {where} is full; nothing was written. Make room on it")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreError(
                f"{where} cannot be written ({error}); give this user the right to write the file "
                "and its folder"
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnreachable(
                f"{where} is locked by another program; end its transaction, or wait and try again"
            )
        case apsw.CantOpenError() | apsw.IOError():
            return StoreUnreachable(
                f"{where} cannot be read or written ({error}); check the disk, and that the file "
                "and its folder are still there"
            )
        case apsw.SQLError() if "no such table" in str(error):
            return SchemaMismatch(
                f"{where} is not set up: {error}. Run `await store.migrate()` first"
            )
        case _:
            return StoreError(f"{where}: {error}")


def _constraint(error: apsw.ConstraintError) -> Exception:
    found = re.search(r"UNIQUE constraint failed: (\S+)", str(error))
    column = found[1] if found else ""
    if column == "task.id":
        return DuplicateTask()
    if column in _PLACES:
        return MisplacedTask(str(error))
    return StoreError(str(error))
