"""Use a fitted model: encode data, score the codes, describe the model, write reports."""

from __future__ import annotations

import dataclasses
import json as json_format
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from isolatent.checks import check_one_of
from isolatent.cli.app import (
    REPORT_FILE,
    Model,
    Overwrite,
    RandomState,
    Scores,
    Session,
    app,
    check_writable,
    interruptible,
)
from isolatent.cli.fit import describe_axes, describe_directions, describe_gains
from isolatent.cli.image_data import encode_images, is_image_data, read_for_model, some_images
from isolatent.files import atomic_write, write_json

if TYPE_CHECKING:
    from isolatent.evaluation import Interval
    from isolatent.pairs import Images
    from isolatent.training import ContrastiveICA

__all__ = ["diagnose", "evaluate", "info", "report", "transform"]

CODE_SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
CONFIDENCE_LEVEL = 0.95


@app.command()
@interruptible()
def transform(
    model: Model,
    data: Annotated[Path, typer.Argument(help="Observations, in a file as for fit.")],
    out: Annotated[
        Path, typer.Option(help="File for the codes: .npy, .npz (array h), .csv or .parquet.")
    ] = Path("codes.npy"),
    session: Session = None,
    overwrite: Overwrite = False,
) -> None:
    """Encode observations: write the recovered factors."""
    check_one_of("--out: the file's suffix", out.suffix.lower(), CODE_SUFFIXES)
    check_writable("--out", out, overwrite)
    if out.exists() and data.exists() and out.samefile(data):
        raise ValueError(f"--out must not be the file of the data, got {out}")
    fitted = _load(model)
    h = _encode(fitted, _read(fitted, data, session))
    _write_codes(out, h)
    typer.echo(f"wrote {out}: {len(h)} rows, {fitted.n_components} components")


@app.command()
@interruptible()
def evaluate(
    model: Model,
    truth: Annotated[
        Path,
        typer.Option(
            help="True factors, one row for each row of DATA: array z of an .npz, or a file as for "
            "fit."
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Observations, in a file as for fit.  [default: array x of the --truth file]"
        ),
    ] = None,
    session: Session = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            help="Blocks of factors with equally wide conditionals, as indices such as 0,1,2/3,4."
        ),
    ] = None,
    random_state: RandomState = 0,
    json: Scores = None,
    overwrite: Overwrite = False,
) -> None:
    """Score codes against the true factors."""
    groups = None if blocks is None else _parse_blocks(blocks)
    check_writable("--json", json, overwrite)
    fitted = _load(model)
    x, z = _read_with_truth(fitted, data, truth, session)
    guarantee = fitted.guarantee_
    guaranteed = guarantee.metric if guarantee is not None and guarantee.equivalence else None
    scores = _scores(np.asarray(z), _encode(fitted, x), guaranteed, groups, random_state)
    for name, score in scores.items():
        role = "metric of the guarantee" if name == guaranteed else "for comparison"
        typer.echo(f"{name:<10} {score!s:<28} {role}")
    typer.echo(f"{100 * CONFIDENCE_LEVEL:.0f} % intervals, bootstrap over {len(z)} rows")
    typer.echo(f"guarantee: {guarantee}")
    if json is not None:
        content = {
            "model": str(model),
            "rows": len(z),
            "random_state": random_state,
            "guarantee": str(guarantee),
            "metric": guaranteed,
            "scores": {name: dataclasses.asdict(score) for name, score in scores.items()},
        }
        write_json(json, content, indent=2)


