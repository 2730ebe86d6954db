"""Groups of commands that guess what was meant."""

import difflib

import click

__all__ = ["Near"]


class Near(click.Group):
    """Names the nearest command where there is none of the name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2, cutoff=0.5)
            if not near or "Did you mean" in error.message:
                raise
            message = f"{error.message} Did you mean {' or '.join(near)}?"
            raise click.UsageError(message, ctx) from None
