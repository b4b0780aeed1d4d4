"""The command line, run in this process, with data and a model."""

import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from command_line import NAMES, QUICK, run_main
from isolatent.worlds import InvertibleMLP, Sphere, Uniform, VonMisesFisher, World


@pytest.fixture
def isolatent(monkeypatch, capsys, tmp_path):
    """A function that runs a command in tmp_path and returns its exit code and its output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = run_main(monkeypatch, *arguments)
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture(scope="module")
def world():
    world = World(Sphere(3), Uniform(), VonMisesFisher(20.0), InvertibleMLP(layers=2), seed=0)
    z, z_pos = world.sample_latents(400)
    x, x_pos = (world.observe(part).double().numpy() for part in (z, z_pos))
    return SimpleNamespace(x=x, x_pos=x_pos, z=z.double().numpy())


@pytest.fixture
def files(tmp_path, world):
    """A directory with the same data in every format."""
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(folder / "x.npy", world.x)
    np.save(folder / "x_pos.npy", world.x_pos)
    np.save(folder / "z.npy", world.z)
    np.savez(folder / "pairs.npz", x=world.x, x_pos=world.x_pos, z=world.z)
    np.savez(folder / "series.npz", x=world.x, session=np.arange(400) // 100)
    table = pd.DataFrame(world.x, columns=NAMES)
    table_pos = pd.DataFrame(world.x_pos, columns=NAMES)
    day = np.repeat(["mon", "tue"], 200)
    table.assign(day=day).to_csv(folder / "series.csv", index=False)
    table.assign(day=day).to_parquet(folder / "series.parquet", index=False)
    table.to_csv(folder / "x.csv", index=False)
    table_pos.to_csv(folder / "x_pos.csv", index=False)
    table.to_parquet(folder / "x.parquet", index=False)
    table_pos.to_parquet(folder / "x_pos.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, world):
    """A model of two tables, shared by the tests; the fixture `model` is a copy."""
    folder = tmp_path_factory.mktemp("fitted")
    for name, x in (("x.csv", world.x), ("x_pos.csv", world.x_pos)):
        pd.DataFrame(x, columns=NAMES).to_csv(folder / name, index=False)
    with pytest.MonkeyPatch.context() as patch:
        paths = folder / "x.csv", folder / "x_pos.csv"
        assert (
            run_main(
                patch,
                "fit",
                *paths,
                *QUICK,
                "--max-steps",
                300,
                "--out",
                folder / "model",
                "--quiet",
            )
            == 0
        )
    return folder / "model"


@pytest.fixture
def model(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "model")
