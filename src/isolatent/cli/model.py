"""Use a fitted model: encode data, score the codes, describe the model, write reports."""

from __future__ import annotations

import dataclasses
import json as json_format
import math
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isolatent.checks import check_one_of
from isolatent.cli.app import (
    REPORT_FILE,
    JsonOutput,
    Model,
    Overwrite,
    Quiet,
    RandomState,
    app,
    check_json,
    check_writable,
    interruptible,
    printer,
    write_result,
)
from isolatent.cli.data_options import (
    ArrayName,
    MaxGap,
    MaxMemory,
    ModelColumns,
    Session,
    Time,
    TruthColumns,
    fit_command,
    model_selection,
    notes_are_said,
    read_data,
    recording_options,
    truth_selection,
)
from isolatent.cli.fit import (
    describe_axes,
    describe_gains,
    describe_model,
)
from isolatent.cli.image_data import encode_images, is_image_data, read_for_model, some_images
from isolatent.files import DamagedFileError, atomic_write
from isolatent.pairs.readers.faults import damaged_as

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import TypeIs

    from isolatent.evaluation import Interval
    from isolatent.pairs import Images
    from isolatent.pairs.readers import Observations
    from isolatent.training import ContrastiveICA

__all__ = ["diagnose", "evaluate", "info", "report", "transform"]

CODE_SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
PAGE_SUFFIXES = (".html", ".htm")
CONFIDENCE_LEVEL = 0.95
BOOTSTRAP_STRETCHES = 20  # of a recording: neighbouring rows are no independent evidence
RESULTS_DEPTH = 4  # levels of directories in which results are looked for
MAX_ENTRIES = 20_000  # that are looked at before a folder is taken to hold other things


@app.command()
@interruptible()
def transform(
    context: typer.Context,
    model: Model,
    data: Annotated[Path, typer.Argument(help="Observations, in a file as for fit.")],
    out: Annotated[
        Path,
        typer.Option(
            help="File for the codes: .npy, .npz (array h), .csv or .parquet.  All but .npy also "
            "have the row, the session and the time of each code, as far as DATA has them."
        ),
    ] = Path("codes.npy"),
    columns: ModelColumns = None,
    time: Time = None,
    session: Session = None,
    array: ArrayName = None,
    max_memory: MaxMemory = None,
    overwrite: Overwrite = False,
    json: JsonOutput = None,
) -> None:
    """Encode observations: write the recovered factors."""
    check_one_of("--out: the file's suffix", out.suffix.lower(), CODE_SUFFIXES)
    check_writable("--out", out, overwrite)
    check_json(json, overwrite)
    if out.exists() and data.exists() and out.samefile(data):
        raise ValueError(f"--out must not be the file of the data, got {out}")
    fitted = _load(model, data)
    say = printer(json)
    observed = _read(model, fitted, data, context.params, say)
    h = _encode(fitted, observed)
    _write_codes(out, h, observed)
    counted = f"{len(h)} rows, {fitted.n_components} components"
    n_incomplete = getattr(observed, "n_incomplete", 0)
    if n_incomplete:
        counted += f"; {n_incomplete} rows with missing values have no codes"
    say(f"wrote {out}: {counted}")
    write_result(
        json,
        {
            "codes": str(out),
            "rows": len(h),
            "n_components": fitted.n_components,
            "incomplete_rows": n_incomplete,
        },
    )