@app.command()
@interruptible()
def diagnose(
    model: Model,
    data: Annotated[
        Path, typer.Argument(help="Pairs or a recording, in a file as for fit; those of fit do.")
    ],
    data_pos: Annotated[
        Path | None, typer.Argument(help="Positives of DATA, row by row, in a second file.")
    ] = None,
    session: Session = None,
    random_state: RandomState = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes, of which two can be used.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON.")] = False,
) -> None:
    """Check on data whether to believe a model."""
    fitted = _load(model)
    from isolatent import diagnosis
    from isolatent.pairs.readers import columns_by_name, read_observations, read_pairs

    if data_pos is None:
        observed = read_observations(data, session)
    else:
        observed = read_pairs(data, data_pos, session)
    x, x_pos = observed.x, observed.x_pos
    names = getattr(fitted, "feature_names_in_", None)
    if names is not None and observed.names is not None:
        order = columns_by_name(data.name, observed.names, [str(name) for name in names])
        x, x_pos = x[:, order], None if x_pos is None else x_pos[:, order]
    with warnings.catch_warnings():  # columns are already matched by name
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        found = diagnosis.diagnose(
            *(fitted, x, x_pos),
            groups=None if x_pos is not None else observed.groups,
            random_state=random_state,
            n_jobs=jobs,
        )
    typer.echo(json_format.dumps(found.to_dict(), indent=2) if json else str(found))


@app.command()
@interruptible()
def info(model: Model) -> None:
    """Print the settings and the guarantee of a model."""
    fitted = _load(model)
    for name, value in _facts(fitted).items():
        typer.echo(f"{name:<12} {value}")
    described = json_format.loads((model / "model.json").read_bytes())
    size = sum((model / name).stat().st_size for name in ("model.json", "model.safetensors"))
    typer.echo(f"{'files':<12} format {described['format']}, {size / 1e6:.2f} MB")
    typer.echo(f"guarantee: {fitted.guarantee_}")
    for line in (
        *describe_directions(fitted),
        *describe_gains(fitted),
        *describe_axes(fitted),
    ):
        typer.echo(line)


@app.command()
@interruptible()
def report(
    directory: Annotated[
        Path, typer.Argument(help="Directory of a model saved by fit, or of results of reproduce.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file for the report.  [default: report.html in DIRECTORY]"),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Observations to encode with the model, as for fit.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="True factors of the observations, as for evaluate.")
    ] = None,
    diagnosis: Annotated[
        Path | None, typer.Option(help="What `isolatent diagnose --json` printed about the model.")
    ] = None,
    session: Session = None,
    overwrite: Overwrite = False,
) -> None:
    """Write an HTML report about a model or about results."""
    if not directory.is_dir():
        raise FileNotFoundError(f"DIRECTORY: {directory} is not a directory")
    from isolatent.report import (
        is_report,
        page_of_fit,
        page_of_runs,
        read_diagnosis,
        read_results,
        write_report,
    )

    if out is None:
        out = directory / REPORT_FILE
        overwrite = overwrite or is_report(out)  # an earlier report
    check_writable("--out", out, overwrite)
    if (directory / "model.json").is_file():
        checked = None if diagnosis is None else read_diagnosis(diagnosis)
        fitted = _load(directory)
        x: NDArray[Any] | Images | None = None
        z: NDArray[Any] | None = None
        groups: NDArray[Any] | None = None
        if truth is not None:
            x, z = _read_with_truth(fitted, data, truth, session)
        elif data is not None:
            x, groups = _read_rows(fitted, data, session)
        if x is not None and not isinstance(x, np.ndarray):
            x, rows = some_images(x)
            z = None if z is None else z[rows]
        page = page_of_fit(
            *(fitted, x, z),
            groups=groups,
            diagnosis=checked,
            title=f"Model {directory.resolve().name}",
        )
    elif any(given is not None for given in (data, truth, diagnosis)):
        raise ValueError(
            f"--data, --truth and --diagnosis are for a model, but {directory} has no model.json"
        )
    elif results := read_results(directory):
        page = page_of_runs(results)
    else:
        raise FileNotFoundError(
            f"DIRECTORY: {directory} holds neither a model (model.json) nor results of "
            "`isolatent reproduce`"
        )
    write_report(out, page, overwrite=True)  # checked before
    typer.echo(f"wrote {out}")


def _load(directory: Path) -> ContrastiveICA:
    if not directory.is_dir():
        raise FileNotFoundError(f"MODEL: {directory} is not a directory")
    for name in ("model.json", "model.safetensors"):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"MODEL: {directory} is not a model, it has no {name}")
    from isolatent.training import ContrastiveICA

    return ContrastiveICA.load(directory)


