"""The examples of the documents are run in this process."""

from collections.abc import Iterator

import pytest

from holdfast.registry import Registry, functions


@pytest.fixture(autouse=True)
def schedules_end_with_their_example() -> Iterator[None]:
    """What an example registers with a cron, for all apps, would run in other tests too."""
    before = set(functions._own)
    yield
    for key in [key for key, one in functions._own.items() if one.traits.cron]:
        if key not in before:
            del functions._own[key]
            Registry.additions += 1
