"""The `holdfast` command: parse, one call, render. One module for each group of commands."""

from holdfast.cli.main import main

__all__ = ["main"]
