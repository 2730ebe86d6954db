"""`holdfast completion`: what a shell needs to complete our words."""

import click

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a SHELL.

    \b
    bash: eval "$(holdfast completion bash)"          in ~/.bashrc
    zsh:  eval "$(holdfast completion zsh)"           in ~/.zshrc
    fish: holdfast completion fish | source           in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from holdfast.cli.main import main

    found = get_completion_class(shell)
    assert found
    click.echo(found(main, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
