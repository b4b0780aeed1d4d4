"""The commands and their options: help, version and interruption."""

import re
import signal
import subprocess
import sys
import time

import pytest
import typer

import isolatent as iso
from isolatent.cli.app import app

COMMANDS = typer.main.get_command(app).commands


def test_version(isolatent):
    assert isolatent("--version").out.strip() == f"isolatent {iso.__version__}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_help(isolatent, command):
    assert isolatent(command, "--help").code == 0
    for parameter in COMMANDS[command].params:
        assert parameter.help, parameter.name


def test_the_help_of_a_command_fits_into_the_list_of_commands(isolatent):
    assert "..." not in isolatent("--help").out.partition("Commands:")[2]


@pytest.mark.parametrize("name", ["max_steps", "batch_size"])
def test_the_help_states_the_defaults_of_the_recipe(name):
    (option,) = (option for option in COMMANDS["fit"].params if option.name == name)
    assert re.search(r"\[default: (\d+)", option.help)[1] == str(getattr(iso.Recipe(), name))


@pytest.mark.parametrize("command", ["demo", "evaluate", "fit"])
def test_the_seed_has_a_short_name(command):
    (option,) = (option for option in COMMANDS[command].params if option.name == "random_state")
    assert option.opts == ["--random-state", "--seed"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_an_interrupt_ends_without_a_traceback():
    process = subprocess.Popen(
        [sys.executable, "-c", "from isolatent.cli import main; main()", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in background
    )
    assert "world" in process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
