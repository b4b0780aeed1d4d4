"""Errors in arguments and data are reported in one line, before any file is written."""

import os
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

from command_line import NAMES, contents
from isolatent.cli.app import MAX_SEED


def write_invalid_files(files, world):
    """Write files with one fault each."""
    np.save(files / "inf.npy", np.where(np.arange(400)[:, None] == 7, np.inf, world.x))
    np.save(files / "flat.npy", world.x[:, 0])
    np.save(files / "short.npy", world.x[:-1])
    np.save(files / "one.npy", world.x[:1])
    np.save(files / "wide.npy", np.hstack([world.x, world.x]))
    np.save(files / "same.npy", np.ones((400, 2)))
    np.savez(files / "two.npz", y=world.x, u=world.x)
    np.savez(files / "other.npz", y=world.x, label=np.arange(400))
    table = pd.DataFrame(world.x, columns=NAMES)
    table.rename(columns={"up": "down"}).to_csv(files / "down.csv", index=False)
    table.to_csv(files / "x.xls", index=False)
    table.iloc[5, 1] = np.inf
    table.to_csv(files / "inf.csv", index=False)


# Commands ({d}: the data, {w}: the working directory) and parts of their messages.
BAD = [
    ("fit {d}/inf.npy", "inf.npy: must be finite, got inf in row 7, column 0"),
    ("fit {d}/inf.csv", "must be finite, got inf in row 5 (line 7), column 'right'"),
    ("fit {d}/flat.npy", "must have shape (rows, columns), got shape (400,)"),
    ("fit {d}/x.npy {d}/short.npy", "x.npy has 400 rows and short.npy has 399"),
    ("fit {d}/x.npy {d}/wide.npy", "x.npy has 3 columns and wide.npy has 6"),
    ("fit {d}/one.npy", "must have at least 2 rows, got 1"),
    ("fit {d}/same.npy", "same.npy: columns 0, 1 are constant: none varies"),
    (
        "fit {d}/series.csv",
        "column 'day' holds text ('mon'), not numbers; leave it out",
    ),
    ("fit {d}/no.npy", "no.npy: does not exist"),
    ("fit {d}/x.npy {d}/no.npy", "no.npy: does not exist"),
    ("fit {d}", "is neither an image nor a video; move it out of"),
    ("fit {d}/x.xls", ".nc, .zarr, got '.xls'"),
    ("fit {d}/two.npz", "has no array 'x'; choose one with --array"),
    ("fit {d}/two.npz --array z", "has no array 'z' for --array; it has 'y', 'u'"),
    ("fit {d}/x.npy --array x", "--array is for files of several arrays"),
    ("fit {d}/x.csv --array x", "--array is for files of arrays, got 'x'"),
    ("fit {d}/x.npy --max-memory lots", "--max-memory must be a size such as 500MB or 2GB"),
    ("fit {d}/x.npz --max-memory 1kB", "x.npz: does not exist"),
    ("fit {d}/pairs.npz --max-memory 1kB", "memory, more than --max-memory 1.0 kB"),
    ("fit {d}/x.csv --drop Left", "has no column 'Left' for --drop; did you mean 'left'?"),
    ("fit {d}/x.csv --columns left,rihgt", "has no column 'rihgt' for --columns; did you mean 'ri"),
    ("fit {d}/series.csv --drop day --time Day", "has no column 'Day' for --time; did you mean"),
    ("fit {d}/x.csv --time left", "times must increase from row to row, but do not at rows"),
    ("fit {d}/x.csv --positive-suffix _b", "has no column that ends in --positive-suffix '_b'"),
    ("fit {d}/x.npy --encoder cnn", "--encoder must be one of 'mlp', 'deep', 'paper', 'pooled'"),
    ("fit {d}/x.npy --encoder conv", "(rows, height, width) or (rows, channels, height, width)"),
    ("fit {d}/x.npy --session day", "an .npy has no names"),
    ("fit {d}/x.csv --session week", "has no column 'week' for --session"),
    ("fit {d}/x.csv --session week", "it has 'left', 'right', 'up'"),
    ("fit {d}/x.npy {d}/x_pos.npy --lag 2", "--lag is for a time series in one file"),
    ("fit {d}/pairs.npz --lag 2", "--lag is for a time series; pairs.npz holds pairs"),
    ("fit {d}/x.npy --lag 400", "--lag must be shorter than the longest session, 400 rows, got"),
    ("fit {d}/series.csv --session day --lag 200", "longest session, 200 rows, got 200"),
    ("fit {d}/x.npy --lag 0", "--lag must be at least 1, the shortest lag first, got '0'"),
    ("fit {d}/x.npy --lag 3:2", "--lag must be at least 1, the shortest lag first, got '3:2'"),
    ("fit {d}/x.npy --lag two", "--lag must be a number of rows, or two such as 3:5, got 'two'"),
    ("fit {d}/x.npy --max-steps 0", "--max-steps must be an integer >= 1, got 0"),
    ("fit {d}/x.npy --batch-size 1", "--batch-size must be an integer >= 2, got 1"),
    ("fit {d}/x.npy --n-components 0", "--n-components must be an integer >= 1, got 0"),
    ("fit {d}/x.npy --n-components 4", "--n-components must be at most 3 for 3 columns, got 4"),
    ("fit {d}/x.npy --space sphere --n-components 5", "--n-components must be at most 4"),
    ("fit {d}/x.npy --axes pca", "--axes must be one of 'auto', 'ica', 'dynamics', 'none', got"),
    ("fit {d}/x.npy --space sphere --axes ica", "axes must be None or 'auto' for space='sphere'"),
    ("fit {d}/x.npy --space sphere --n-components 1", "at least 2 on a sphere, got 1"),
    ("fit {d}/x.npy --space torus", "--space must be one of 'sphere', 'box'"),
    ("fit {d}/x.npy --marginal cauchy", "--marginal must be one of 'uniform'"),
    ("fit {d}/x.npy --conditional cauchy", "--conditional must be one of 'vmf'"),
    ("fit {d}/x.npy --space box --conditional vmf", "conditional 'vmf' goes with space 'sphere'"),
    ("fit {d}/x.npy --space box --conditional gennorm", "--p must be given with --conditional"),
    ("fit {d}/x.npy --p 3", "p goes with conditional 'gennorm' alone"),
    ("fit {d}/x.npy --loss mse", "--loss must be one of 'infonce'"),
    ("fit {d}/x.npy --relax pairs", "--relax must be one of 'auto', 'pairing'"),
    ("fit {d}/x.npy --relax auto,pairing", "--relax must be one of 'pairing', 'anchor_scale'"),
    ("fit {d}/x.npy --relax pairing,,marginal", "--relax must be one of 'pairing'"),
    ("fit {d}/x.npy --relax pairing,pairing", "--relax must not name a relaxation twice"),
    ("fit {d}/x.npy --relax dynamics --lag 2", "such as --lag 2:2, got --lag 2, which"),
    ("fit {d}/x.npy --log wandb", "--log must be one of 'csv', 'tensorboard'"),
    ("fit {d}/x.npy --precision 16", "--precision must be one of '32', 'bf16-mixed'"),
    ("fit {d}/x.npy --accelerator tpu", "--accelerator must be one of 'auto', 'cpu', 'cuda'"),
    ("fit {d}/x.npy --devices 0", "--devices must be an integer >= 1, got 0"),
    (
        "fit {d}/x.npy --batch-size 63 --devices 2",
        "a multiple of --devices times --num-nodes, 2, got 63",
    ),
    ("fit {d}/x.npy --resume", "holds no checkpoint; omit --resume"),
    ("fit {d}/x.npy --resume --overwrite", "exclude each other"),
    ("fit {d}/x.npy --out {d}/x.csv", "--out must be a directory, but"),
    ("fit {d}/x.npy --out {d}/x.csv/model", "x.csv is a file"),
    ("fit {d}/x.npy --out {d}", "is not empty and holds no isolatent model"),
    ("fit {d}/x.npy --out {d} --overwrite", "is not empty and holds no isolatent model"),
    ("fit {d}/x.npy --out {w}/foreign --overwrite", "holds no isolatent model"),
    ("fit {d}/x.npy --out {w}/model", "is not empty; pass --overwrite to replace the model"),
    ("fit {d}/inf.npy --out {w}/model --overwrite", "must be finite, got inf"),
    ("transform {w}/no {d}/x.npy", "MODEL: {w}/no is not a directory"),
    ("transform {d} {d}/x.npy", "MODEL: {d} is not a model, it has no model.json"),
    ("transform {w}/damaged {d}/x.npy", "damaged"),
    ("transform {w}/model {d}/no.npy", "no.npy: does not exist"),
    ("transform {w}/model {d}/inf.npy", "must be finite, got inf in row 7, column 0"),
    ("transform {w}/model {d}/wide.npy", "wide.npy: must have 3 columns like the training data"),
    ("transform {w}/model {d}/down.csv", "has no column 'up' for the model; it has 'left'"),
    ("transform {w}/model {d}/x.npy --out {d}/x.csv", "exists; pass --overwrite"),
    (
        "transform {w}/model {d}/x.csv --out {d}/x.csv --overwrite",
        "must not be the file",
    ),
    ("transform {w}/model {d}/x.npy --out {w}/h.txt", "suffix must be one of '.npy'"),
    ("transform {w}/model {d}/x.npy --out {w}/no/h.npy", "does not exist"),
    ("evaluate {w}/model {d}/x.npy", "Missing option '--truth'"),
    ("evaluate {w}/model --truth {d}/z.npy", "an .npz with arrays 'x' and 'z' without DATA"),
    (
        "evaluate {w}/model --truth {d}/other.npz",
        "without DATA --truth needs arrays 'x' and 'z'; other.npz has 'y', 'l",
    ),
    ("evaluate {w}/model {d}/short.npy --truth {d}/z.npy", "z.npy has 400 rows of factors, but"),
    ("evaluate {w}/model {d}/x.npy --truth {d}/z.npy --blocks a", "--blocks must be indices"),
    ("evaluate {w}/model {d}/x.npy --truth {d}/z.npy --blocks 0/1", "blocks"),
    ("evaluate {w}/model {d}/x.npy --truth {d}/z.npy --json={d}/x.csv", "exists; pass --overwri"),
    ("info {d}", "MODEL: {d} is not a model, it has no model.json"),
    ("demo --json={d}/x.csv", "--json: {d}/x.csv exists; pass --overwrite"),
    ("demo --json={d}", "--json must be a file, but {d} is a directory"),
    ("demo --json {w}/no/scores.json", "--json: the directory {w}/no does not exist"),
    ("demo --report {d}/x.csv", "--report: {d}/x.csv exists; pass --overwrite"),
    ("demo --max-steps 0", "--max-steps must be an integer >= 1, got 0"),
    ("demo --speed 9", "No such option: --speed"),
    ("report {w}/no", "DIRECTORY: {w}/no is not a directory"),
    ("report {w}", "DIRECTORY: {w} holds neither a model (model.json) nor results"),
    ("report {d}", "DIRECTORY: {d} holds neither a model (model.json) nor results"),
    ("report {w} --data {d}/x.npy", "--data, --truth and --diagnosis are for a model"),
    ("report {w} --out {d}/x.csv", "--out must end in .html, got"),
    ("report {w} --out {w}/no/page.html", "--out: the directory {w}/no does not exist"),
    ("reproduce", "NAME must be given"),
    ("reproduce nothing", "there is no experiment 'nothing'"),
    ("reproduce absent.toml", "absent.toml"),
    ("reproduce quick --seeds 0", "--seeds must be an integer >= 1"),
    ("reproduce quick --cells x", "no cell of quick matches 'x'"),
    ("reproduce quick --backend slurm", "--backend must be one of 'local', 'ray', got 'slurm'"),
    ("reproduce quick --backend ray", "--backend 'ray' needs Ray: pip install"),
    ("reproduce quick --jobs 0", "--jobs must be an integer >= 1, got 0"),
    ("reproduce quick --budget -1", "--budget must be a finite number >= 0, got -1.0"),
    ("reproduce quick --budget nan", "--budget must be a finite number >= 0, got nan"),
    ("reproduce quick --out {d}/x.csv", "--out must be a directory, but {d}/x.csv is a file"),
    (f"reproduce quick --first-seed {MAX_SEED} --seeds 2", "--seeds must be an integer >= 1 and"),
    ("results {w}/no", "DIRECTORY: {w}/no holds no results"),
    ("results {w}/no --json {w}/no/t.json", "--json: the directory {w}/no does not exist"),
    ("results {w} --format pdf", "--format must be one of"),
    ("results {w} --format parquet", "--export must be given with --format parquet"),
    (
        "results {w} --export t.txt",
        "--export must end in .md, .csv, .parquet, .png without --format, got 't.txt'",
    ),
    ("results {w} --export {w}/no/t.md", "--export: the directory {w}/no does not exist"),
    *(
        (f"{command} {seed}", f"must be an integer >= 0 and <= {MAX_SEED}, got {seed}")
        for command in (
            "demo --seed",
            "fit {d}/x.npy --random-state",
            "evaluate {w}/model {d}/x.npy --truth {d}/z.npy --seed",
            "reproduce quick --first-seed",
        )
        for seed in (-1, 10**20)
    ),
]


