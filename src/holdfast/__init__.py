"""Durable tasks for Python: SQLite by default, PostgreSQL for many machines."""

__version__ = "0.1.0.dev0"
