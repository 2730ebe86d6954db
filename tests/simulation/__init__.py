"""Deterministic simulation: one seed, one history, over the real store on SQLite in memory.

One process, a clock that only the simulator moves, a scheduler that draws from the seed who goes
next. Every call to the database is a place where a process may crash, stop, lose the answer or be
overtaken. A ledger beside the database knows what each call may change, and checks it after each.

    python -m tests.simulation --seeds 2000
    python -m tests.simulation --seed 17 --verbose
"""
