"""What a person sees while training runs."""

import io

from rich.console import Console

from isolatent.training import ProgressDisplay, Step


def show(quiet=False, terminal=False):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    with ProgressDisplay(console, quiet=quiet, quality_name="R²") as display:
        for number in range(1, 101):
            quality = 0.5 if number == 50 else None
            display(Step(number, 100, 2.5, 4.43, 9.8, quality))
    return out.getvalue()


def test_plain_lines_where_there_is_no_terminal():
    lines = show().splitlines()
    assert len(lines) == 10
    assert lines[-1] == "step 100/100  loss 2.500  information ≥ 4.43 nats  scale 9.80  R² 0.500"
    assert "R²" not in lines[0]  # not measured yet


def test_a_bar_with_all_figures_on_a_terminal():
    text = show(terminal=True)
    for part in ("100/100", "loss 2.500", "4.43 nats", "R² 0.500", "left"):
        assert part in text


def test_quiet_is_quiet():
    assert show(quiet=True) == ""