@app.command()
@interruptible()
def evaluate(
    context: typer.Context,
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
    truth_columns: TruthColumns = None,
    columns: ModelColumns = None,
    time: Time = None,
    session: Session = None,
    array: ArrayName = None,
    max_memory: MaxMemory = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            help="Blocks of factors with equally wide conditionals, as indices such as 0,1,2/3,4."
        ),
    ] = None,
    random_state: RandomState = 0,
    json: JsonOutput = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Score codes against the true factors."""
    groups = None if blocks is None else _parse_blocks(blocks)
    check_json(json, overwrite)
    fitted = _load(model, data, truth)
    say = printer(json)
    note: Callable[[str], None] = say if not quiet else lambda line: None
    observed, z = _read_with_truth(model, fitted, data, truth, context.params, note)
    guarantee = fitted.guarantee_
    guaranteed = guarantee.metric if guarantee is not None and guarantee.equivalence else None
    if groups is not None:
        from isolatent.evaluation.blocks import check_blocks

        check_blocks(groups, z.shape[1])
    progress = _progress(quiet)
    progress(f"encoding {len(z)} rows")
    h = _encode(fitted, observed)
    known = observed.complete if _has_rows(observed) else slice(None)
    z, h = z[known], h[known]
    # Neighbouring rows of a recording are alike, so that stretches of them are drawn.
    stretch = max(1, len(z) // BOOTSTRAP_STRETCHES) if fitted._has_recording else 1
    scores = _scores(z, h, guaranteed, groups, random_state, stretch, progress)
    for name, score in scores.items():
        role = "metric of the guarantee" if name == guaranteed else "for comparison"
        say(f"{name:<10} {score!s:<28} {role}")
    drawn = f"{len(z)} rows" if stretch == 1 else f"stretches of {stretch} of {len(z)} rows"
    say(f"{100 * CONFIDENCE_LEVEL:.0f} % intervals, bootstrap over {drawn}")
    say(f"guarantee: {guarantee}")
    content = {
        "model": str(model),
        "rows": len(z),
        "random_state": random_state,
        "block_rows": stretch,
        "guarantee": str(guarantee),
        "metric": guaranteed,
        "scores": {name: dataclasses.asdict(score) for name, score in scores.items()},
    }
    write_result(json, content)


@app.command()
@interruptible()
def diagnose(
    context: typer.Context,
    model: Model,
    data: Annotated[
        Path, typer.Argument(help="Pairs or a recording, in a file as for fit; those of fit do.")
    ],
    data_pos: Annotated[
        Path | None, typer.Argument(help="Positives of DATA, row by row, in a second file.")
    ] = None,
    columns: ModelColumns = None,
    time: Time = None,
    session: Session = None,
    max_gap: MaxGap = 0,
    array: ArrayName = None,
    max_memory: MaxMemory = None,
    random_state: RandomState = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes, of which two can be used.")] = 1,
    json: JsonOutput = None,
    overwrite: Overwrite = False,
) -> None:
    """Check on data whether to believe a model."""
    check_json(json, overwrite)
    fitted = _load(model, data, data_pos)
    from isolatent import diagnosis

    say = printer(json)
    selection = model_selection(model, fitted, context.params)
    selection = dataclasses.replace(selection, anchors_only=False)
    observed = read_data(data, data_pos, selection, say, varying=False)
    with notes_are_said():  # and columns are matched by name
        found = diagnosis.diagnose(
            *(fitted, observed.x, observed.x_pos),
            **recording_options(observed, max_gap),
            random_state=random_state,
            n_jobs=jobs,
        )
    say(str(found))
    write_result(json, found.to_dict())


@app.command()
@interruptible()
def info(model: Model, json: JsonOutput = None, overwrite: Overwrite = False) -> None:
    """Print the settings and the guarantee of a model."""
    check_json(json, overwrite)
    fitted = _load(model)
    say = printer(json)
    facts = _facts(fitted)
    for name, value in facts.items():
        say(f"{name:<12} {value}")
    with damaged_as(model / "model.json"):
        described = json_format.loads((model / "model.json").read_bytes())
    size = sum((model / name).stat().st_size for name in ("model.json", "model.safetensors"))
    say(f"{'files':<12} format {described['format']}, {size / 1e6:.2f} MB")
    say(f"guarantee: {fitted.guarantee_}")
    for line in (
        *describe_gains(fitted),
        *describe_axes(fitted),
    ):
        say(line)
    names = getattr(fitted, "feature_names_in_", None)
    content = {
        "model": str(model),
        "format": described["format"],
        "bytes": size,
        "n_components": fitted.n_components,
        "n_features": fitted.n_features_in_,
        "columns": None if names is None else [*map(str, names)],
        "parameters": facts,
        **describe_model(fitted),
        "metric": None if fitted.guarantee_ is None else fitted.guarantee_.metric,
    }
    write_result(json, content)


@app.command()
@interruptible()
def report(
    context: typer.Context,
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
    data_pos: Annotated[
        Path | None,
        typer.Option(
            help="Positives of --data, row by row, in a second file: to colour codes by the "
            "relatedness of pairs where it was learned."
        ),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="True factors of the observations, as for evaluate.")
    ] = None,
    diagnosis: Annotated[
        Path | None, typer.Option(help="What `isolatent diagnose --json` printed about the model.")
    ] = None,
    truth_columns: TruthColumns = None,
    columns: ModelColumns = None,
    time: Time = None,
    session: Session = None,
    array: ArrayName = None,
    max_memory: MaxMemory = None,
    overwrite: Overwrite = False,
    json: JsonOutput = None,
) -> None:
    """Write an HTML report about a model or about results."""
    if not directory.is_dir():
        raise FileNotFoundError(f"DIRECTORY: {directory} is not a directory")
    is_model = (directory / "model.json").is_file()
    if data_pos is not None and data is None:
        raise ValueError(f"--data-pos needs --data, whose positives it holds, got {data_pos}")
    if not is_model and any(given is not None for given in (data, truth, diagnosis)):
        raise ValueError(
            f"--data, --truth and --diagnosis are for a model, but {directory} has no model.json"
        )
    check_json(json, overwrite)
    target = directory / REPORT_FILE if out is None else out
    if target.suffix.lower() not in PAGE_SUFFIXES:
        raise ValueError(f"--out must end in .html, got {target}")  # and cannot replace data
    if not (out is None and target.exists()):
        check_writable("--out", target, overwrite)
    if not is_model and not holds_results(directory):
        raise FileNotFoundError(
            f"DIRECTORY: {directory} holds neither a model (model.json) nor results of "
            "`isolatent reproduce`"
        )
    from isolatent.report import (
        is_report,
        page_of_fit,
        page_of_runs,
        read_diagnosis,
        read_results,
        write_report,
    )

    # An earlier report at the default place is replaced.
    check_writable("--out", target, overwrite or (out is None and is_report(target)))
    if is_model:
        checked = None if diagnosis is None else read_diagnosis(diagnosis)
        fitted = _load(directory, data, data_pos, truth)
        say = printer(json)
        observed: Observations | Images | None = None
        z: NDArray[Any] | None = None
        if truth is not None:
            observed, z = _read_with_truth(directory, fitted, data, truth, context.params, say)
        elif data is not None:
            observed = _read(directory, fitted, data, context.params, say)
        page = page_of_fit(
            fitted,
            **_to_show(observed, z),
            command=fit_command(directory),
            diagnosis=checked,
            title=f"Model {directory.resolve().name}",
        )
    elif results := read_results(directory):
        page = page_of_runs(results)
    else:
        raise DamagedFileError(directory, "its experiments hold no results")
    write_report(target, page, overwrite=True)  # checked before
    printer(json)(f"wrote {target}")
    write_result(json, {"report": str(target)})


def _to_show(observed: Observations | Images | None, z: NDArray[Any] | None) -> dict[str, Any]:
    """Return what a page shows of complete rows, or of some images, by the arguments' names."""
    if observed is None:
        return {"X": None, "factors": z}
    if not _has_rows(observed):
        x, rows = some_images(observed)
        return {"X": x, "factors": None if z is None else z[rows]}
    known = observed.complete
    given = {"X": observed.x, "X_pos": observed.x_pos, "factors": z}
    given |= {"groups": observed.groups, "times": observed.times}
    columns = observed.columns if observed.others else None  # else the page takes those of X
    if not known.all():
        given = {name: None if part is None else part[known] for name, part in given.items()}
        columns = columns and {name: values[known] for name, values in columns.items()}
    return given | {"columns": columns}


