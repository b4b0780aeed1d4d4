import io

from rich.console import Console

from isolatent.experiments import Event, ReproductionDisplay


def events(experiment):
    record = {"status": "done", "error": None, "seconds": {"total": 1.0}}
    for run in experiment.runs([0]):
        yield Event("started", run)
        scores = {"unsupervised": {"linear_r2": 0.9}}
        yield Event("finished", run, record | {"scores": scores, "seed": run.seed})


def test_plain_lines_without_a_terminal(experiment, store):
    text = io.StringIO()
    with ReproductionDisplay(experiment, 1, store, console=Console(file=text)) as display:
        for event in events(experiment):
            display(event)
    first, second = text.getvalue().splitlines()
    assert first == "[1/2] first seed 0: done linear_r2 90.00 %, 1 s"
    assert second.startswith("[2/2] second")


def test_a_table_on_a_terminal(experiment, store):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100, height=40)
    with ReproductionDisplay(experiment, 1, store, console=console) as display:
        for event in events(experiment):
            display(event)
        assert display.table().row_count == 2
    assert "2 of 2 runs" in text.getvalue()


def test_quiet_is_quiet(experiment, store):
    text = io.StringIO()
    with ReproductionDisplay(experiment, 1, store, True, Console(file=text)) as display:
        for event in events(experiment):
            display(event)
    assert not text.getvalue()
