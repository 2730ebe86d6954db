"""What waits alike, and who serves it."""

import msgspec
import pytest

from holdfast.tasks.lane import Lane, Serving


def lane(**parts) -> Lane:
    return Lane(**{"queue": "mail", "type": "send", **parts})


def serving(**parts) -> Serving:
    return Serving(
        **{
            name: frozenset(value) if isinstance(value, (list, set)) else value
            for name, value in parts.items()
        }
    )


@pytest.mark.parametrize(
    ("who", "what", "serves"),
    [
        ({}, {}, True),
        ({}, {"tags": ("eu",)}, True),
        ({}, {"requires": ("gpu",)}, False),
        ({"queues": ["mail"]}, {}, True),
        ({"queues": ["other"]}, {}, False),
        ({"queues": []}, {}, False),
        ({"tags": ["eu"]}, {"tags": ("eu", "us")}, True),
        ({"tags": ["eu"]}, {"tags": ("us",)}, False),
        ({"tags": ["eu"]}, {}, True),
        ({"tags": []}, {"tags": ("us",)}, False),
        ({"tags": []}, {}, True),
        ({"capabilities": ["gpu", "big"]}, {"requires": ("gpu",)}, True),
        ({"capabilities": ["gpu"]}, {"requires": ("big", "gpu")}, False),
        ({"capabilities": ["gpu"]}, {}, True),
        ({"tenants": ["a"]}, {"tenant": "a"}, True),
        ({"tenants": ["a"]}, {"tenant": "b"}, False),
        ({"tenants": ["a"]}, {}, False),
        ({"types": [("send", "")]}, {}, True),
        ({"types": [("send", "2")]}, {}, False),
        ({"types": [("send", "2")]}, {"version": "2"}, True),
        ({"types": [("other", "")]}, {}, False),
        ({"types": []}, {}, False),
        ({"queues": ["mail"], "tenants": ["b"]}, {}, False),
    ],
)
def test_a_worker_serves_a_lane_when_every_filter_lets_it_through(who, what, serves):
    assert serving(**who).serves(lane(**what)) is serves


def test_equal_parts_are_one_lane():
    assert lane(tags=("a", "b")) == lane(tags=("a", "b"))
    assert len({lane(), lane(), lane(version="2")}) == 2


@pytest.mark.parametrize("part", Lane.__struct_fields__)
def test_every_part_makes_another_lane(part):
    other = ("x",) if part in ("tags", "requires") else "x"
    assert msgspec.structs.replace(lane(), **{part: other}) != lane()
