"""Values that several routes take, with their bounds."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

__all__ = ["MAX_BATCH", "After", "Cursor", "ErrorText", "Instant", "Label", "Limit", "Wait"]

MAX_BATCH = 1000
LONGEST_WAIT = 60.0

After = Annotated[int, Meta(ge=0, le=2**63 - 1, description="Go on after this number.")]
ErrorText = Annotated[
    str, Meta(min_length=1, max_length=500, description="A text that is in the last error.")
]
Instant = Annotated[datetime, Meta(tz=True)]
Label = Annotated[str, Meta(min_length=1, max_length=200)]
Limit = Annotated[int, Meta(ge=1, le=500, description="At most so many.")]
Cursor = Annotated[
    str,
    Meta(min_length=1, max_length=2000, description="`next_cursor` of the page before."),
]
Wait = Annotated[
    float,
    Meta(
        ge=0,
        le=LONGEST_WAIT,
        description="Seconds to wait for its end; `Prefer: wait=30` says the same.",
    ),
]
