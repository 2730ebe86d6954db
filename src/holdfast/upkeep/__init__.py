"""Chores that every worker does now and then, each a `sweep()` that may die at any statement."""
