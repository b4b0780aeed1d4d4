"""The example of docs/metrics.md runs, and its table of invariances is that of the code."""

import re
from pathlib import Path

from isolatent.theory import INVARIANCES

TEXT = (Path(__file__).parents[3] / "docs/metrics.md").read_text()


def test_the_example_runs(capsys):
    exec(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[0], {})
    first, *_, last = capsys.readouterr().out.strip().split("\n")
    assert float(first.split()[0]) > 0.9
    assert last == "1.0"


def table(heading):
    """The first table after a heading: its column names, and the cells of each row."""
    lines = TEXT[TEXT.index(f"## {heading}\n") :].split("\n## ")[0].splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    return cells[0], cells[2:]  # the second line is a rule


NAMES = {  # call in the document: name in INVARIANCES
    "beta_vae_score": "beta_vae",
    "factor_vae_score": "factor_vae",
    "mig": "mig",
    "modularity": "modularity",
    "dci": "dci",
    "explicitness": "explicitness",
    "sap": "sap",
    "sap(continuous=True)": "sap_continuous",
    "mcc": "mcc_pearson",
    'mcc(method="spearman")': "mcc_spearman",
}
MAPS = {
    "order, sign": ("permutation", "sign"),
    "scale": ("rescaling",),
    "monotone map of each code": ("monotone map",),
    "rotation": ("rotation",),
}


def test_the_table_of_invariances_is_that_of_the_code():
    (_, *columns), rows = table("Invariances")
    assert columns == list(MAPS)
    written = []
    for metrics, *cells in rows:
        answers = [re.match(r"(yes|no)\b", cell)[1] for cell in cells]
        for called in metrics.split(", "):
            for column, answer in zip(columns, answers, strict=True):
                written += [(NAMES[called.strip("`")], map_, answer) for map_ in MAPS[column]]
    assert sorted(written) == sorted(
        (metric, map_, "yes" if map_ in invariances else "no")
        for metric, invariances in INVARIANCES.items()
        for maps in MAPS.values()
        for map_ in maps
    )


def test_every_metric_is_described():
    described = {row[0].split("`")[1] for row in table("Definitions")[1]}
    assert described == {called.split("(")[0] for called in NAMES}
