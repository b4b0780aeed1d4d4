"""Examples in documents run, commands are valid, links exist, and figures are those of results."""

import base64
import importlib.util
import inspect
import json
import math
import re
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import typer

import isolatent as iso
from isolatent.cli.app import app
from isolatent.experiments import Store, find_experiment
from isolatent.experiments.latent_traversal import encode_png
from isolatent.experiments.results import rows_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PACKAGE = ROOT / "src" / "isolatent"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EACH = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
EXAMPLE = re.compile(r"(<!-- not run: .+? -->\n)?```python\n(.*?)```", re.DOTALL)


def text_of(path):
    return path.read_text(encoding="utf-8")


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fill_tables = script("fill_tables")


# Examples


def run_examples(text):
    """Run all examples of a document in one namespace, except those marked as not run."""
    names = {}
    for not_run, code in EXAMPLE.findall(text):
        if not not_run:
            exec(compile(code, "example", "exec"), names)
    return names


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if path != README and EXAMPLE.search(text_of(path))],
    ids=lambda path: path.name,
)
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(text_of(path))


@pytest.mark.filterwarnings("ignore::isolatent.checks.IsolatentWarning")
def test_the_examples_of_the_readme_run(tmp_path, monkeypatch):
    """With few steps, after which warnings are due."""
    monkeypatch.chdir(tmp_path)
    _, *others = iso.Recipe.__init__.__defaults__
    monkeypatch.setattr(iso.Recipe.__init__, "__defaults__", (60, *others))
    names = run_examples(text_of(README))
    assert names["z_hat"].shape == names["z"].shape
    assert names["h"].grad.isfinite().all()


@pytest.mark.slow
def test_the_examples_of_the_readme_give_the_stated_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_examples(text_of(README))
    assert "they give an R² of about 0.95" in text_of(README)
    assert iso.linear_r2(names["z"], names["z_hat"]) == pytest.approx(0.95, abs=0.03)
    default, declared, *_ = capsys.readouterr().out.split(", if:\n")
    assert default == "signed permutation and scaling"
    assert declared.endswith("\northogonal map")
    assert iso.mcc(names["factors"], names["codes"]) > 0.97


@EACH
def test_examples_are_marked_as_python(path):
    assert not re.search(r"^```(py|python3|pycon|ipython)$", text_of(path), re.MULTILINE)


def test_only_marked_examples_are_not_run():
    text = "```python\nx = 1\n```\n<!-- not run: takes an hour -->\n```python\nx = 1 / 0\n```\n"
    assert run_examples(text)["x"] == 1
    with pytest.raises(ZeroDivisionError):
        run_examples(text.replace("not run", "run"))


# Commands, links and names


