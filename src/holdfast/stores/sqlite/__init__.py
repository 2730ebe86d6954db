"""SQLite through apsw: one file, one writer at a time, every process its own clock."""
