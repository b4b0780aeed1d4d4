"""Steps as tensors, the progress display, and the log file of a training run."""

import csv
import io
import re
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from rich.console import Console

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.diagnosis.held_out import refit
from isolatent.training import (
    CsvLog,
    LoggerLog,
    ProgressDisplay,
    Step,
    progress,
    tensorboard_log,
)
from isolatent.training.progress import steps_from_tensor, steps_to_tensor

HEADER = [field.name for field in fields(Step)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_steps_survive_a_tensor(count):
    steps = [
        Step(number, 9, 0.1 + 0.2, None if number == 2 else 0.25, 3.0, None, 1e-17)
        for number in range(1, count + 1)
    ]
    assert steps_from_tensor(steps_to_tensor(steps)) == steps


# --- The progress display.


def show(quiet=False, terminal=False, pause=0.0, first=1):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=180)
    with ProgressDisplay(console, quiet=quiet, quality_name="R²", pause=pause) as display:
        for number in range(first, 101):
            quality, held_out = (0.5, 2.25) if number == 50 else (None, None)
            display(Step(number, 100, 2.5, 4.43, 9.8, quality, held_out))
    return out.getvalue()


def test_plain_lines_are_printed_without_a_terminal():
    lines = show().splitlines()
    assert len(lines) == 100
    figures = "loss 2.500  information ≥ 4.43 nats  scale 9.80  held-out loss 2.250  R² 0.500"
    assert lines[-1] == f"step 100 of at most 100  {figures}  at most 0:00 left"
    assert "R²" not in lines[0]  # not measured yet


def test_figures_that_stand_side_by_side_are_comparable():
    """Bounds on information are, losses on different numbers of candidates are not."""
    out = io.StringIO()
    with ProgressDisplay(Console(file=out, width=180), pause=0.0) as display:
        display(Step(1, 9, 2.0, 4.9, None, None, 3.6, 4.5))
        display(Step(2, 9, 2.0, None, None, None, 3.5, None))  # another objective
    first, second = out.getvalue().splitlines()
    assert "information ≥ 4.90 nats  held-out information ≥ 4.50 nats" in first
    assert "held-out loss" not in first
    assert ("held-out loss 3.500" in second, "held-out information" in second) == (True, False)


def test_time_left_is_not_extrapolated_to_steps_that_are_hardly_ever_made(monkeypatch):
    """Most fits end when the held-out loss levels off, which lowers the total."""
    clock = iter(np.arange(0.0, 1e5, 11.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))

    def shown(totals, terminal):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=180)
        with ProgressDisplay(console, pause=0.0) as display:
            for number, total in enumerate(totals, 1):
                display(Step(number, total, 2.5, None, None))
        return out.getvalue()

    for terminal in (False, True):
        text = shown([50_000, 50_000], terminal)
        assert "ends when the held-out loss levels off" in text
        assert "left" not in text
        text = shown([50_000, 500], terminal)  # it has levelled off
        assert re.search(r"at most \d:\d\d:\d\d left", text)


def test_plain_lines_have_a_pause_between_them():
    assert len(show(pause=3600.0).splitlines()) == 1


def test_the_display_of_a_resumed_run_starts_at_its_first_step():
    assert show(first=99).splitlines()[0].startswith("step 99 of at most 100")


def test_a_terminal_has_a_bar_with_all_figures():
    text = show(terminal=True)
    for part in ("100", "loss 2.500", "4.43 nats", "R² 0.500", "left"):
        assert part in text


def test_a_quiet_display_prints_nothing():
    assert show(quiet=True) == ""


# --- The log file.


def step(number, loss=1.5, **changes):
    measured = Step(number, 9, loss, None if number == 2 else 0.25, 3.0, None, 1e-17)
    return replace(measured, **changes)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def write(path, numbers, **kwargs):
    with CsvLog(path) as log:
        for number in numbers:
            log(step(number, **kwargs))


def read(path):
    """Return the steps of a log."""
    header, *lines = rows(path)
    assert header == HEADER
    return [
        Step(int(a), int(b), float(c), *(None if v == "" else float(v) for v in rest))
        for a, b, c, *rest in lines
    ]


