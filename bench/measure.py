"""Ratios that hold on a noisy machine: both sides in turns, the median of the rounds."""

import statistics
import time
from collections.abc import Awaitable, Callable

import msgspec

__all__ = ["Ratio", "compare", "line", "report", "spent"]

Rate = Callable[[], Awaitable[float]]


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured against what, and what is promised: at least, at most, or nothing."""

    what: str
    ours: float
    reference: float
    ratio: float
    least: float | None = None
    most: float | None = None
    unit: str = "/s"

    @property
    def held(self) -> bool:
        return (self.least is None or self.ratio >= self.least) and (
            self.most is None or self.ratio <= self.most
        )


async def compare(
    what: str, ours: Rate, reference: Rate, *, least: float | None = None, rounds: int = 5
) -> Ratio:
    """Rates of both in turns; the ratio is the median of the rounds' ratios."""
    pairs = []
    for _ in range(rounds):
        limit = await reference()
        pairs.append((await ours(), limit))
    return Ratio(
        what=what,
        ours=statistics.median(own for own, _ in pairs),
        reference=statistics.median(limit for _, limit in pairs),
        ratio=statistics.median(own / limit for own, limit in pairs),
        least=least,
    )


async def spent(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds that a piece of work takes."""
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


def report(ratios: list[Ratio]) -> bool:
    """Print them as a table; whether all promises were kept."""
    print(f"\n{'':62}{'ours':>12}{'reference':>12}{'ratio':>8}  promised")
    for ratio in ratios:
        print(line(ratio))
    return all(ratio.held for ratio in ratios)


def line(ratio: Ratio) -> str:
    bound = "" if ratio.most is None else f"<= {ratio.most}  "
    if ratio.least is not None:
        bound = f">= {ratio.least}  "
    own, limit = (f"{value:,.0f}{ratio.unit}" for value in (ratio.ours, ratio.reference))
    if ratio.unit != "/s" or ratio.reference < 10:
        own, limit = (f"{value:.2f}{ratio.unit}" for value in (ratio.ours, ratio.reference))
    mark = "" if not bound else "ok" if ratio.held else "MISSED"
    return f"{ratio.what:62}{own:>12}{limit:>12}{ratio.ratio:>8.2f}  {bound}{mark}".rstrip()
