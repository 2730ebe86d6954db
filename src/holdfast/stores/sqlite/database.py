"""One connection, used by one thread at a time: transactions, and who waits for whom."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from holdfast.clock import Clock
from holdfast.errors import StoreError
from holdfast.stores.sqlite.lockfile import LockFile
from holdfast.stores.sqlite.opening import MEMORY, look_at, open_connection
from holdfast.stores.sqlite.problems import PROBLEMS, explain
from holdfast.stores.sqlite.session import Session

__all__ = ["Database", "Outcome", "Work"]

Work = Callable[[Session], Any]
Outcome = tuple[Any, Exception | None]


class Database:
    """Opened when it is made."""

    def __init__(self, path: str, *, clock: Clock, synchronous: str, timeout: float) -> None:
        self._path, self._clock, self._timeout = path, clock, timeout
        self._can_flush = self._flushes = synchronous == "full"
        self.closed = False
        self._lock: LockFile | None = None
        try:
            if path != MEMORY:
                look_at(Path(path))  # before there is a lock file beside it
                self._lock = self._lock_file()
            self._acquire()  # two that make one file at once would fail each other
            try:
                self._conn = open_connection(
                    path, clock=clock, synchronous=synchronous, timeout=timeout
                )
            finally:
                self._release()
        except BaseException as error:
            if self._lock:
                self._lock.close()
            self._raise(error)

    def write(self, gather: Callable[[], Sequence[Work]], *, flush: bool = True) -> list[Outcome]:
        """All that waits in one commit; what fails takes nothing else with it.

        `gather` is called when it is our turn: what came in the meantime comes along. Not `flush`:
        it is on the disk with the next commit that is waited for.
        """
        try:
            self.begin(flush=flush)
        except Exception as error:
            return [(None, error)] * len(gather())
        works: Sequence[Work] = ()
        try:
            works = gather()
            outcomes = [self._alone(works[0])] if len(works) == 1 else self._together(works)
            self.commit()
        except Exception as error:
            self.rollback()
            return [(None, self._explained(error))] * len(works)
        except BaseException:
            self.rollback()
            raise
        return outcomes

    def read(self, work: Work) -> Outcome:
        """In one snapshot."""
        try:
            self._check_free()
            self._conn.execute("begin")
        except Exception as error:
            return None, self._explained(error)
        try:
            outcome = work(self._session())
            self._conn.execute("commit")
        except Exception as error:
            self.rollback()
            return None, self._explained(error)
        return outcome, None

    def begin(self, *, flush: bool = True) -> None:
        self._check_free()
        self._acquire()
        try:
            if flush is not self._flushes and self._can_flush:
                self._conn.execute(f"pragma synchronous = {'full' if flush else 'normal'}")
                self._flushes = flush
            self._conn.execute("begin immediate")
        except BaseException as error:
            self._release()
            self._raise(error)

    def run(self, work: Work) -> Any:
        """Inside the open transaction; all of it or nothing."""
        self._check_open()
        try:
            with self._conn:
                return work(self._session())
        except PROBLEMS as error:
            raise explain(error, self._path) from error

    def execute(self, sql: str, parameters: Any) -> list[tuple[Any, ...]]:
        """A statement of the caller's own, with apsw's own errors."""
        self._check_open()
        rows = self._conn.execute(sql, parameters).fetchall()
        if not self._conn.in_transaction:
            raise StoreError("a statement ended the transaction; leave its block to end it")
        return rows

    def commit(self) -> None:
        try:
            self._check_open()
            self._conn.execute("commit")
        except BaseException as error:
            self.rollback()
            self._raise(error)
        self._release()

    def rollback(self) -> None:
        """Never fails: what cannot be rolled back is closed, which undoes it too."""
        if self.closed:
            return
        try:
            if self._conn.in_transaction:
                self._conn.execute("rollback")
        except Exception:
            self.close()
        else:
            self._release()

    def close(self) -> None:
        """What was not committed is undone, and nobody waits for us any more."""
        if self.closed:
            return
        self.closed = True
        try:
            self._conn.close(True)
        finally:
            if self._lock:
                self._lock.close()

    def _check_free(self) -> None:
        if self._conn.in_transaction:
            raise StoreError(
                "a caller's transaction is open on the only connection; end it, or pass its conn="
            )

    def _check_open(self) -> None:
        if self.closed or not self._conn.in_transaction:
            raise StoreError(
                f"this transaction on {self._path} is not open any more: SQLite gave it up, or a "
                "statement ended it; begin a new one"
            )

    def _explained(self, error: Exception) -> Exception:
        return explain(error, self._path) if isinstance(error, PROBLEMS) else error

    def _raise(self, error: BaseException) -> NoReturn:
        if isinstance(error, PROBLEMS):
            raise explain(error, self._path) from error
        raise error

    def _session(self) -> Session:
        return Session(self._conn, self._clock)

    def _alone(self, work: Work) -> Outcome:
        """Needs no savepoint: when it fails, all is rolled back."""
        try:
            return work(self._session()), None
        except PROBLEMS as error:
            raise explain(error, self._path) from error

    def _together(self, works: Sequence[Work]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for work in works:
            try:
                outcomes.append((self.run(work), None))
            except Exception as error:
                if not self._conn.in_transaction:  # disk full, say: SQLite gave up all of it
                    raise
                outcomes.append((None, error))
        return outcomes

    def _lock_file(self) -> LockFile | None:
        try:
            return LockFile(Path(f"{self._path}.lock"))
        except OSError:
            return None  # opening the database itself will say what is wrong

    def _acquire(self) -> None:
        if self._lock:
            self._lock.acquire(self._timeout)

    def _release(self) -> None:
        if self._lock:
            self._lock.release()
