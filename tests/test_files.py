"""A file is written whole or not at all, by whoever writes one."""

import os

import pytest

from isolatent.cli.output import write_json
from isolatent.experiments import Row, find_experiment
from isolatent.experiments.store import Store
from isolatent.files import whole_file, write_whole
from isolatent.report import Page, plots, write_report


def test_a_failure_leaves_what_was_there_and_nothing_beside_it(tmp_path):
    target = tmp_path / "a.json"
    target.write_text("before")

    def interrupted():
        with whole_file(target) as partial:
            partial.write_text("half of")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "text"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)


def test_what_is_half_written_is_not_found_as_a_result(tmp_path):
    with whole_file(tmp_path / "a.json") as partial:
        partial.write_text("{")
        assert not list(tmp_path.glob("*.json"))


ROW = Row("own", "a", "unsupervised", "mcc", 90.0, None, "mean", 1, 1, None, None, None, "")


@pytest.mark.parametrize("kind", ["record", "json", "page", "figure"])
def test_every_writer_cleans_up_when_the_disk_fails_it(kind, tmp_path, monkeypatch):
    """The last step fails: every byte is there, but the file may not take its place."""
    if kind == "figure":
        pytest.importorskip("matplotlib")

    def full(*about):
        raise OSError("no space left on the device")

    (run,) = find_experiment("quick").runs([0])[:1]
    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space"):
        {
            "record": lambda: Store(tmp_path).write(run, {"status": "done"}),
            "json": lambda: write_json(tmp_path / "a.json", {}),
            "page": lambda: write_report(tmp_path / "a.html", Page("a")),
            "figure": lambda: plots.write_figure([ROW], tmp_path / "a.png"),
        }[kind]()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
