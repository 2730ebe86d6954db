"""Bringing a file's schema up to this release."""

from importlib.resources import files

from holdfast.stores import migrations
from holdfast.stores.sqlite.ownership import refuse_names, sign
from holdfast.stores.sqlite.session import Session

__all__ = ["check", "is_current", "migrate"]

_HERE = files("holdfast.stores.sqlite")


def is_current(s: Session) -> bool:
    """Looked at first: the usual start has nothing to do and waits for nobody."""
    found = _found(s)
    return found is not None and not migrations.pending(found, _HERE)


def migrate(s: Session) -> int:
    found = _found(s)
    for migration in migrations.pending(found, _HERE):
        s.conn.execute(migration.sql).fetchall()
        s.run(
            "schema.moved_to",
            version=migration.version,
            name=migration.name,
            fits=migration.fits,
        )
    sign(s.conn)
    return check(s)


def check(s: Session) -> int:
    """The schema's version, where it fits this release."""
    return migrations.check(_found(s), _HERE)


def _found(s: Session) -> tuple[int, int] | None:
    tables = {name for (name,) in s.rows("schema.tables")}
    if "migration" not in tables:
        refuse_names(tables)
        return None
    row = s.row("schema.version")
    return (row[0], row[1]) if row else None