def _read(model: ContrastiveICA, data: Path, session: str | None) -> NDArray[Any] | Images:
    """Read observations, with their columns in the order of the training data."""
    return _read_rows(model, data, session)[0]


def _read_rows(
    model: ContrastiveICA, data: Path, session: str | None
) -> tuple[NDArray[Any] | Images, NDArray[Any] | None]:
    """Read observations, with their columns in the order of the training data, and sessions."""
    from isolatent.pairs.readers import columns_by_name, read_observations

    if is_image_data(data):
        if session is not None:
            raise ValueError(f"--session is for tables and arrays of rows, got DATA {data}")
        return read_for_model(model, data), None
    observed = read_observations(data, session, varying=False)
    fitted = getattr(model, "feature_names_in_", None)
    if fitted is not None and observed.names is not None:
        order = columns_by_name(data.name, observed.names, [str(name) for name in fitted])
        return observed.x[:, order], observed.groups
    if observed.x.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{data.name}: must have {model.n_features_in_} columns like the training data, "
            f"got {observed.x.shape[1]}"
        )
    return observed.x, observed.groups


def _read_with_truth(
    model: ContrastiveICA, data: Path | None, truth: Path, session: str | None
) -> tuple[NDArray[Any] | Images, NDArray[Any]]:
    """Read observations and their true factors."""
    from isolatent.pairs.readers import read_factors

    if data is None and truth.suffix.lower() != ".npz":
        raise ValueError(
            f"--truth must be an .npz with arrays 'x' and 'z' without DATA, got {truth}"
        )
    source = truth if data is None else data
    z = read_factors(truth)
    x = _read(model, source, session)
    if len(z) != len(x):
        raise ValueError(
            f"--truth: {truth.name} has {len(z)} rows of factors, but {source.name} has "
            f"{len(x)} rows of observations"
        )
    return x, z


def _encode(model: ContrastiveICA, x: NDArray[Any] | Images) -> NDArray[Any]:
    if not isinstance(x, np.ndarray):
        return encode_images(model, x)
    with warnings.catch_warnings():  # columns are already matched by name
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return model.transform(x)


def _write_codes(out: Path, codes: NDArray[Any]) -> None:
    suffix = out.suffix.lower()
    with atomic_write(out) as partial:
        if suffix in (".npy", ".npz"):
            with partial.open("wb") as file:  # given a path, NumPy would append a suffix
                if suffix == ".npy":
                    np.save(file, codes)
                else:
                    np.savez(file, h=codes)
            return
        import pyarrow
        from pyarrow import csv, parquet

        columns = [np.ascontiguousarray(column) for column in codes.T]
        table = pyarrow.table(columns, names=[f"h{k}" for k in range(len(columns))])
        if suffix == ".csv":
            csv.write_csv(table, partial)
        else:
            parquet.write_table(table, partial)


def _facts(model: ContrastiveICA) -> dict[str, str]:
    facts = {
        "beliefs": model.declaration,
        "sizes": f"{model.n_features_in_} columns to {model.n_components} components",
    }
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        facts["columns"] = ", ".join(map(str, names))
    if model.counts:
        facts["counts"] = "transformed by 2 √(x + 3/8)"
    facts["loss"] = str(model.loss)
    if model.relaxed_ or model.gains_:
        used = ", ".join(model.relaxed_) or "none"
        facts["relaxed"] = f"{used} (auto)" if model.gains_ else used
    count = sum(parameter.numel() for parameter in model.encoder_.parameters())
    facts["encoder"] = f"{model.encoder}, {count} parameters"
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
        names = list(dict.fromkeys([guaranteed, *names]))
    scores = {}
    for name in names:
        options: dict[str, Any] = {"blocks": blocks} if name.startswith("block") else {}
        metric = getattr(evaluation, name)
        scores[name] = evaluation.bootstrap(
            metric, z, h, confidence_level=CONFIDENCE_LEVEL, random_state=random_state, **options
        )
    return scores
