"""Connections that callers bring along, of several libraries. Imports none of those libraries."""
