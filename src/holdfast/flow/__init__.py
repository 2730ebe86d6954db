"""Durable functions: what they asked for is recorded, and replayed after any crash.

Knows the journal and the asyncio tasks of one function. Never claims, renews or settles.
"""
