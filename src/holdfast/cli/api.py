"""`holdfast api`: the HTTP API of a store."""

import sys
from typing import Any

import click

from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import app_option, store_option

__all__ = ["api"]


@click.command()
@app_option
@store_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option("--log-json", is_flag=True, help="Write the log as JSON, one object a line.")
def api(**given: Any) -> None:
    """Serve the HTTP API until Ctrl-C or SIGTERM.

    Closed by default: without a key (HOLDFAST_API_KEY, or HOLDFAST_API_KEY_FILE) it answers this
    machine only, and refuses to listen elsewhere. With --app it knows that app's functions and
    checks the arguments of new tasks; without one they must say allow_unknown.
    """
    from holdfast.app.faces import face
    from holdfast.cli.loading import app_at, apply
    from holdfast.cli.serving import run_loop
    from holdfast.cli.worker import log_to_stderr
    from holdfast.errors import InvalidInput

    log_to_stderr(given["log_level"], as_json=given["log_json"], redact=apply().redact)
    app = app_at(given["store"], given["app_name"])
    serving = face("serving")

    async def serve() -> int:
        try:
            await serving.check_bind(app.asgi(), given["host"])
        except InvalidInput as error:
            raise Stop(Exit.REFUSED, str(error)) from None
        await app.home.client()  # a store that cannot be reached is told at once
        started = await serving.serve(
            app,
            host=given["host"],
            port=given["port"],
            ready=lambda address: click.echo(f"api is ready: {address}, store {app.home.name}"),
        )
        return Exit.OK if started else Exit.FAILED

    sys.exit(run_loop(serve()))
