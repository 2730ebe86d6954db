"""Durable functions by name, and the tasks that calls of them make."""

import functools
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.errors import InvalidInput, PayloadRefused, UnknownType
from holdfast.function import Function
from holdfast.registry import Registry
from holdfast.tasks.cron import Cron
from holdfast.tasks.limits import Limit, Rate
from holdfast.tasks.retry import RetryPolicy

ROOT = Path(__file__).parents[1]


@pytest.fixture
def registry():
    return Registry()


def charge(order: int, *, queue: str = "none") -> str:
    return f"{order} {queue}"


async def refund(order: int) -> str:
    return f"back {order}"


class Shop:
    def method(self, order: int) -> None: ...

    @classmethod
    def of_class(cls, order: int) -> None: ...

    @staticmethod
    def static(order: int) -> int:
        return order


def test_a_function_is_registered_bare_and_with_options(registry):
    bare, told = registry.durable(charge), registry.durable(queue="mail", version="2")(charge)
    assert (bare.name, bare.version, bare.wishes.queue) == (
        "tests.test_registry:charge",
        "",
        "default",
    )
    assert (told.name, told.version, told.wishes.queue) == (bare.name, "2", "mail")
    assert registry.find(bare.name) is bare
    assert registry.find(bare.name, "2") is told
    assert list(registry) == [bare, told]


async def test_calling_it_runs_it_here_and_now(registry):
    assert registry.durable(charge)(7, queue="x") == "7 x"
    assert await registry.durable(refund)(7) == "back 7"


def test_it_looks_like_the_function_it_is(registry):
    vars(charge)["call"] = "hidden"
    try:
        made = registry.durable(charge)
    finally:
        del vars(charge)["call"]
    assert made.__name__ == "charge"
    assert made.__wrapped__ is charge
    assert (made.is_async, registry.durable(refund).is_async) == (False, True)
    assert made.call(5).draft().type == made.name
    assert repr(made) == "<durable tests.test_registry:charge>"


@pytest.mark.parametrize("name", ["charge", "test_registry:charge", "tests.test_registry:charge"])
def test_a_short_name_finds_what_is_unambiguous(registry, name):
    made = registry.durable(charge)
    registry.durable(refund)
    assert registry.find(name) is made


def test_an_ambiguous_or_unknown_name_is_refused_with_those_that_are_known(registry):
    registry.durable(name="a:charge")(charge)
    registry.durable(name="b:charge")(refund)
    for name in ("nothing", "", "a:charge "):
        with pytest.raises(UnknownType, match="known are: a:charge, b:charge"):
            registry.find(name)
        assert registry.full_name(name) == name
    for find in (registry.find, registry.full_name):
        with pytest.raises(UnknownType, match="'charge' could be any of a:charge, b:charge; say"):
            find("charge")
    with pytest.raises(UnknownType, match="no function is registered as 'a:charge'"):
        registry.find("a:charge", "2")


def test_a_version_need_not_be_named_where_there_is_one(registry):
    first = registry.durable(name="a:charge", version="1")(charge)
    assert registry.find("charge") is first
    assert registry.find("charge", "1") is first
    with pytest.raises(UnknownType, match="known are: a:charge@1"):
        registry.find("charge", "")  # a task that was made without a version
    registry.durable(name="a:charge", version="2")(charge)
    for name in ("charge", "a:charge"):
        with pytest.raises(UnknownType, match="could be any of a:charge@1, a:charge@2"):
            registry.find(name)
        assert registry.full_name(name) == "a:charge"
    plain = registry.durable(name="a:charge")(charge)
    assert registry.find("a:charge") is plain


def test_what_is_not_here_is_looked_for_below(registry):
    below = registry.durable(charge)
    app = Registry(registry)
    own = app.durable(refund)
    assert app.find("charge") is below
    assert app.find("refund") is own
    assert len(list(app)) == 2
    with pytest.raises(UnknownType):
        registry.find("refund")


