"""What a person sees while training runs."""

import io

from rich.console import Console

from isolatent.training import ProgressDisplay, Step


def show(quiet=False, terminal=False, pause=0.0, first=1):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=180)
    with ProgressDisplay(console, quiet=quiet, quality_name="R²", pause=pause) as display:
        for number in range(first, 101):
            quality, held_out = (0.5, 2.25) if number == 50 else (None, None)
            display(Step(number, 100, 2.5, 4.43, 9.8, quality, held_out))
    return out.getvalue()


def test_plain_lines_where_there_is_no_terminal():
    lines = show().splitlines()
    assert len(lines) == 100
    figures = "loss 2.500  information ≥ 4.43 nats  scale 9.80  held-out loss 2.250  R² 0.500"
    assert lines[-1] == f"step 100 of at most 100  {figures}  at most 0:00 left"
    assert "R²" not in lines[0]  # not measured yet


def test_plain_lines_are_few():
    assert len(show(pause=3600.0).splitlines()) == 1


def test_a_resumed_run_is_shown_from_where_it_goes_on():
    assert show(first=99).splitlines()[0].startswith("step 99 of at most 100")


def test_a_bar_with_all_figures_on_a_terminal():
    text = show(terminal=True)
    for part in ("100", "loss 2.500", "4.43 nats", "R² 0.500", "left"):
        assert part in text


def test_quiet_is_quiet():
    assert show(quiet=True) == ""
