"""The scenes: where the tasks stand, and which verbs meet there."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from holdfast.tasks.edit import Edit
from holdfast.tasks.limits import Limit
from tests.permutations.cast import (
    DONE,
    FAILED,
    HANDED_BACK,
    NAPPING,
    RETRY,
    WAITING,
    WAITING_FOR_TWO,
    Cast,
    Verb,
    cancels,
    claims,
    cleans_up,
    discards,
    edits,
    enqueues,
    expires,
    limits,
    pauses,
    promotes,
    recovers,
    renews,
    replays,
    settles,
    signals,
    sweeps,
    takes_child,
    wakes_up,
)

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A set-up, and all verbs of which each pair is played in it."""

    name: str
    set_up: Callable[[Cast], Awaitable[None]]
    verbs: dict[str, Verb]


async def _crowd(cast: Cast) -> None:
    """One of everything, all in the queue q and most behind the same gate."""
    store, world = cast.world.store, cast.world
    await store.limit("type", "work", Limit(max_running=4))
    await store.limit("type", "keyed", Limit(max_per_key=1))
    await cast.add("dead", key="K", unique="while_pending")
    await cast.hold("dead")
    await cast.settle("dead", FAILED)
    await cast.add("parent")
    await cast.add("child", parent=cast.ids["parent"])
    await cast.hold("parent", "child")
    await cast.settle("parent", WAITING)
    await cast.add("lapsed")
    await cast.hold("lapsed", worker=3, lease=SECOND)
    await cast.add("holds_key", "keyed", concurrency_key="k")
    await cast.hold("holds_key")
    await cast.add("blocked", "keyed", concurrency_key="k")
    await cast.add("due", delay=SECOND)
    await cast.add("late", expires=SECOND)
    await world.advance(30)
    await cast.add("next")


async def _held(cast: Cast) -> None:
    await cast.world.store.limit("type", "work", Limit(max_running=3))
    for name in ("one", "two"):
        await cast.add(name)
    await cast.hold("one", "two")
    await cast.add("next")


async def _lapsed(cast: Cast) -> None:
    await _held(cast)
    await cast.world.advance(2 * 3600)


async def _due(cast: Cast) -> None:
    """Two that are due and one that has expired, of which one is in line already."""
    await cast.add("due", delay=SECOND)
    await cast.add("due_too", delay=SECOND)
    await cast.add("late", expires=SECOND)
    await cast.add("late_and_due", delay=SECOND, expires=SECOND)
    await cast.world.advance(30)


async def _keyed(cast: Cast) -> None:
    await cast.world.store.limit("type", "keyed", Limit(max_per_key=1))
    await cast.add("holds", "keyed", concurrency_key="k")
    await cast.hold("holds", lease=SECOND)
    await cast.add("blocked", "keyed", concurrency_key="k")
    await cast.add("due", "keyed", concurrency_key="k", delay=SECOND)
    await cast.add("other", "keyed", concurrency_key="l")
    await cast.world.advance(30)


async def _ended(cast: Cast) -> None:
    await cast.add("failed", key="K", unique="while_pending")
    await cast.add("failed_too")
    await cast.hold("failed", "failed_too")
    failed = dict(cast.leases)
    await cast.settle("failed", FAILED)
    await cast.settle("failed_too", FAILED)
    cast.leases = failed  # a zombie still believes in them
    await cast.add("stopped")
    await cast.world.store.cancel([cast.ids["stopped"]])
    await cast.world.advance(30)


async def _putting_down(cast: Cast) -> None:
    """A parent that is about to wait for its child, which is about to end."""
    await cast.add("parent")
    await cast.add("child", parent=cast.ids["parent"])
    await cast.hold("parent", "child")


async def _joining(cast: Cast) -> None:
    """A parent that waits for two children."""
    await cast.add("parent")
    await cast.add("one", parent=cast.ids["parent"])
    await cast.add("two", parent=cast.ids["parent"])
    await cast.hold("parent", "one", "two")
    await cast.settle("parent", WAITING_FOR_TWO)


async def _taking(cast: Cast) -> None:
    """Parents whose children may be taken as they are made; one has lost its time."""
    await cast.add("parent", "free")
    await cast.hold("parent")
    await cast.add("late", "free")
    await cast.hold("late", worker=3, lease=SECOND)
    await cast.world.advance(30)
    await cast.add("next", "free")


async def _homeless(cast: Cast) -> None:
    """Enqueued in SQL into a lane that nobody knows yet, behind a gate that is there already."""
    await cast.world.store.limit("type", "work", Limit(max_running=2))
    await cast.add("held")
    await cast.hold("held")
    conn = cast.world.conn
    cast.gate = await conn.fetchval("select id from holdfast.gate where name = 'work'")
    for name in ("stray", "stray_too"):
        cast.ids[name] = await conn.fetchval(
            "select holdfast.enqueue('work', queue => $1, max_tries => 2)", name
        )
    await cast.world.advance(1)


