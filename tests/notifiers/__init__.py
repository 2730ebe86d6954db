"""Hints, by whatever way they go."""
