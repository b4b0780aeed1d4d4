"""The command ``isolatent``."""

from isolatent.cli.app import main

__all__ = ["main"]
