"""A log has a line for each step, and goes on where a run does."""

import csv
from dataclasses import fields

import pytest

from isolatent.training import CsvLog, Step

HEADER = [field.name for field in fields(Step)]


def step(number, loss=1.5):
    return Step(number, 9, loss, None if number == 2 else 0.25, 3.0, None, 1e-17)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def write(path, numbers, **kwargs):
    with CsvLog(path) as log:
        for number in numbers:
            log(step(number, **kwargs))


def read(path):
    """The steps that a log holds."""
    header, *lines = rows(path)
    assert header == HEADER
    return [
        Step(int(a), int(b), float(c), *(None if v == "" else float(v) for v in rest))
        for a, b, c, *rest in lines
    ]


def test_what_is_logged_can_be_read_to_the_last_bit(tmp_path):
    write(tmp_path / "log.csv", [1, 2, 3], loss=0.1 + 0.2)
    assert read(tmp_path / "log.csv") == [step(number, loss=0.1 + 0.2) for number in (1, 2, 3)]


def test_each_line_is_there_at_once(tmp_path):
    """Not when the run ends: it may be killed."""
    with CsvLog(tmp_path / "log.csv") as log:
        for number in (1, 2, 3):
            log(step(number))
            assert len(rows(tmp_path / "log.csv")) == number + 1


@pytest.mark.parametrize("first", [1, 3, 6])
def test_a_resumed_run_replaces_what_was_written_beyond_its_checkpoint(tmp_path, first):
    path = tmp_path / "log.csv"
    write(path, range(1, 6), loss=1.0)
    write(path, range(first, 8), loss=2.0)
    expected = [step(n, loss=1.0) for n in range(1, first)]
    assert read(path) == [*expected, *(step(n, loss=2.0) for n in range(first, 8))]


def test_a_line_that_a_kill_cut_short_is_dropped(tmp_path):
    path = tmp_path / "log.csv"
    write(path, [1, 2, 3])
    path.write_bytes(path.read_bytes()[:-12])
    write(path, [4])
    assert [s.number for s in read(path)] == [1, 2, 4]


def test_an_empty_file_is_begun(tmp_path):
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


def test_a_file_of_someone_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"data\.csv is not a log of isolatent: it starts with"):
        write(path, [1])
    assert path.read_text() == "x,y\n1,2\n"