def commands_of(text):
    """Return the lines of code blocks, and the inline code, that call the command isolatent."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(isolatent [^`]+)`", text)
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("isolatent ")]
    return [words for words in commands if len(words) > 1]


@EACH
def test_commands_have_valid_options(path):
    subcommands = typer.main.get_command(app).commands
    for _, name, *arguments in commands_of(text_of(path)):
        # A command that is only mentioned, such as `isolatent fit`, lacks its arguments.
        subcommands[name].make_context(name, arguments, resilient_parsing=not arguments)


def test_an_unknown_option_is_found():
    ((_, name, *arguments),) = commands_of("```\nisolatent fit x.npy --componets 3  # typo\n```\n")
    with pytest.raises(Exception, match="No such option: --componets"):
        typer.main.get_command(app).commands[name].make_context(name, arguments)


@EACH
def test_links_point_to_existing_files_and_headings(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(path)):
        if "://" in target:
            continue
        file, _, heading = target.partition("#")
        linked = path if not file else (path.parent / file)
        assert linked.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", text_of(linked), re.MULTILINE)
            assert heading in [anchor(title) for title in headings], target


def anchor(title):
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@EACH
def test_names_in_documents_exist(path):
    """Names written as `iso.…` or `isolatent.…`, in examples and in the text."""
    for name in re.findall(r"\b(?:iso|isolatent)\.([\w.]*\w)", text_of(path)):
        value = iso
        parts = name.split(".")
        for k, part in enumerate(parts):
            if not hasattr(value, part):  # a module that its package does not import
                importlib.import_module("isolatent." + ".".join(parts[: k + 1]))
            value = getattr(value, part)


def test_the_table_of_packages_lists_every_module_once():
    text = text_of(ROOT / "docs/architecture.md")
    rows = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*) \|$", text, re.MULTILINE))
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(rows)
    for package in packages:
        entries = sorted((PACKAGE / package).iterdir())
        modules = {p.stem for p in entries if p.suffix == ".py" and p.stem != "__init__"}
        folders = {f"{p.name}/" for p in entries if p.is_dir() and p.name != "__pycache__"}
        listed = re.findall(r"`([a-z_0-9]+/?)`", re.sub(r"\([^)]*\)", "", rows[package]))
        assert sorted(listed) == sorted(modules | folders), package


def test_the_tables_of_claims_are_those_of_the_code():
    fill_theory = script("fill_theory")
    text = text_of(ROOT / "docs/theory.md")
    for name in ("claims", "relaxed claims"):
        assert re.search(fill_theory.BLOCK.format(name=name), text, re.DOTALL), name
    assert fill_theory.fill(text) == text


# Figures


@pytest.mark.parametrize("path", fill_tables.DOCUMENTS, ids=lambda path: path.name)
def test_tables_equal_those_of_the_stored_results(path):
    text = text_of(path)
    assert fill_tables.BLOCK.search(text)
    assert fill_tables.fill(text) == text


def stored(name):
    return json.loads((ROOT / "results" / name).read_text())


def demo(name):
    figures = stored("demo.json")
    low, high = figures["intervals"][name]
    return f"{figures[name]:.3f} [{low:.3f}, {high:.3f}]"


def demos(kind):
    return partial(demo, f"{kind}_r2"), partial(demo, f"{kind}_mcc")


def speedup(similarity):
    """Return the time of the best alternative over ours at batch 6144."""
    start = f"InfoNCE | {similarity} | one way | "
    seconds = {
        key.removeprefix(start).removesuffix(" | 6144"): cell["seconds"]
        for key, cell in stored("benchmarks/losses.json")["cells"].items()
        if key.startswith(start) and key.endswith(" | 6144") and "seconds" in cell
    }
    own = ("numba", "blockwise", "dense")
    best = min(time for name, time in seconds.items() if name not in own)
    return f"{best / seconds['numba']:.0f}"


def largest_memory():
    """Return the next multiple of ten above the largest memory at batch 65 536, in MB."""
    cells = stored("benchmarks/losses.json")["cells"]
    largest = max(c["megabytes"] for k, c in cells.items() if "65536" in k and "megabytes" in c)
    return f"{10 * math.ceil(largest / 10)}"


def score(experiment, cell, metric, digits=1):
    store = Store(ROOT / "results" / experiment)
    (spec,) = store.experiments()
    (row,) = [
        row
        for row in rows_of(spec, store.records(experiment))
        if (row.cell, row.metric, row.approach) == (cell, metric, "unsupervised")
    ]
    return f"{row.ours:.{digits}f}"


def rows_of_the_workshop_table():
    cells = find_experiment("zimmermann2020/table1").cells
    return str(len(cells))


TABLE2 = "zimmermann2021/table2"
SPRITES, NATURAL = "zimmermann2020/dsprites", "zimmermann2020/natural_sprites"
# Numbers in documents: where they are written, and where they come from. Each group of a pattern is
# one number, and each function returns it as it must be written.
CLAIMS = {
    README: [
        (r"Python (3\.11) or newer", lambda: PYTHON.search(text_of(ROOT / "pyproject.toml"))[1]),
        (
            r"observations \| (.+?) \| (.+?) \|",
            lambda: demo("identity_r2"),
            lambda: demo("identity_mcc"),
        ),
        (
            r"recovered \| (.+?) \| (.+?) \|",
            lambda: demo("recovered_r2"),
            lambda: demo("recovered_mcc"),
        ),
        (r"obtained in (\d+) s on", lambda: f"{stored('demo.json')['seconds']:.0f}"),
        (r"the (95) % confidence", lambda: f"{100 * DEFAULT_LEVEL:.0f}"),
        # Measured by test_the_examples_of_the_readme_give_the_stated_results.
        (r"an R² of about (0\.95)", lambda: "0.95"),
        (r"(\d+) of 12 rows of Table 1", rows_of_the_workshop_table),
        (r"BetaVAE score of (\d+)", lambda: score(SPRITES, "lap_infonce_l1", "beta_vae", 0)),
        (r"FactorVAE score of (\d+)", lambda: score(SPRITES, "lap_infonce_l1", "factor_vae", 0)),
        (r"batch 65 536 takes under (\d+) MB", largest_memory),
        (r"InfoNCE is (\d+) times \(dot product\)", lambda: speedup("dot")),
        (r"to (\d+) times \(L3\) faster than the best", lambda: speedup("L3")),
    ],
    ROOT / "docs/results.md": [
        (
            r"at batch 1000 falls from 100 to 68, ours from (\S+) to (\S+)\.\n",
            lambda: score("rusak2025/scaling", "batch1000-lambda25", "linear_r2"),
            lambda: score("rusak2025/scaling", "batch1000-lambda300", "linear_r2"),
        ),
        (
            r"MCC is (\S+) instead of (\S+) for the normal conditional",
            lambda: score(TABLE2, "box_normal_free_axes", "mcc", 2),
            lambda: score(TABLE2, "box_normal_free", "mcc", 2),
        ),
        (
            r"and (\S+) instead of (\S+) for the Laplace one",
            lambda: score(TABLE2, "box_laplace_free_normal_axes", "mcc", 2),
            lambda: score(TABLE2, "box_laplace_free_normal", "mcc", 2),
        ),
        (
            r"Their MCC is (\S+) and (\S+)\.\n",
            lambda: score(TABLE2, "box_normal_default", "mcc", 2),
            lambda: score(TABLE2, "box_laplace_default", "mcc", 2),
        ),
        (
            r"BetaVAE score falls from (\S+) to (\S+) and",
            lambda: score(SPRITES, "lap_au0.9", "beta_vae"),
            lambda: score(SPRITES, "lap_au0.9999", "beta_vae"),
        ),
        (
            r"FactorVAE score from (\S+) to (\S+);",
            lambda: score(SPRITES, "lap_au0.9", "factor_vae"),
            lambda: score(SPRITES, "lap_au0.9999", "factor_vae"),
        ),
        (
            r"So its DCI of (\S+), where has (\S+) and the L1 norm (\S+), is",
            lambda: score(SPRITES, "lap_infonce_l2_axes", "disentanglement"),
            lambda: score(SPRITES, "lap_infonce_l2", "disentanglement"),
            lambda: score(SPRITES, "lap_infonce_l1", "disentanglement"),
        ),
        (
            r"MCC is (\S+) with the L2 norm and (\S+) with the L1 norm",
            lambda: score(NATURAL, "continuous_au0.5_l2", "mcc"),
            lambda: score(NATURAL, "continuous_au0.5_l1", "mcc"),
        ),
    ],
}
PYTHON = re.compile(r'requires-python = ">=([\d.]+)"')
DEFAULT_LEVEL = inspect.signature(iso.bootstrap).parameters["confidence_level"].default
NUMBER = re.compile(r"\d+\.\d+|\d[\d ]* times|\d+ ?%|\d+ ?×|\d+ (?:s|h|MB|GB)\b|score of \d+")


def prose(text):
    """Return a document without code blocks, generated tables, inline code and targets of links."""
    for pattern in (r"^```.*?^```", r"<!-- results: .*?<!-- end -->", r"`[^`\n]+`"):
        text = re.sub(pattern, "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", text)


@pytest.mark.parametrize(
    ("path", "claim"),
    [(path, claim) for path, claims in CLAIMS.items() for claim in claims],
    ids=lambda value: value.name if isinstance(value, Path) else value[0],
)
def test_numbers_in_documents_are_those_of_stored_results(path, claim):
    pattern, *numbers = claim
    found = re.findall(pattern.replace(" ", r"\s+"), prose(text_of(path)))
    assert len(found) == 1, "must occur once"
    written = found[0] if isinstance(found[0], tuple) else (found[0],)
    assert list(written) == [number() for number in numbers]


def test_every_number_of_the_readme_has_a_source():
    text = prose(text_of(README))
    for pattern, *_ in CLAIMS[README]:
        text = re.sub(pattern.replace(" ", r"\s+"), "", text)
    assert NUMBER.findall(text) == []


def test_axes_of_sprites_leave_codes_as_they_are():
    """As docs/results.md says."""
    store = Store(ROOT / "results" / SPRITES)
    runs = [r for r in store.records(SPRITES) if r["cell"] == "lap_infonce_l2_axes"]
    assert runs
    assert all(run["axes"]["blocks"] == [[*range(10)]] for run in runs)


@pytest.mark.parametrize("text", ["reaches 99.5", "145 times faster", "in 48 s", "a score of 97"])
def test_a_number_without_a_source_is_found(text):
    assert NUMBER.search(prose(f"The model {text} (`code 1.0`)."))


def test_the_ablations_of_the_recipe_are_the_stored_ones():
    stored = json.loads((ROOT / "results/benchmarks/recipe_ablations.json").read_text())
    _, _, section = text_of(ROOT / "docs/recipe.md").partition("## Ablations\n")
    lines = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("|")]
    (_, *worlds), _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    metric = {"box_normal": "mcc", "sphere_vmf10": "linear_r2", "aniso_linspace": "mcc"}
    written = {
        f"{world} / {variant} / 1000 steps / seed 0": score
        for variant, *scores in rows
        for world, score in zip(worlds, scores, strict=True)
        if score
    }
    assert written == {key: f"{run[metric[key.split()[0]]]:.4f}" for key, run in stored.items()}


def test_the_late_fall_is_the_share_of_the_last_quarter():
    """The loss falls from 10 to 4 at three quarters of the steps, and to 2 at the end."""
    steps = range(1, 101)
    held_out = [10.0] + [4.0] * 74 + [2.0] * 25
    curve = [
        {"number": step, "loss": 0.0, "held_out": loss}
        for step, loss in zip(steps, held_out, strict=True)
    ]
    assert fill_tables._late_decrease({"curve": curve}) == pytest.approx(25.0)
    losses = [{"number": p["number"], "loss": p["held_out"], "held_out": None} for p in curve]
    assert fill_tables._late_decrease({"curve": losses}) == pytest.approx(25.0)


def test_objectives_of_a_line_are_one_whatever_the_step_of_saturation():
    texts = [f"InfoNCE, then alignment and entropy from step {k} (saturated)" for k in (9, 105)]
    assert fill_tables._pooled(texts) == "InfoNCE, then alignment and entropy"


def test_scores_by_pairs_seen_are_means_over_the_runs_of_a_row(monkeypatch):
    """R² rises with the logarithm of the number of pairs, to 0.9 and to 0.7 at four million."""

    def record(cell, slope, batch):
        numbers = [10_000 * 2**k for k in range(3)]
        curve = [{"number": n, "quality": slope * np.log(n * batch)} for n in numbers]
        recipe = {"batch_size": batch} if batch != 1024 else {}
        return {"cell": cell, "curve": curve, "spec": {"recipe": recipe}}

    one = 1 / np.log(4e6)
    records = [record("a", 0.9 * one, 100), record("a", 0.7 * one, 100), record("b", one, 1024)]
    monkeypatch.setattr(fill_tables.Store, "records", lambda self, name: records)
    lines = fill_tables.pairs_seen("any").split("\n")
    head, _, a, b = (line for line in lines if line.startswith("|"))
    cells = dict(zip(head.split(" | "), a.split(" | "), strict=True))
    assert cells["0.3 million"] == ""  # before the first measurement
    assert cells["3 million"] == f"{80 * np.log(3e6) * one:.2f}"
    assert (cells["10 million"], cells["last |"]) == ("", "80.00 at 4 |")
    assert b.startswith("| b | 1 | ")


def test_traversals_are_labelled_by_the_best_factor_and_without_dead_codes():
    pytest.importorskip("matplotlib")
    row = base64.b64encode(encode_png(np.zeros((2, 3, 1), np.uint8))).decode()
    record = {
        "factors": ["shape", "x"],
        "correlation": [[0.1, 0.9, 0.3, 0.2], [0.8, 0.2, 0.4, 0.1]],
        "strips": {"kind": "nearest", "rows": [row] * 4, "spreads": [1.0, 0.5, 0.5, 0.01]},
    }
    labels = [label for label, _ in script("draw_strips").labelled_rows(record)]
    assert labels == ["code 1: shape 0.90", "code 0: x 0.80", "code 2"]  # the fourth is dead
