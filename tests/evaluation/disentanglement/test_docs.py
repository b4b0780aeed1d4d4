"""The example of docs/metrics.md runs, and its table of invariances is that of the code."""

import re
from pathlib import Path

from isolatent.evaluation import INVARIANCES

TEXT = (Path(__file__).parents[3] / "docs/metrics.md").read_text()


def test_the_example_runs(capsys):
    exec(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[0], {})
    first, *_, last = capsys.readouterr().out.strip().split("\n")
    assert float(first.split()[0]) > 0.9
    assert last == "1.0"


def test_every_metric_is_described():
    for name in INVARIANCES:
        assert f"`{name.split('_')[0]}" in TEXT
