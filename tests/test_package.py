"""The package as a whole: imports, exports, and the README's example."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import isolatent as iso

ROOT = Path(__file__).parents[1]


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_importing_is_cheap_and_pulls_in_nothing_heavy():
    run("import isolatent")  # warm
    start = time.perf_counter()
    loaded = run("import isolatent, sys; print(*sys.modules)").split()
    assert time.perf_counter() - start < 2.5
    assert not {"plotly", "matplotlib", "ray", "torch", "sklearn"} & set(loaded)


def test_using_it_loads_no_plotting_or_cluster_library():
    loaded = run("import isolatent, sys; isolatent.ContrastiveICA; print(*sys.modules)").split()
    assert not {"plotly", "matplotlib", "ray"} & set(loaded)


def test_everything_exported_exists_and_is_documented():
    for name in iso.__all__:
        assert getattr(iso, name).__doc__, name
    assert set(iso.__all__) <= set(dir(iso))
    with pytest.raises(AttributeError, match="no attribute 'Spere'"):
        iso.Spere  # noqa: B018


def test_type_checkers_see_the_same_names():
    text = (ROOT / "src/isolatent/__init__.py").read_text()
    assert set(re.findall(r"import (\w+) as \1", text)) == set(iso.__all__)


def test_the_readmes_examples_run(capsys):
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names = {}
    exec(first + "\nr2 = iso.linear_r2(z, z_hat)", names)
    assert names["r2"] == pytest.approx(0.8, abs=0.05)
    assert capsys.readouterr().out.startswith("orthogonal map, if:\n  declared   uniform marginal")
    assert names["h"].grad.isfinite().all()
    exec(second, names)
    assert iso.mcc(names["hidden"], names["latents"]) > 0.97


def test_the_example_on_images_runs():
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/images.md").read_text(), re.DOTALL
    )
    names = {}
    exec(example, names)
    assert names["x"].shape == names["known"].x.shape == (64, 1, 64, 64)


def test_the_readmes_figures_are_those_of_the_stored_run():
    figures = json.loads((ROOT / "results/demo.json").read_text())
    text = (ROOT / "README.md").read_text()
    for name in ("identity_r2", "identity_mcc", "recovered_r2", "recovered_mcc"):
        low, high = figures["intervals"][name]
        assert f"{figures[name]:.3f} [{low:.3f}, {high:.3f}]" in text
    assert f"in {figures['seconds']:.0f} s on two cores" in text


def test_the_readmes_speed_is_that_of_the_stored_benchmark():
    cells = json.loads((ROOT / "results/benchmarks/losses.json").read_text())["cells"]

    def lead(similarity):
        """The best peer's time over ours at batch 6144."""
        ours = cells[f"InfoNCE | {similarity} | one way | numba | 6144"]["seconds"]
        peers = ("plain torch", "KeOps", "PML SupCon", "CEBRA")
        keys = (f"InfoNCE | {similarity} | one way | {peer} | 6144" for peer in peers)
        return min(cells[key]["seconds"] for key in keys if "seconds" in cells.get(key, {})) / ours

    text = (ROOT / "README.md").read_text()
    assert f"{lead('dot'):.0f} times (dot product) to {lead('L3'):.0f} times (L3) faster" in text
    largest = [c["megabytes"] for k, c in cells.items() if "65536" in k and "megabytes" in c]
    assert 0 < max(largest) < 70
    assert "batch 65 536 takes under 70 MB" in text
