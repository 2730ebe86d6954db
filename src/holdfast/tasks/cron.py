"""When a function is to run by the clock. Pure: instants go in, instants come out."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from holdfast.errors import InvalidInput

__all__ = ["Cron"]

_SOME_TIME = datetime(2024, 1, 1, tzinfo=UTC)
_MOMENT = timedelta(microseconds=1)
_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


class Cron(msgspec.Struct, frozen=True):
    """An expression as cron takes it, by the wall clocks of a time zone. What falls into an hour
    that is left out in spring comes right after it, what falls into one that comes twice in autumn
    comes once; expressions of every hour (`*/10 * * * *`) follow the time that really passes."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str) or not isinstance(self.timezone, str):
            raise InvalidInput(
                'cron= and timezone= are texts, such as cron="0 9 * * MON-FRI" and '
                f'timezone="Europe/Berlin"; got {self.expression!r:.80} and {self.timezone!r:.80}'
            )
        try:
            _zone(self.timezone)
        except (KeyError, ValueError, OSError):
            raise InvalidInput(
                f"timezone {self.timezone!r:.80} is not known here; write a name such as "
                "Europe/Berlin (where no names are known at all: pip install tzdata)"
            ) from None
        from cronsim import CronSimError

        try:
            self.after(_SOME_TIME)
        except CronSimError as error:
            raise InvalidInput(
                f"cron {self.expression!r:.80} cannot be read ({error}); write minute, hour, day, "
                'month and weekday: "0 9 * * MON-FRI", or one of ' + ", ".join(_NAMES)
            ) from None

    def after(self, instant: datetime) -> datetime:
        """The first time behind this one."""
        for tick in self._ticks(instant):
            if tick > instant:  # of an hour that comes twice, the first was before it
                return tick
        raise InvalidInput(f"cron {self.expression!r:.80} never comes; there is no such day")

    def last(self, first: datetime, until: datetime) -> datetime:
        """The last one of its times from `first`, which is one of them, up to `until`."""
        last = first
        for tick in self._ticks(until + _MOMENT, reverse=True):
            if tick <= until:
                last = max(first, tick)
                break
        while (tick := self.after(last)) <= until:  # of an hour that comes twice
            last = tick
        return last

    def _ticks(self, instant: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        from cronsim import CronSim  # many programs need no clock

        said = _NAMES.get(self.expression.lower(), self.expression)
        for tick in CronSim(said, instant.astimezone(_zone(self.timezone)), reverse):
            yield tick.astimezone(UTC)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    return UTC if name == "UTC" else ZoneInfo(name)