def test_two_functions_of_one_name_are_refused_and_both_are_shown(registry):
    registry.durable(name="pay")(charge)
    with pytest.raises(InvalidInput, match=r"charge \(.*\) and .*refund \(.*another name="):
        registry.durable(name="pay")(refund)
    again = registry.durable(name="pay")(charge)  # a module that was loaded anew
    assert registry.find("pay") is again


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 201, "a\0", "-a"])
def test_a_bad_name_is_refused(registry, name):
    if name:
        with pytest.raises(InvalidInput, match="is not a name"):
            registry.durable(name=name)(charge)


def counting():
    yield 1


async def counting_async():
    yield 1


NO_FUNCTIONS = {
    "a number": (5, "write @durable"),
    "a method": (Shop.method, "is a method"),
    "a bound method": (Shop().method, "is a method"),
    "a class method": (Shop.of_class, "is a method"),
    "a partial": (functools.partial(charge, 1), "no function with a name of its own"),
    "a generator": (counting, "is a generator"),
    "an async generator": (counting_async, "is a generator"),
    "a durable function": (Registry().durable(charge), "is durable already"),
}


@pytest.mark.parametrize("what", NO_FUNCTIONS)
def test_what_a_worker_could_not_call_is_refused_where_it_stands(registry, what):
    function, said = NO_FUNCTIONS[what]
    with pytest.raises(InvalidInput, match=said):
        registry.durable(function)


def test_a_static_method_is_a_function(registry):
    made = registry.durable(Shop.static)
    assert made.name == "tests.test_registry:Shop.static"
    assert registry.durable(staticmethod(charge))(5) == "5 none"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "a b"}, "queue 'a b' is not a name"),
        ({"tags": "x"}, "must be a list of names"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"timeout": "soon"}, "timeout 'soon' is not a span"),
        ({"timeout": 0}, "timeout must be longer than nothing"),
        ({"expires": -1}, "expires must not be negative"),
        ({"expires": 0}, "expires must be longer than nothing"),
        ({"idempotent": "yes"}, "idempotent is True or False, not 'yes'"),
        ({"fenced": 1}, "fenced is True or False, not 1"),
        ({"idempotency_key_func": "x"}, "idempotency_key_func is a function"),
        ({"rate_limit": "fast"}, "rate 'fast'"),
        ({"max_concurrent": 0}, "max_concurrent must be a whole number from 1"),
        ({"max_concurrent": "5"}, "max_concurrent must be a whole number from 1"),
        ({"concurrency_key": "order"}, "give max_concurrent too"),
        ({"max_tries": 0}, "max_tries must be a whole number from 1 to 32000, got 0"),
        ({"max_tries": "a"}, "max_tries must be a whole number from 1 to 32000, got 'a'"),
        ({"max_tries": True}, "max_tries must be a whole number"),
        ({"version": 2}, "version 2 is not a name"),
        ({"max_concurrent_total": 5}, "goes with a concurrency_key"),
        ({"concurrency_key": "nobody", "max_concurrent": 1}, "is no argument of charge"),
        ({"isolation": "thread"}, "isolation is 'process' or nothing"),
        ({"memory_limit": 2**30}, "only with isolation='process'"),
        ({"cpu_limit": 1}, "only with isolation='process'"),
        ({"memory_limit": 1000, "isolation": "process"}, "memory_limit is in bytes"),
        ({"cpu_limit": 0, "isolation": "process"}, "cpu_limit is in seconds"),
        ({"retry_policy": 5}, "retry_policy must be a RetryPolicy"),
        ({"version": "a b"}, "version 'a b' is not a name"),
    ],
)
def test_options_that_cannot_be_kept_are_refused_where_they_are_written(registry, options, said):
    with pytest.raises(InvalidInput, match=said):
        registry.durable(**options)(charge)
    assert list(registry) == []


def test_an_option_that_does_not_exist_is_refused(registry):
    with pytest.raises(InvalidInput, match=r"charge does not know que; it takes cached, .*queue"):
        registry.durable(que="mail")(charge)


