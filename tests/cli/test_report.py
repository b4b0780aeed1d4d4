"""Pages from the command line, and that nothing a person had is lost to them."""

import os

import numpy as np
import pytest

from isolatent.cli.report import DEMO_PAGE, demo_page_path
from isolatent.report import is_report
from isolatent.worlds import InvertibleMLP, Sphere, Uniform, VonMisesFisher, World
from own_spec import GOOD

SPEC = f"""{GOOD.replace("one", "sphere_vmf")}
recipe = {{ max_steps = 20, batch_size = 32 }}
published.unsupervised = [99.86, 0.01]
"""
SPRITES = """
title = "sprites"
[[cells]]
name = "decoded"
world = { images = "sprites", pairs = "nat", continuous = true }
model = { method = "beta_vae", n_components = 2 }
recipe = { max_steps = 2, batch_size = 8 }
"""
QUICK = ("--n-components", "3", "--max-steps", "20", "--batch-size", "64", "--quiet")


@pytest.fixture
def data(tmp_path):
    world = World(Sphere(3), Uniform(), VonMisesFisher(20.0), InvertibleMLP(layers=2), seed=0)
    z, z_pos = world.sample_latents(300)
    x, x_pos = (world.observe(part).double().numpy() for part in (z, z_pos))
    np.savez(tmp_path / "pairs.npz", x=x, x_pos=x_pos, z=z.numpy())
    np.save(tmp_path / "x.npy", x)
    return "pairs.npz"


def test_a_fit_leaves_a_report_and_report_makes_others(isolatent, data, tmp_path):
    done = isolatent("fit", data, *QUICK)
    assert done.code == 0, done.err
    assert done.err == ""
    assert done.out.endswith("report: model/report.html\n")
    page = (tmp_path / "model" / "report.html").read_text()
    assert "isolatent fit pairs.npz --n-components 3 --max-steps 20" in page
    assert "Distribution of each code over 300 observations." in page
    for arguments, expected in (
        ((), "What may be claimed"),
        (("--data", "x.npy"), "Distribution of each code"),
        (("--data", "x.npy", "--truth", data), "Each true factor against the recovered one"),
        (("--truth", data), "observations as they are"),
    ):
        done = isolatent("report", "model", "--out", "page.html", "--overwrite", *arguments)
        assert (done.code, done.out, done.err) == (0, "wrote page.html\n", "")
        assert expected in (tmp_path / "page.html").read_text()


def test_results_of_an_experiment(isolatent, tmp_path):
    (tmp_path / "mine.toml").write_text(SPEC)
    done = isolatent("reproduce", "mine.toml", "--seeds", 1, "--jobs", 1, "--out", "out")
    assert done.code == 0, done.err
    assert isolatent("report", "out", "--out", "page.html").out == "wrote page.html\n"
    page = (tmp_path / "page.html").read_text()
    assert page == (tmp_path / "out" / "report.html").read_text()
    again = isolatent("report", "out")  # where `reproduce` wrote one
    assert (again.code, again.out, again.err) == (0, "wrote out/report.html\n", "")
    assert isolatent("report", "out", "--out", "page.html").code == 2  # named, so it may be kept
    (tmp_path / "out" / "report.html").write_text("precious")
    assert "report.html exists; pass --overwrite" in isolatent("report", "out").err
    assert (tmp_path / "out" / "report.html").read_text() == "precious"
    for text in ("sphere_vmf", "worse", "What may be claimed", "orthogonal map", "Quality"):
        assert text in page


def test_results_on_images(isolatent, tmp_path, monkeypatch):
    monkeypatch.setattr("isolatent.experiments.latent_traversal.CANDIDATES", 100)
    monkeypatch.setattr("isolatent.experiments.image_execution.TEST_POINTS", 100)
    (tmp_path / "mine.toml").write_text(SPRITES)
    done = isolatent("reproduce", "mine.toml", "--seeds", 1, "--jobs", 1, "--out", "out")
    assert done.code == 0, done.err
    assert isolatent("report", "out", "--out", "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    for k in (1, 2):
        assert page.count(f'alt="Images while code {k} grows') == 1
    assert page.count("data:image/png;base64,") == 2
    assert "a β-VAE does not look at pairs" in page


def test_mistakes_are_one_line_and_nothing_is_lost(isolatent, data, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine.html").write_text("precious")
    for arguments, message in (
        (("nowhere",), "DIRECTORY: nowhere is not a directory"),
        (("empty",), "DIRECTORY: empty holds neither a model (model.json) nor results"),
        (("empty", "--data", data), "--data and --truth are for a model"),
        (("empty", "--out", "mine.html"), "mine.html exists; pass --overwrite"),
        (("empty", "--out", "no/page.html"), "the directory no does not exist"),
    ):
        done = isolatent("report", *arguments)
        assert done.code == 2
        assert done.err.startswith("isolatent: ")
        assert message in done.err
        assert done.err.count("\n") == 1
    assert (tmp_path / "mine.html").read_text() == "precious"
    assert not any((tmp_path / "empty").iterdir())


def test_a_fit_replaces_its_own_report_and_no_other(isolatent, data, tmp_path):
    assert isolatent("fit", data, *QUICK).code == 0
    page = tmp_path / "model" / "report.html"
    before = page.read_text()
    assert isolatent("report", "model").out == "wrote model/report.html\n"  # an earlier one of ours
    assert page.read_text() != before  # it has no data to show
    before = page.read_text()
    assert isolatent("fit", data, *QUICK, "--seed", "1", "--overwrite").code == 0
    assert page.read_text() != before
    page.write_text("precious")
    done = isolatent("fit", data, *QUICK, "--overwrite")
    assert done.code == 2
    assert "report.html was not written by isolatent; move it first" in done.err
    assert page.read_text() == "precious"


def test_the_demo_writes_its_page_unless_something_is_in_the_way(isolatent, tmp_path):
    demo = ("demo", "--max-steps", "2", "--quiet")
    page = tmp_path / "isolatent-demo.html"
    assert "report: isolatent-demo.html" in isolatent(*demo).out
    assert is_report(page)
    assert demo_page_path() == DEMO_PAGE  # an earlier one is replaced
    page.write_text("precious")
    done = isolatent(*demo)
    assert done.code == 0
    assert "no page is written; --report: isolatent-demo.html exists\n" in done.err
    assert isolatent(*demo, "--report", page).code == 2
    assert page.read_text() == "precious"
    assert os.listdir(tmp_path) == ["isolatent-demo.html"]
