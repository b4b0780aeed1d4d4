"""The command watch: the page of a fit that runs in another process."""

import os

import pytest

from command_line import QUICK
from isolatent.files import LOCK_FILE
from isolatent.report import is_report


@pytest.fixture
def interrupted(isolatent, files, tmp_path, monkeypatch):
    """The directory of a fit that was interrupted after a checkpoint."""

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("isolatent.training.estimator.ContrastiveICA._set_fitted", stop)
        isolatent("fit", files / "pairs.npz", *QUICK, "--quiet", "--out", "out")
    assert list((tmp_path / "out" / "checkpoints").glob("step-*.json"))
    return tmp_path / "out"


def test_the_page_shows_the_steps_of_the_last_checkpoint(isolatent, interrupted):
    done = isolatent("watch", "out", "--once")
    assert (done.code, done.err) == (0, "")
    page = (interrupted / "report.html").read_text()
    assert "Step 20 of at most 20." in page
    assert 'http-equiv="refresh"' not in page


def test_it_ends_with_the_model(isolatent, interrupted, monkeypatch):
    """And writes until then pages that reload themselves."""
    seen = []
    (interrupted / LOCK_FILE).touch()  # as if the fit were running

    def sleep(seconds):
        seen.append((seconds, 'content="2.0"' in (interrupted / "report.html").read_text()))
        (interrupted / "model.json").write_text("{}")

    monkeypatch.setattr("isolatent.cli.watch.time.sleep", sleep)
    done = isolatent("watch", "out", "--pause", "2")
    assert (done.code, done.err) == (0, "")
    assert seen == [(2.0, True)]
    assert done.out.endswith("finished: out holds a model\n")
    (last,) = sorted((interrupted / "checkpoints").glob("step-*.json"))[-1:]
    os.utime(interrupted / "model.json", (0, 0))  # an old model: another fit is running
    os.utime(last)
    (interrupted / "report.html").unlink()
    isolatent("watch", "out", "--once")
    assert is_report(interrupted / "report.html")


def test_it_ends_where_no_fit_is_running(isolatent, interrupted):
    done = isolatent("watch", "out")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("no fit is running in out; continue it with isolatent fit --resume\n")
    assert 'http-equiv="refresh"' not in (interrupted / "report.html").read_text()


def test_it_does_not_wait_for_a_fit_that_never_began(isolatent, tmp_path, monkeypatch):
    """Neither at once, nor where a fit ends before its first checkpoint."""

    def sleep(seconds):
        assert (tmp_path / "out" / LOCK_FILE).exists(), "waits for nothing"
        (tmp_path / "out" / LOCK_FILE).unlink()

    monkeypatch.setattr("isolatent.cli.watch.time.sleep", sleep)
    (tmp_path / "out").mkdir()
    for running in (False, True):
        if running:
            (tmp_path / "out" / LOCK_FILE).touch()
        done = isolatent("watch", "out")
        assert done.code == 2
        assert "no fit is running in out, and it holds no checkpoint" in done.err
        assert "isolatent fit DATA --out out" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none",), "OUT: none is not a directory"),
        (("data", "--once"), "holds no checkpoint"),
        (("data", "--pause", "0"), "--pause must be"),
    ],
)
def test_errors_are_named(isolatent, files, arguments, message):
    done = isolatent("watch", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_file_that_is_no_report_is_kept(isolatent, interrupted):
    (interrupted / "report.html").write_text("precious")
    assert isolatent("watch", "out", "--once").code == 2
    assert (interrupted / "report.html").read_text() == "precious"