def test_a_limit_counts_for_each_value_of_its_key(registry):
    plain = registry.durable(max_concurrent=5, rate_limit="100/m")(charge)
    assert plain.traits.limit == Limit(max_running=5, rate=Rate.parse("100/m"))
    keyed = registry.durable(
        name="keyed", max_concurrent=2, max_concurrent_total=9, concurrency_key="order"
    )(charge)
    assert keyed.traits.limit == Limit(max_running=9, max_per_key=2)
    assert registry.durable(name="free")(charge).traits.limit is None


def test_a_call_makes_a_task_of_what_its_function_wishes(registry):
    policy = RetryPolicy(max_attempts=7)
    made = registry.durable(
        queue="mail", tags=["b", "a", "b"], requires=["gpu"], priority=5, version="2",
        max_tries=4, expires="1h", retry_policy=policy,
    )(charge)  # fmt: skip
    draft = made.call(7).draft()
    assert (draft.type, draft.version, draft.queue) == (made.name, "2", "mail")
    assert (draft.tags, draft.requires, draft.priority) == (("a", "b"), ("gpu",), 5)
    assert (draft.max_tries, draft.expires, draft.retry) == (4, timedelta(hours=1), policy)
    assert json.loads(draft.payload) == {"args": [7], "kwargs": {}}
    assert made.call(7).draft().id != draft.id


def test_options_are_for_one_task_and_never_mix_with_arguments(registry):
    made = registry.durable(queue="mail", tags=["a"], priority=5)(charge)
    other = made.options(queue="vip", delay="5m", tenant="acme", tags=[], idempotency_key="k")
    draft = other.call(7, queue="mine").draft()
    assert (draft.queue, draft.delay, draft.tenant) == ("vip", timedelta(minutes=5), "acme")
    assert (draft.tags, draft.priority, draft.key) == ((), 5, "k")
    assert json.loads(draft.payload) == {"args": [7], "kwargs": {"queue": "mine"}}
    assert made.call(7).draft().queue == "mail"
    assert other.options(priority=0).call(7).draft().queue == "vip"
    assert registry.find("charge") is made
    with pytest.raises(TypeError):
        made.options(7)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": ""}, {"tags": ["a b"]}, {"priority": 10**6}, {"tenant": "a b"},
        {"delay": "soon"}, {"delay": -1}, {"expires": "x"}, {"idempotency_key": ""},
    ],
)  # fmt: skip
def test_bad_options_are_refused_where_they_are_written(registry, options):
    with pytest.raises(InvalidInput):
        registry.durable(charge).options(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"run_at": datetime(2024, 1, 1)},  # noqa: DTZ001
        {"run_at": datetime(2024, 1, 1, tzinfo=UTC), "delay": 5},
        {"max_tries": 0},
        {"unique": "sometimes"},
    ],
)
def test_the_rest_is_refused_when_the_task_is_made(registry, options):
    with pytest.raises(InvalidInput):
        registry.durable(charge).options(**options).call(7).draft()


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), (("x",), {}), ((1, 2), {}), ((1,), {"z": 1})]
)
def test_a_bad_call_fails_in_the_caller(registry, args, kwargs):
    with pytest.raises(InvalidInput, match=r"charge\(order: int"):
        registry.durable(charge).call(*args, **kwargs).draft()


def test_what_has_no_form_as_json_fails_in_the_caller(registry):
    def anything(what):
        return what

    with pytest.raises(PayloadRefused):
        registry.durable(anything).call(object()).draft()


def test_an_idempotent_function_has_one_key_for_equal_calls(registry):
    made = registry.durable(idempotent=True)(charge)
    key = made.call(7, queue="x").draft().key
    assert key == made.call(queue="x", order=7).draft().key
    assert key != made.call(8, queue="x").draft().key
    assert made.options(idempotency_key="mine").call(7).draft().key == "mine"
    assert registry.durable(name="c")(charge).call(7).draft().key is None


def test_names_that_begin_alike_do_not_share_keys(registry):
    long = "n" * 190
    one = registry.durable(name=f"{long}:a", idempotent=True)(charge)
    two = registry.durable(name=f"{long}:b", idempotent=True)(charge)
    assert one.call(7).draft().key != two.call(7).draft().key