def holds_results(directory: Path) -> bool:
    """Return whether results of ``reproduce`` are near: a folder of other things is not walked."""
    level, count = [directory], 0
    for _ in range(RESULTS_DEPTH + 1):
        below: list[Path] = []
        for folder in level:
            if any((folder / "experiments").glob("*.json")):
                return True
            for child in folder.iterdir():
                count += 1
                if count > MAX_ENTRIES:
                    return False
                if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
                    below.append(child)
        level = below
    return False


def _load(directory: Path, *data: Path | None) -> ContrastiveICA:
    """Load a model, after a look at the files that it is used for."""
    if not directory.is_dir():
        raise FileNotFoundError(f"MODEL: {directory} is not a directory")
    for name in ("model.json", "model.safetensors"):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"MODEL: {directory} is not a model, it has no {name}")
    from isolatent.pairs.readers import check_data_path

    for path in data:
        if path is not None and not is_image_data(path):
            check_data_path(path)
    from isolatent.training import ContrastiveICA

    return ContrastiveICA.load(directory)


def _read(
    directory: Path,
    model: ContrastiveICA,
    data: Path,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> Observations | Images:
    """Read observations, with their columns in the order of the training data."""
    shape = model.observation_shape_
    if is_image_data(data) and (data.suffix.lower() != ".npy" or len(shape) == 3):
        if options.get("session") is not None:
            raise ValueError(f"--session is for tables and arrays of rows, got DATA {data}")
        return read_for_model(model, data, options.get("max_memory"))
    selection = model_selection(directory, model, options)
    pairs = "data_pos" in options and "pairing" in model.relaxed_  # which positives tell apart
    selection = dataclasses.replace(selection, anchors_only=not pairs)
    second = options["data_pos"] if pairs else None
    observed = read_data(data, second, selection, say, varying=False)
    n_columns = math.prod(observed.x.shape[1:])
    if n_columns != model.n_features_in_:
        raise ValueError(
            f"{data.name}: must have {model.n_features_in_} columns like the training data, "
            f"got {n_columns}"
        )
    return observed


def _read_with_truth(
    directory: Path,
    model: ContrastiveICA,
    data: Path | None,
    truth: Path,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> tuple[Observations | Images, NDArray[Any]]:
    """Read observations and their true factors."""
    from isolatent.pairs.readers import read_factors

    if data is None and truth.suffix.lower() != ".npz":
        raise ValueError(
            f"--truth must be an .npz with arrays 'x' and 'z' without DATA, got {truth}"
        )
    if data is None and zipfile.is_zipfile(truth):
        with zipfile.ZipFile(truth) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        if not {"x", "z"} <= {*names}:
            listed = ", ".join(map(repr, names))
            raise ValueError(
                f"without DATA --truth needs arrays 'x' and 'z'; {truth.name} has {listed}"
            )
    source = truth if data is None else data
    selection = model_selection(directory, model, options)
    factors = read_factors(truth, truth_selection(selection, options))
    for line in factors.notes:
        say(f"{truth.name}: {line}")
    z = factors.x
    observed = _read(directory, model, source, options, say)
    n_rows = len(observed.x) if _has_rows(observed) else len(observed)
    if len(z) != n_rows:
        raise ValueError(
            f"--truth: {truth.name} has {len(z)} rows of factors, but {source.name} has "
            f"{n_rows} rows of observations"
        )
    return observed, z


def _has_rows(observed: Observations | Images) -> TypeIs[Observations]:
    """Return whether observations are rows of an array, and not images that are read in parts."""
    return hasattr(observed, "n_incomplete")


def _encode(model: ContrastiveICA, observed: Observations | Images) -> NDArray[Any]:
    """Return codes; those of rows with missing values are NaN."""
    import numpy as np

    if not _has_rows(observed):
        return encode_images(model, observed)
    with warnings.catch_warnings():  # columns are already matched by name
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        if model.window > 1:
            return model.transform(observed.x, groups=observed.groups, times=observed.times)
        known = observed.complete
        if known.all():
            return model.transform(observed.x)
        codes = np.full((len(known), model.n_components), np.nan)
        if known.any():
            codes[known] = model.transform(observed.x[known])
        return codes


def _progress(quiet: bool) -> Callable[[str], None]:
    """Return a function that prints a line of progress to standard error."""
    return (lambda line: None) if quiet else (lambda line: typer.echo(line, err=True))


def _write_codes(out: Path, codes: NDArray[Any], observed: Observations | Images) -> None:
    """Write codes with the row, the name, the session and the time of each."""
    import numpy as np

    suffix = out.suffix.lower()
    about: dict[str, Any] = {"row": np.arange(len(codes))}
    for name, values in (
        ("id", getattr(observed, "row_ids", None)),
        ("session", observed.groups),
        ("time", getattr(observed, "times", None)),
    ):
        if values is not None:
            about[name] = values
    with atomic_write(out) as partial:
        if suffix in (".npy", ".npz"):
            with partial.open("wb") as file:  # given a path, NumPy would append a suffix
                if suffix == ".npy":
                    np.save(file, codes)
                else:
                    np.savez(file, h=codes, **about)
            return
        import pyarrow
        from pyarrow import csv, parquet

        columns = about | {f"h{k}": np.ascontiguousarray(h) for k, h in enumerate(codes.T)}
        table = pyarrow.table(
            {name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()}
        )
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
    block_rows: int,
    progress: Callable[[str], None],
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
    for number, name in enumerate(names, start=1):
        progress(f"scoring {name} ({number} of {len(names)})")
        options: dict[str, Any] = {"blocks": blocks} if name.startswith("block") else {}
        metric = getattr(evaluation, name)
        scores[name] = evaluation.bootstrap(
            metric,
            z,
            h,
            confidence_level=CONFIDENCE_LEVEL,
            random_state=random_state,
            block_rows=block_rows,
            **options,
        )
    return scores
