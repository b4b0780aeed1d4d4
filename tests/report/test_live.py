"""The page that follows a training run."""

from itertools import pairwise

import pytest

from isolatent.report import LiveReport, is_report
from isolatent.training import Step

REFRESH = 'http-equiv="refresh"'


def steps(count):
    return [Step(k, count, 1 / k, 0.5, None, None, 2 / k) for k in range(1, count + 1)]


def test_the_page_reloads_itself_until_the_end(tmp_path):
    path = tmp_path / "out" / "report.html"
    with LiveReport(
        path, title="Fit", summary=["9 rows"], command="isolatent fit", pause=0.0
    ) as live:
        live(steps(3)[0])
        during = path.read_text()
    after = path.read_text()
    assert is_report(path)
    assert REFRESH in during
    assert "Step 1 of at most 3." in during
    assert "9 rows" in during
    assert REFRESH not in after
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_pages_are_written_now_and_then(tmp_path, monkeypatch):
    """At most one in each pause, and so that they take a small share of the time."""
    clock, written = [0.0], []
    monkeypatch.setattr("isolatent.report.live.time.monotonic", lambda: clock[0])

    def write(*arguments, **options):
        clock[0] += 1.0  # writing takes a second
        written.append(clock[0])

    monkeypatch.setattr("isolatent.report.live.write_report", write)
    live = LiveReport(tmp_path / "report.html", title="Fit", pause=5.0)
    for step in steps(100):
        clock[0] += 1.0
        live(step)
    gaps = [b - a for a, b in pairwise(written)]
    assert len(written) > 2
    assert min(gaps) >= 20  # five per cent of the time


@pytest.mark.parametrize(
    ("error", "said"), [(KeyboardInterrupt(), "interrupted"), (ValueError("<nan>"), "&lt;nan&gt;")]
)
def test_a_run_that_stops_says_so(tmp_path, error, said):
    path = tmp_path / "report.html"

    def run():
        with LiveReport(path, title="Fit") as live:
            for step in steps(3):
                live(step)
            raise error

    with pytest.raises(type(error)):
        run()
    html = path.read_text()
    assert said in html
    assert "at step 3" in html
    assert REFRESH not in html


def test_a_run_without_steps_writes_nothing(tmp_path):
    with LiveReport(tmp_path / "report.html", title="Fit"):
        pass
    assert list(tmp_path.iterdir()) == []
