"""One value as text."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.cells import Cells, csv_cell, plain_json, safe, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"), (0.0853, "85 ms"), (4.24, "4.2s"), (9.94, "9.9s"), (41.4, "41s"),
        (59.6, "1m"), (192, "3m 12s"), (3600, "1h"), (18_120, "5h 2m"), (90_000, "1d 1h"),
        (12 * 86_400, "12d"), (-5, "-5.0s"),
    ],
)  # fmt: skip
def test_spans_are_written_short(seconds: float, text: str):
    assert span(seconds) == text


def test_what_a_terminal_would_obey_is_written_out():
    assert safe("a\x1b[2Jb\x9bc\x07\u202ed") == r"a\x1b[2Jb\x9bc\x07\u202ed"
    assert safe("a\nb", keep="\n") == "a\nb"
    assert Cells(relative=False).text("a\n\tb\x00") == r"a b\x00"


def test_json_for_a_terminal_means_the_same_to_programs():
    value = {"a": "\x1b[2J \x9b \u2028 \u202e é"}
    text = plain_json(value)
    assert json.loads(text) == value
    assert text.replace("é", "").isascii()


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_a_spreadsheet_does_not_calculate_texts(text: str):
    assert csv_cell(text) == f"'{text}"
    assert csv_cell(-1.5) == "-1.5"


def test_instants_are_told_from_now_or_exactly():
    now = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    relative, exact = Cells(relative=True, now=now), Cells(relative=False, now=now)
    assert relative.when(now - timedelta(seconds=41)) == "41s ago"
    assert relative.when(now + timedelta(minutes=5)) == "in 5m"
    assert relative.when(now) == "now"
    assert exact.when(now) == "2030-01-02T03:04:05.000Z"
