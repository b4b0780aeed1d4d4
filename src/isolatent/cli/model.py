"""Use a fitted model: encode data, score the codes, describe the model, write reports."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from numpy.typing import NDArray

from isolatent.checks import check_one_of
from isolatent.cli.output import check_writable
from isolatent.files import atomic_write, write_json

if TYPE_CHECKING:
    from isolatent.evaluation import Interval
    from isolatent.pairs.readers import Observations
    from isolatent.report import Page
    from isolatent.training import ContrastiveICA

__all__ = [
    "REPORT_FILE",
    "run_evaluate",
    "run_info",
    "run_report",
    "run_transform",
]

REPORT_FILE = "report.html"  # in the directory of a model or of results
CODE_SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
CONFIDENCE_LEVEL = 0.95


def _check_model(directory: Path) -> None:
    """Raise an error, before torch is imported, if a directory holds no model."""
    if not directory.is_dir():
        raise FileNotFoundError(f"MODEL: {directory} is not a directory")
    for name in ("model.json", "model.safetensors"):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"MODEL: {directory} is not a model, it has no {name}")


def run_transform(
    directory: Path, data: Path, out: Path, session: str | None, overwrite: bool
) -> None:
    """Encode the observations of a file and write the codes to another file."""
    from isolatent.pairs.readers import read_observations

    _check_model(directory)
    check_one_of("--out: the file's suffix", out.suffix.lower(), CODE_SUFFIXES)
    check_writable("--out", out, overwrite)
    if out.exists() and data.exists() and out.samefile(data):
        raise ValueError(f"--out must not be the file of the data, got {out}")
    observed = read_observations(data, session, varying=False)
    model = _load(directory)
    x = _as_fitted(model, data, observed)
    _write_codes(out, _codes(model, x), (len(x), model.n_components))
    typer.echo(f"wrote {out}: {len(x)} rows, {model.n_components} components")


def run_evaluate(
    directory: Path,
    data: Path | None,
    truth: Path,
    session: str | None,
    blocks: str | None,
    random_state: int,
    json_file: Path | None,
    overwrite: bool,
) -> None:
    """Print scores of the codes against true factors; the metric of the guarantee comes first."""
    _check_model(directory)
    groups = None if blocks is None else _parse_blocks(blocks)
    if json_file is not None:
        check_writable("--json", json_file, overwrite)
    source, observed, z = _read_data_and_truth(data, truth, session)
    model = _load(directory)
    h = np.concatenate([*_codes(model, _as_fitted(model, source, observed))])
    guarantee = model.guarantee_
    guaranteed = guarantee.metric if guarantee is not None and guarantee.equivalence else None
    scores = _scores(np.asarray(z), h, guaranteed, groups, random_state)
    _print_scores(scores, guaranteed, len(z))
    typer.echo(f"guarantee: {guarantee}")
    if json_file is not None:
        write_json(
            json_file,
            {
                "model": str(directory),
                "rows": len(z),
                "random_state": random_state,
                "guarantee": str(guarantee),
                "metric": guaranteed,
                "scores": {name: dataclasses.asdict(score) for name, score in scores.items()},
            },
            indent=2,
        )


def _read_data_and_truth(
    data: Path | None, truth: Path, session: str | None
) -> tuple[Path, Observations, NDArray[Any]]:
    """Return the file of the observations, the observations, and their true factors."""
    from isolatent.pairs.readers import read_factors, read_observations

    if data is None and truth.suffix.lower() != ".npz":
        raise ValueError(
            f"--truth must be an .npz with arrays 'x' and 'z' without DATA, got {truth}"
        )
    source = truth if data is None else data
    z = read_factors(truth)
    observed = read_observations(source, session, varying=False)
    if len(z) != len(observed.x):
        raise ValueError(
            f"--truth: {truth.name} has {len(z)} rows of factors, but {source.name} has "
            f"{len(observed.x)} rows of observations"
        )
    return source, observed, z


def run_info(directory: Path) -> None:
    """Print a model's settings, its training and its guarantee."""
    _check_model(directory)
    model = _load(directory)
    for name, value in _facts(model).items():
        typer.echo(f"{name:<12} {value}")
    described = json.loads((directory / "model.json").read_bytes())
    size = sum((directory / name).stat().st_size for name in ("model.json", "model.safetensors"))
    typer.echo(f"{'files':<12} format {described['format']}, {size / 1e6:.2f} MB")
    typer.echo(f"guarantee: {model.guarantee_}")


def run_report(
    directory: Path,
    out: Path | None,
    data: Path | None,
    truth: Path | None,
    session: str | None,
    overwrite: bool,
) -> None:
    """Write the report of a model, or of the results of experiments in a directory."""
    if not directory.is_dir():
        raise FileNotFoundError(f"DIRECTORY: {directory} is not a directory")
    from isolatent.report import is_report, page_of_runs, read_results, write_report

    if out is None:
        out = directory / REPORT_FILE
        overwrite = overwrite or is_report(out)  # an earlier report
    check_writable("--out", out, overwrite)
    if (directory / "model.json").is_file():
        page = _page_of_model(directory, data, truth, session)
    elif data is not None or truth is not None:
        raise ValueError(f"--data and --truth are for a model, but {directory} has no model.json")
    elif results := read_results(directory):
        page = page_of_runs(results)
    else:
        raise FileNotFoundError(
            f"DIRECTORY: {directory} holds neither a model (model.json) nor results of "
            "`isolatent reproduce`"
        )
    write_report(out, page, overwrite=True)  # checked before
    typer.echo(f"wrote {out}")


