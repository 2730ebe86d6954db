"""The HTTP face: parse, one call at the desk, render. Knows no SQL and decides nothing; needs the
`server` extra. `app.asgi()` makes it."""
