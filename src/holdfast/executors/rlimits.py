"""What a process may use: memory as address space, processor time for each call. Unix only."""

import math
from contextlib import suppress

__all__ = ["grant_cpu", "lift_memory", "limit_memory"]


def limit_memory(most: int | None) -> None:
    if most is not None:
        import resource

        _soft(resource.RLIMIT_AS, most)
        _soft(resource.RLIMIT_CORE, 0)  # as large as the limit, and of no use


def lift_memory() -> None:
    """So that a function's want of memory can still be told."""
    import resource

    _soft(resource.RLIMIT_AS, resource.RLIM_INFINITY)


def grant_cpu(seconds: float | None) -> None:
    """So much processor time from now on, up to the next whole second; None: without end."""
    import resource

    if seconds is None:
        return _soft(resource.RLIMIT_CPU, resource.RLIM_INFINITY)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _soft(resource.RLIMIT_CORE, 0)
    return _soft(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds))


def _soft(kind: int, wanted: int) -> None:
    """The soft limit only, within the hard one that this process was given."""
    import resource

    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        wanted = hard if wanted == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(kind, (wanted, hard))
