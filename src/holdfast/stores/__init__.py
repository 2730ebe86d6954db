"""The one store over two databases. Knows SQL; never decides what becomes of a task."""