def test_a_log_of_a_version_with_fewer_columns_is_continued(tmp_path):
    path = tmp_path / "log.csv"
    write(path, [1, 2])
    lines = [",".join(line[:-1]) for line in rows(path)]
    path.write_text("\n".join(lines) + "\n")
    write(path, [3])
    assert [one.number for one in read(path)] == [1, 2, 3]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log.csv"]


def test_tables_of_a_version_with_fewer_columns_are_read():
    table = steps_to_tensor([step(1), step(2)])
    assert steps_from_tensor(table[:, :-1]) == [step(1), step(2)]


def test_logged_numbers_are_exact(tmp_path):
    write(tmp_path / "log.csv", [1, 2, 3], loss=0.1 + 0.2)
    assert read(tmp_path / "log.csv") == [step(number, loss=0.1 + 0.2) for number in (1, 2, 3)]


def test_each_line_is_written_at_once(tmp_path):
    """A run may be killed before it ends."""
    with CsvLog(tmp_path / "log.csv") as log:
        for number in (1, 2, 3):
            log(step(number))
            assert len(rows(tmp_path / "log.csv")) == number + 1


@pytest.mark.parametrize("first", [1, 3, 6])
def test_a_resumed_run_replaces_the_lines_after_its_checkpoint(tmp_path, first):
    path = tmp_path / "log.csv"
    write(path, range(1, 6), loss=1.0)
    write(path, range(first, 8), loss=2.0)
    expected = [step(n, loss=1.0) for n in range(1, first)]
    assert read(path) == [*expected, *(step(n, loss=2.0) for n in range(first, 8))]


def test_a_truncated_line_is_dropped(tmp_path):
    path = tmp_path / "log.csv"
    write(path, [1, 2, 3])
    path.write_bytes(path.read_bytes()[:-12])
    write(path, [4])
    assert [s.number for s in read(path)] == [1, 2, 4]


def test_an_empty_file_gets_a_header(tmp_path):
    path = tmp_path / "log.csv"
    path.touch()
    write(path, [1])
    assert [s.number for s in read(path)] == [1]


