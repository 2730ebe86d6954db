"""What a check found."""

from typing import Literal

import msgspec

__all__ = ["CHECKS", "Finding", "fail", "ok", "skipped", "warn"]

Status = Literal["ok", "warn", "fail", "skipped"]

CHECKS = {
    "HF101": "store",
    "HF102": "schema",
    "HF103": "clock",
    "HF104": "lease length",
    "HF105": "workers of queues",
    "HF106": "stale workers",
    "HF107": "recovery",
    "HF108": "event loops",
    "HF109": "hints",
    "HF201": "old transactions",
    "HF202": "held rows",
    "HF203": "dead rows",
    "HF301": "file system",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`code` never changes its meaning; `fix` says what to do, where something is to be done."""

    code: str
    check: str
    status: Status
    message: str
    fix: str = ""


def ok(code: str, message: str) -> Finding:
    return Finding(code=code, check=CHECKS[code], status="ok", message=message)


def warn(code: str, message: str, fix: str) -> Finding:
    return Finding(code=code, check=CHECKS[code], status="warn", message=message, fix=fix)


def fail(code: str, message: str, fix: str) -> Finding:
    return Finding(code=code, check=CHECKS[code], status="fail", message=message, fix=fix)


def skipped(code: str, why: str) -> Finding:
    return Finding(code=code, check=CHECKS[code], status="skipped", message=why)
