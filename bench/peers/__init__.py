"""Holdfast beside other task queues: the same tasks, the same ledger, one table."""
