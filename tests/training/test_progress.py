"""Steps as tensors, the progress display, and the log file of a training run."""

import csv
import io
from dataclasses import fields, replace

import pytest
from rich.console import Console

from isolatent.checks import IsolatentWarning
from isolatent.training import CsvLog, LoggerLog, ProgressDisplay, Step, tensorboard_log
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