def test_nothing_is_written_before_the_first_step(tmp_path):
    with CsvLog(tmp_path / "log.csv"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_log_is_closed_when_a_run_fails(tmp_path):
    log = CsvLog(tmp_path / "log.csv")

    def fail():
        with log:
            log(step(1))
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert log._file.closed
    assert [s.number for s in read(tmp_path / "log.csv")] == [1]


@pytest.mark.parametrize("other", ["x,y\n1,2\n", "number,total\n", "\0\n", "\n\n"])
def test_other_files_are_moved_aside(tmp_path, other):
    path = tmp_path / "log.csv"
    (tmp_path / "log.csv.1").write_text("earlier")
    path.write_text(other)
    with pytest.warns(IsolatentWarning, match=r"is not a log .* renamed to log\.csv\.2"):
        write(path, [1])
    assert (tmp_path / "log.csv.2").read_text() == other
    assert [s.number for s in read(path)] == [1]


def test_a_log_that_was_cut_or_changed_anywhere_is_continued(tmp_path):
    """Cut after each byte, and with each of some bytes in each place."""
    path = tmp_path / "log.csv"
    write(path, [1, 2])
    intact = path.read_bytes()
    header = intact.index(b"\n") + 1
    for length in range(len(intact)):
        path.write_bytes(intact[:length])
        write(path, [3])
        found = read(path)
        assert found[-1].number == 3
        assert len(found) == 1 + intact[header:length].count(b"\n")
    for place in range(header, len(intact)):
        for byte in b'\0,\n"x\xff-':
            path.write_bytes(intact[:place] + bytes([byte]) + intact[place + 1 :])
            write(path, [3])
            assert read(path)[-1].number == 3


def test_steps_are_passed_to_any_logger(tmp_path):
    seen, ended = [], []

    class Logger:
        def log_metrics(self, metrics, step):
            seen.append((step, metrics))

        def finalize(self, status):
            ended.append(status)

    with LoggerLog(Logger()) as log:
        log(step(4, held_out=0.25))
    assert seen[0][0] == 4
    assert seen[0][1]["held_out"] == 0.25
    assert "total" not in seen[0][1]
    assert None not in seen[0][1].values()
    assert ended == ["success"]
    with pytest.raises(TypeError, match="logger must be a logger of lightning-fabric"):
        LoggerLog(3)


def test_a_resumed_run_continues_its_log_for_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for numbers, loss in ((range(1, 6), 1.0), (range(3, 8), 2.0)):
        with tensorboard_log(tmp_path / "log") as log:
            for number in numbers:
                log(step(number, loss=loss))
    events = accumulator.EventAccumulator(str(tmp_path / "log"))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss")]
    assert found == [(n, 1.0 if n < 3 else 2.0) for n in range(1, 8)]


def test_a_bound_below_zero_is_not_shown():
    out = io.StringIO()
    with ProgressDisplay(Console(file=out), pause=0) as display:
        display(step(1, information=-18.2))
    assert "information ≥ 0.00 nats" in out.getvalue()


# --- The line in a notebook.


class Shell:
    kernel = object()


class FakeNotebook:
    """IPython as a notebook has it; keeps what is shown, and how often it was updated."""

    def __init__(self, shell):
        self.get_ipython = lambda: shell
        self.shown, self.updates = [], 0

    def display(self, data, raw, display_id):
        assert (raw, display_id) == (True, True)
        self.shown.append(data["text/plain"])
        return self

    def update(self, data, raw):
        assert raw
        self.shown[-1] = data["text/plain"]
        self.updates += 1


@pytest.fixture
def notebook(monkeypatch):
    fake = FakeNotebook(Shell())
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    return fake


def steps_of(count, total=None):
    return [Step(k, total or count, 1 / k, None, None) for k in range(1, count + 1)]


def test_a_long_fit_shows_one_line_in_a_notebook(notebook, monkeypatch):
    clock = iter(np.arange(0, 1000, 0.1))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    line = progress.follow(progress.ignore_step)
    for step in steps_of(200, 300):
        line(step)
    assert len(notebook.shown) == 1
    assert re.fullmatch(
        r"step 19\d of at most 300  loss 0.005  at most 0:10 left", notebook.shown[0]
    )
    assert notebook.updates < 40  # two a second
    line(Step(201, 201, 0.5, None, None, held_out=2.0))
    assert notebook.shown == ["trained 201 steps in 0:20  loss 0.500  held-out loss 2.000"]


def test_a_short_fit_shows_nothing_in_a_notebook(notebook):
    x = np.random.default_rng(0).normal(size=(60, 2)).cumsum(axis=0)
    recipe = iso.Recipe(max_steps=3, batch_size=16, warmup=1)
    iso.ContrastiveICA(2, space="box", n_init=1, recipe=recipe, random_state=0).fit(x)
    assert notebook.shown == []


def test_fits_are_followed_unless_something_else_does(notebook, monkeypatch):
    monkeypatch.setattr(progress.NotebookLine.__init__, "__defaults__", (0.0, 0.0))
    x = np.random.default_rng(0).normal(size=(60, 2)).cumsum(axis=0)
    recipe = iso.Recipe(max_steps=3, batch_size=16, warmup=1)
    model = iso.ContrastiveICA(2, space="box", n_init=1, recipe=recipe, random_state=0)
    model.fit(x, on_step=lambda step: None)
    assert notebook.shown == []
    model.fit(x)
    assert [line[:15] for line in notebook.shown] == ["trained 3 steps"]
    refit(model, iso.SeriesPairs(x), 1)  # one of the many runs of a diagnosis
    assert len(notebook.shown) == 1


@pytest.mark.parametrize("shell", [None, object()])
def test_nothing_is_shown_outside_of_a_notebook(monkeypatch, shell):
    monkeypatch.setitem(sys.modules, "IPython", FakeNotebook(shell))
    assert progress.follow(progress.ignore_step) is progress.ignore_step
