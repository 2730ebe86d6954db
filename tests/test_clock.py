"""Clocks: the real one never mixes up its two times, the manual one moves only when it is moved."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import clock
from holdfast.clock import Clock, ManualClock, SystemClock


def test_the_wall_clock_counts_microseconds_since_1970():
    before, now, after = time.time_ns(), SystemClock().wall(), time.time_ns()
    assert before // 1000 <= now <= after // 1000


def test_boot_time_never_goes_back():
    system = SystemClock()
    readings = [system.boot() for _ in range(1000)]
    assert readings == sorted(readings)


def test_boot_time_does_not_follow_the_wall_clock(monkeypatch: pytest.MonkeyPatch):
    system = SystemClock()
    before = system.boot()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert system.wall() == 0
    assert 0 <= system.boot() - before < 60_000_000


def test_one_boot_has_one_name():
    assert SystemClock().boot_id == SystemClock().boot_id
    assert len(SystemClock().boot_id) >= 16


@pytest.fixture
def no_name_for_the_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(clock, "_LINUX", tmp_path / "missing")
    clock._boot.cache_clear()
    yield
    clock._boot.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ask elsewhere")
def test_where_the_boot_has_no_name_leases_are_judged_by_wall_time(
    no_name_for_the_boot: None, monkeypatch: pytest.MonkeyPatch
):
    system = SystemClock()
    monkeypatch.setattr(time, "time_ns", lambda: 7_000)
    assert system.boot() == system.wall() == 7
    assert system.boot_id == SystemClock().boot_id


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """A kernel that names its boot; what was asked of it."""
    asked: list[bytes] = []

    def sysctl(name: bytes) -> str:
        asked.append(name)
        return "3F0C7A52-8A0B-4D1C-9D1E-0C5E5A3B1F77\n"

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(clock, "_sysctl", sysctl)
    clock._boot.cache_clear()
    yield asked
    clock._boot.cache_clear()


def test_on_a_mac_the_kernel_names_the_boot_whatever_the_clocks_say(
    on_a_mac: list[bytes], monkeypatch: pytest.MonkeyPatch
):
    name = SystemClock().boot_id
    assert name == "3F0C7A52-8A0B-4D1C-9D1E-0C5E5A3B1F77"
    clock._boot.cache_clear()
    monkeypatch.setattr(time, "time", lambda: 90.0)  # stepped by NTP
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)  # stood still while it slept
    assert SystemClock().boot_id == name
    assert SystemClock().boot_id == name
    assert on_a_mac == [b"kern.bootsessionuuid"] * 2


def test_a_kernel_that_does_not_answer_names_nothing(
    on_a_mac: list[bytes], monkeypatch: pytest.MonkeyPatch
):
    def refused(name: bytes) -> str:
        raise PermissionError(name)

    monkeypatch.setattr(clock, "_sysctl", refused)
    assert clock._boot() is None


@pytest.mark.parametrize("platform", ["win32", "freebsd14"])
def test_where_no_kernel_names_the_boot_its_name_never_changes(
    platform: str, on_a_mac: list[bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "platform", platform)
    before = SystemClock().boot_id
    clock._boot.cache_clear()
    monkeypatch.setattr(time, "time_ns", lambda: 9_000)
    assert (SystemClock().boot_id, SystemClock().boot()) == (before, 9)
    assert on_a_mac == []


def test_importing_reads_nothing(tmp_path: Path):
    code = (
        "import pathlib\n"
        "def refused(*_, **__): raise AssertionError('read at import')\n"
        "pathlib.Path.read_text = refused\n"
        "import holdfast.clock\n"
        "holdfast.clock.SystemClock()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_machines_without_boot_time_use_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock, "_BOOTTIME", None)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 7_000)
    assert SystemClock().boot() == 7


def test_a_manual_clock_stands_still():
    manual = ManualClock(wall=10, boot=5)
    assert [(manual.wall(), manual.boot()) for _ in range(3)] == [(10, 5)] * 3


def test_letting_time_pass_moves_both_times():
    manual = ManualClock(wall=10, boot=5)
    manual.advance(1.5)
    assert (manual.wall(), manual.boot()) == (1_500_010, 1_500_005)


def test_setting_the_wall_clock_leaves_boot_time_alone():
    manual = ManualClock(wall=10, boot=5)
    manual.set_wall(0)
    assert (manual.wall(), manual.boot()) == (0, 5)


def test_a_reboot_starts_a_new_boot_time_under_a_new_name():
    manual = ManualClock(wall=10, boot=5)
    before = manual.boot_id
    manual.reboot()
    assert manual.boot_id != before
    assert (manual.wall(), manual.boot()) == (10, 0)


def test_both_clocks_keep_the_promise():
    clocks: list[Clock] = [SystemClock(), ManualClock()]
    assert all(isinstance(c.boot_id, str) and c.wall() > 0 and c.boot() > 0 for c in clocks)