def _page_of_model(
    directory: Path, data: Path | None, truth: Path | None, session: str | None
) -> Page:
    from isolatent.pairs.readers import read_observations
    from isolatent.report import page_of_fit

    _check_model(directory)
    title = f"Model {directory.resolve().name}"
    if truth is not None:
        source, observed, z = _read_data_and_truth(data, truth, session)
        model = _load(directory)
        return page_of_fit(model, _as_fitted(model, source, observed), z, title=title)
    if data is not None:
        observed = read_observations(data, session, varying=False)
        model = _load(directory)
        return page_of_fit(model, _as_fitted(model, data, observed), title=title)
    return page_of_fit(_load(directory), title=title)


def _facts(model: ContrastiveICA) -> dict[str, str]:
    facts = {
        "beliefs": str(model.beliefs_),
        "sizes": f"{model.n_features_in_} columns to {model.n_components} components",
    }
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        facts["columns"] = ", ".join(map(str, names))
    facts["loss"] = str(model.loss)
    facts["encoder"] = f"{model.encoder}, {_parameters(model)} parameters"
    if model.recipe is not None:
        recipe = dataclasses.asdict(model.recipe)
        facts["recipe"] = ", ".join(f"{name} {value}" for name, value in recipe.items())
    facts["random_state"] = str(model.random_state)
    if model.history_:
        last = model.history_[-1]
        facts["steps"] = f"{last.number} of {last.total}"
        facts["final loss"] = f"{last.loss:.4f}"
        if last.scale is not None:
            facts["scale"] = f"{last.scale:.4f}"
    return facts


def _parameters(model: ContrastiveICA) -> int:
    return sum(parameter.numel() for parameter in model.encoder_.parameters())


def _load(directory: Path) -> ContrastiveICA:
    from isolatent.training import ContrastiveICA

    return ContrastiveICA.load(directory)


def _as_fitted(model: ContrastiveICA, data: Path, observed: Observations) -> NDArray[Any]:
    """Return the observations with their columns in the order of the training data."""
    from isolatent.pairs.readers import columns_by_name

    fitted = getattr(model, "feature_names_in_", None)
    if fitted is not None and observed.names is not None:
        order = columns_by_name(data.name, observed.names, [str(name) for name in fitted])
        return observed.x[:, order]
    if observed.x.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{data.name}: must have {model.n_features_in_} columns like the training data, "
            f"got {observed.x.shape[1]}"
        )
    return observed.x


def _codes(model: ContrastiveICA, x: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield codes in chunks of rows, so that a memory map is never loaded as a whole."""
    from isolatent.pairs.readers import chunks_of_rows

    for rows in chunks_of_rows(x):
        with warnings.catch_warnings():  # columns are already matched by name
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            codes = model.transform(np.array(x[rows]))  # a writable copy for torch
        yield codes


def _write_codes(out: Path, codes: Iterator[NDArray[Any]], shape: tuple[int, int]) -> None:
    """Write the codes atomically."""
    suffix = out.suffix.lower()
    with atomic_write(out) as partial:
        if suffix == ".npy":
            _stream_npy(partial, codes, shape)
        elif suffix == ".npz":
            with partial.open("wb") as file:  # given a path, NumPy would append a suffix
                np.savez(file, h=np.concatenate([*codes]))
        else:
            _write_table(partial, suffix, np.concatenate([*codes]))


def _stream_npy(path: Path, codes: Iterator[NDArray[Any]], shape: tuple[int, int]) -> None:
    with path.open("wb") as file:
        for k, part in enumerate(codes):
            if k == 0:
                header = {
                    "descr": np.lib.format.dtype_to_descr(part.dtype),
                    "fortran_order": False,
                    "shape": shape,
                }
                np.lib.format.write_array_header_1_0(file, header)
            file.write(np.ascontiguousarray(part).tobytes())


def _write_table(path: Path, suffix: str, codes: NDArray[Any]) -> None:
    import pyarrow as arrow
    from pyarrow import csv, parquet

    table = arrow.table({f"h{k}": np.ascontiguousarray(column) for k, column in enumerate(codes.T)})
    if suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)


def _parse_blocks(text: str) -> list[list[int]]:
    try:
        return [[int(factor) for factor in block.split(",")] for block in text.split("/")]
    except ValueError:
        raise ValueError(
            f"--blocks must be indices of factors such as 0,1,2/3,4, got {text!r}"
        ) from None


def _scores(
    z: NDArray[Any],
    h: NDArray[Any],
    guaranteed: str | None,
    blocks: list[list[int]] | None,
    random_state: int,
) -> dict[str, Interval]:
    """Return all scores that apply, that of the guarantee first."""
    from isolatent import evaluation

    names = ["linear_r2", "mcc"] + (["block_r2", "block_mcc"] if blocks is not None else [])
    if guaranteed is not None:
        if guaranteed.startswith("block") and blocks is None:
            raise ValueError(
                f"--blocks must be given: the metric of the guarantee is {guaranteed}, for blocks "
                "of factors with equally wide conditionals, such as --blocks 0,1,2/3,4"
            )
        names = [guaranteed, *(name for name in names if name != guaranteed)]
    scores: dict[str, Interval] = {}
    for name in names:
        options: dict[str, Any] = {"blocks": blocks} if name.startswith("block") else {}
        score = getattr(evaluation, name)
        scores[name] = evaluation.bootstrap(
            score, z, h, confidence_level=CONFIDENCE_LEVEL, random_state=random_state, **options
        )
    return scores


def _print_scores(scores: dict[str, Interval], guaranteed: str | None, rows: int) -> None:
    for name, score in scores.items():
        role = "metric of the guarantee" if name == guaranteed else "for comparison"
        typer.echo(f"{name:<10} {score!s:<28} {role}")
    typer.echo(f"{100 * CONFIDENCE_LEVEL:.0f} % intervals, bootstrap over {rows} rows")