@pytest.mark.parametrize(("command", "message"), BAD, ids=[command for command, _ in BAD])
def test_an_error_is_one_line_and_no_file_changes(
    isolatent, files, world, tmp_path, monkeypatch, request, command, message
):
    monkeypatch.setitem(sys.modules, "ray", None)
    write_invalid_files(files, world)
    work = tmp_path / "work"
    work.mkdir()
    if "{w}/model" in command:
        shutil.copytree(request.getfixturevalue("fitted"), work / "model")
    if "damaged" in command:
        shutil.copytree(request.getfixturevalue("fitted"), work / "damaged")
        (work / "damaged" / "model.json").write_text("{}")
    (work / "foreign").mkdir()
    (work / "foreign" / "model.json").write_text('{"precious": true}')
    monkeypatch.chdir(work)
    before = contents(tmp_path)
    done = isolatent(*(word.format(d=files, w=work) for word in command.split()))
    assert done.code == 2
    assert message.format(d=files, w=work) in done.err
    assert "Traceback" not in done.err
    if not done.err.startswith("Usage"):  # a message of typer
        assert done.err.startswith("isolatent: ")
        assert done.err.count("\n") == 1
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.name != "posix" or not os.path.isdir("/proc"), reason="needs /proc")
def test_an_unwritable_directory_is_reported_before_training(isolatent, files):
    """Not even root can make a directory in /proc."""
    done = isolatent("fit", files / "x.npy", "--out", "/proc/model")
    assert done.code == 2
    assert "--out: cannot write in /proc" in done.err
