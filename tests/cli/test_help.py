"""Every option says what it is for."""

import pytest
import typer

from isolatent.cli.app import app


@pytest.mark.parametrize("command", ["demo", "fit", "transform", "evaluate", "info", "report"])
def test_every_option_has_a_line_of_help(isolatent, command):
    assert isolatent(command, "--help").code == 0
    for parameter in typer.main.get_command(app).commands[command].params:
        assert parameter.help, parameter.name
