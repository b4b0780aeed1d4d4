"""The command ``isolatent``; each module adds its subcommands, in the order of the help."""

# isort: skip_file
from isolatent.cli import demo, choice, fit, watch, model, experiments  # noqa: F401
from isolatent.cli.app import main

__all__ = ["main"]