def _keyed_lanes(cast: Cast) -> list[int]:
    return cast.lanes[-1:]


def _new_key(key: str) -> Verb:
    return enqueues(type="work", key=key, unique="while_pending", max_tries=2)


WIDER = Limit(max_running=6)
PUT_OFF = Edit(delay=MINUTE, priority=3, queue="elsewhere", expires=None)
AT_ONCE = Edit(delay=timedelta(0), priority=3, expires=None)

# The pairs that are asked of every release: each verb with each other and with itself.
CROWD = {
    "claim": claims(),
    "renew": renews,
    "settle done": settles(DONE),
    "settle retry": settles(RETRY),
    "settle waiting": settles(NAPPING),
    "recover": recovers,
    "cancel": cancels(),
    "replay": replays,
    "promote": promotes,
    "admit": claims(lanes=_keyed_lanes),
    "wake up": wakes_up,
    "expire": expires,
    "enqueue": _new_key("K"),
    "limit": limits(WIDER),
    "pause": pauses,
    "edit": edits("next", PUT_OFF),
}

_SETTLES = {
    "settle done": settles(DONE),
    "settle retry": settles(RETRY),
    "settle waiting": settles(NAPPING),
    "hand back": settles(HANDED_BACK),
}

SCENES = [
    Scene(name="crowd", set_up=_crowd, verbs=CROWD),
    Scene(
        name="held",
        set_up=_held,
        verbs=_SETTLES
        | {
            "claim": claims(),
            "renew": renews,
            "cancel": cancels(),
            "limit": limits(WIDER),
            "no limit": limits(Limit()),
        },
    ),
    Scene(
        name="lapsed",
        set_up=_lapsed,
        verbs=_SETTLES
        | {
            "claim": claims(),
            "renew": renews,
            "recover": recovers,
            "cancel": cancels(),
            "limit": limits(WIDER),
        },
    ),
    Scene(
        name="due",
        set_up=_due,
        verbs={
            "claim": claims(),
            "promote": promotes,
            "expire": expires,
            "cancel": cancels(),
            "replay": replays,
            "limit": limits(Limit(max_running=1)),
            "edit": edits("due", PUT_OFF),
            "edit late": edits("late", PUT_OFF),
        },
    ),
    Scene(
        name="keyed",
        set_up=_keyed,
        verbs={
            "admit": claims(),
            "settle done": settles(DONE),
            "settle retry": settles(RETRY),
            "hand back": settles(HANDED_BACK),
            "recover": recovers,
            "cancel": cancels(),
            "promote": promotes,
            "replay": replays,
            "limit": limits(Limit(max_per_key=2), "keyed"),
            "enqueue": enqueues(type="keyed", concurrency_key="k", max_tries=2),
            "edit blocked": edits("blocked", PUT_OFF),
            "edit due": edits("due", AT_ONCE),
            "edit other": edits("other", AT_ONCE),
        },
    ),
    Scene(
        name="ended",
        set_up=_ended,
        verbs={
            "replay": replays,
            "enqueue": _new_key("K"),
            "enqueue anew": _new_key("new"),
            "cancel": cancels(),
            "discard": discards,
            "cleanup": cleans_up,
            "late settle": settles(DONE),
            "claim": claims(),
        },
    ),
    Scene(
        name="putting down",
        set_up=_putting_down,
        verbs={
            "put down": settles(WAITING, "parent"),
            "child done": settles(DONE, "child"),
            "child failed": settles(FAILED, "child"),
            "child retry": settles(RETRY, "child"),
            "cancel": cancels("parent"),
            "cancel child": cancels("child"),
            "signal": signals("parent"),
            "sweep": sweeps,
        },
    ),
    Scene(
        name="joining",
        set_up=_joining,
        verbs={
            "one done": settles(DONE, "one"),
            "two done": settles(DONE, "two"),
            "two failed": settles(FAILED, "two"),
            "cancel": cancels("parent"),
            "cancel two": cancels("two"),
            "signal": signals("parent"),
            "wake up": wakes_up,
            "sweep": sweeps,
        },
    ),
    Scene(
        name="taking",
        set_up=_taking,
        verbs={
            "take": takes_child("parent"),
            "late take": takes_child("late"),
            "put down": settles(NAPPING, "parent"),
            "settle done": settles(DONE),
            "settle retry": settles(RETRY),
            "claim": claims(),
            "renew": renews,
            "recover": recovers,
            "cancel": cancels(),
            "limit": limits(Limit(max_running=2), "free"),
            "pause": pauses,
            "signal": signals("parent"),
        },
    ),
    Scene(
        name="homeless",
        set_up=_homeless,
        verbs={
            "claim": claims(),
            "claim in turn": claims(wait=True),
            "promote": promotes,
            "cancel": cancels(),
            "replay": replays,
            "limit": limits(WIDER),
            "settle done": settles(DONE),
            "edit": edits("stray", PUT_OFF),
        },
    ),
]
