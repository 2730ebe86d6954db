"""Verbs of several statements, run inside one write transaction. Guards stand in the SQL."""