def test_a_key_can_be_made_of_the_arguments(registry):
    made = registry.durable(idempotency_key_func=lambda order, **_: f"order-{order}")(charge)
    assert made.call(7, queue="x").draft().key == "order-7"
    bad = registry.durable(name="bad", idempotency_key_func=lambda order: "")(charge)
    with pytest.raises(InvalidInput, match="idempotency key"):
        bad.call(7).draft()


@pytest.mark.parametrize(
    ("given", "key"), [("acme", "acme"), (5, "5"), (None, "null"), ([1, 2], "[1,2]")]
)
def test_the_concurrency_key_is_an_argument_however_it_was_given(registry, given, key):
    def sync(n, customer="acme"): ...

    made = registry.durable(concurrency_key="customer", max_concurrent=1)(sync)
    assert made.call(1, given).draft().concurrency_key == key
    assert made.call(n=1, customer=given).draft().concurrency_key == key
    assert made.call(1).draft().concurrency_key == "acme"


def test_functions_are_of_one_class(registry):
    assert isinstance(registry.durable(charge).options(queue="x"), Function)


PROGRAM = """
import sys
from holdfast.registry import functions, durable

@durable
def charge() -> None: ...

@durable(name="named")
def other() -> None: ...

if __name__ == "__main__":
    print(charge.name, other.name)
    import orders  # somebody imports the program as a module, too
    print(len(list(functions)), functions.find("charge").name)
"""


def program(*args: str, cwd: Path, stdin: str | None = None) -> str:
    path = os.pathsep.join(map(str, [ROOT / "src", cwd]))
    ended = subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stderr == ""
    return ended.stdout


def test_a_program_gives_its_functions_the_name_of_its_file(tmp_path):
    (tmp_path / "orders.py").write_text(PROGRAM)
    shown = "orders:charge named\n2 orders:charge\n"
    assert program("orders.py", cwd=tmp_path) == shown
    assert program("-m", "orders", cwd=tmp_path) == shown


def test_a_program_in_a_package_gives_them_its_full_name(tmp_path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "orders.py").write_text(PROGRAM.replace("import orders", "import shop.orders"))
    shown = "shop.orders:charge named\n2 shop.orders:charge\n"
    assert program("-m", "shop.orders", cwd=tmp_path) == shown
    (package / "__main__.py").write_text(
        "from holdfast.registry import durable\n@durable\ndef f(): ...\nprint(f.name)"
    )
    assert program("-m", "shop", cwd=tmp_path) == "shop.__main__:f\n"


def test_a_prompt_gives_them_the_name_main(tmp_path):
    (tmp_path / "orders.py").touch()
    assert program("-c", PROGRAM, cwd=tmp_path) == "__main__:charge named\n2 __main__:charge\n"
    assert program("-", cwd=tmp_path, stdin=PROGRAM).startswith("__main__:charge named\n")


def test_a_function_that_runs_by_the_clock_says_when_and_needs_nothing():
    registry = Registry()

    @registry.durable(cron="0 9 * * MON-FRI", timezone="Europe/Berlin")
    def report(kind: str = "short", *rest: int, **more: int) -> None: ...

    assert report.traits.cron == Cron("0 9 * * MON-FRI", "Europe/Berlin")
    with pytest.raises(InvalidInput, match=r"give 'kind' of .* a default"):

        @registry.durable(cron="0 9 * * *")
        def needy(kind: str) -> None: ...

    with pytest.raises(InvalidInput, match="cannot be read"):
        registry.durable(cron="at nine")(lambda: None)
    with pytest.raises(InvalidInput, match="give cron= too"):
        registry.durable(timezone="Europe/Berlin")(lambda: None)


def test_one_version_of_a_function_runs_by_the_clock():
    registry = Registry()
    registry.durable(name="f", version="1")(lambda: None)
    registry.durable(name="f", version="2", cron="@daily")(lambda: None)
    with pytest.raises(InvalidInput, match="two versions of 'f' have a cron, '2' and '3'"):
        registry.durable(name="f", version="3", cron="@hourly")(lambda: None)
