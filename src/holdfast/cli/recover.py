"""`holdfast recover`: what dead workers held, back into its queues."""

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.render import say

__all__ = ["recover"]


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show which leases have lapsed.")
@asks
def recover(at: Asking, dry_run: bool) -> None:
    """Take back now what workers held that stopped renewing.

    Workers do so by themselves all the time; with none alive, this does it. A lease that is still
    renewed is left alone. Prints the ids of the tasks.
    """
    run = at.ask(lambda desk: desk.recover(dry_run=dry_run))
    if not at.out.for_people:
        at.out.one(run, lambda _: ())
        return
    for task in run.task_ids:
        at.out.line(str(task))
    if dry_run:
        say(f"{run.recovered} would be taken back; nothing was changed")
        return
    dead = (
        f", {run.dead_lettered} of them had no try left: dead letters" if run.dead_lettered else ""
    )
    say(f"{run.recovered} taken back in {run.took_ms:.0f} ms{dead}")
