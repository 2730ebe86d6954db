"""A worker: claim, run, rest, drain. Knows its promises only, never a database or a broker."""
