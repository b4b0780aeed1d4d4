"""Fit a model to files; all arguments and data are checked before training starts."""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isolatent.checks import check_integer, check_one_of
from isolatent.cli.app import (
    REPORT_FILE,
    JsonOutput,
    Quiet,
    RandomState,
    app,
    check_json,
    command_line,
    interruptible,
    printer,
    write_result,
)
from isolatent.cli.data_options import (
    ArrayName,
    Columns,
    Drop,
    MaxGap,
    MaxMemory,
    PositiveSuffix,
    Session,
    Time,
    Transpose,
    Window,
    data_selection,
    notes_are_said,
    read_data,
    recording_options,
    write_data_record,
)
from isolatent.cli.image_data import (
    IMAGE_ENCODER_NAMES,
    ImageData,
    check_image_options,
    is_image_data,
    read_image_data,
    some_images,
)
from isolatent.files import LOCK_FILE, DamagedFileError, lock_directory, read_json, write_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from isolatent.diagnosis import Diagnosis
    from isolatent.pairs.readers import Observations, Selection
    from isolatent.report import LiveReport
    from isolatent.training import ContrastiveICA, Step

__all__ = [
    "check_out",
    "describe_axes",
    "describe_gains",
    "describe_model",
    "fit",
    "is_first_process",
]

MAX_DEFAULT_COMPONENTS = 10
DIAGNOSIS_FILE = "diagnosis.json"  # in the directory of a model, with --diagnose
ENCODERS_OF_ROWS = ("mlp", "deep", "paper")
FIT_LOSSES = ("infonce", "aninfonce", "nce", "scl", "nwj")
PRECISION_NAMES = {"32": "32-true", "bf16-mixed": "bf16-mixed"}  # of the option, and of lightning
# Options that are parameters of ContrastiveICA.
PARAMETERS = (
    *("space", "marginal", "conditional", "p", "loss", "counts", "noise_share", "random_state"),
    *("accelerator", "devices", "num_nodes"),
)


@app.command()
def fit(
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Argument(
            help="Observations, one per row: .csv, .tsv or .txt (with a header line), .parquet, "
            ".npy, .npz, .h5, .mat, .nwb, .h5ad, .zarr or .nc; or a folder of images, or a video."
        ),
    ],
    data_pos: Annotated[
        Path | None,
        typer.Argument(
            help="Positive samples, one for each row of DATA. Without them, DATA is a time series."
        ),
    ] = None,
    columns: Columns = None,
    drop: Drop = None,
    time: Time = None,
    session: Session = None,
    positive_suffix: PositiveSuffix = None,
    array: ArrayName = None,
    transpose: Transpose = False,
    max_memory: MaxMemory = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="Space of the factors: sphere, box, euclidean, cubegrid or hollowball.  [default: "
            "nothing is declared]"
        ),
    ] = None,
    marginal: Annotated[
        str | None,
        typer.Option(
            help="Marginal distribution of the factors: uniform, normal or unknown.  [default: "
            "unknown if nothing is declared, normal if euclidean, else uniform]",
        ),
    ] = None,
    conditional: Annotated[
        str | None,
        typer.Option(
            help="Conditional distribution of a positive's factors: vmf, normal, laplace, gennorm "
            "or anisotropic.  [default: vmf on the sphere, else normal]"
        ),
    ] = None,
    p: Annotated[
        float | None, typer.Option(help="Exponent of the gennorm conditional, at least 1.")
    ] = None,
    n_components: Annotated[
        int | None,
        typer.Option(
            help="Number of codes: as many as factors, and one more on a sphere.  [default: number "
            "of columns, at most 10]"
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Encoder: mlp, deep or paper for rows of columns; pooled (fast on a CPU), conv or "
            "residual for images.  [default: mlp, or pooled for images]"
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="Contrastive loss: infonce, aninfonce, nce, scl or nwj.")
    ] = "infonce",
    relax: Annotated[
        str | None,
        typer.Option(
            help="Assumptions to learn instead: pairing, anchor_scale, factor_scale, marginal, "
            "dynamics or noise, separated by commas, auto for those that held-out pairs support, "
            "or none.  [default: auto if nothing is declared, else none]"
        ),
    ] = None,
    noise_share: Annotated[
        float | None,
        typer.Option(
            help="With --relax noise: share of the spread within pairs that is noise, from 0 to "
            "1.  [default: 1, with a warning]"
        ),
    ] = None,
    axes: Annotated[
        str | None,
        typer.Option(
            help="How to align free codes with single factors: ica (by independence), dynamics (by "
            "time scales and frequencies), auto (by what the data support best) or none.  "
            "[default: auto if nothing is declared, else none]"
        ),
    ] = None,
    counts: Annotated[
        bool,
        typer.Option("--counts", help="The data are counts, such as spikes: transform them first."),
    ] = False,
    random_state: RandomState = 0,
    out: Annotated[
        Path, typer.Option(help="Directory for the model, its checkpoints and its report.")
    ] = Path("model"),
    max_steps: Annotated[
        int | None, typer.Option(help="Maximum number of training steps.  [default: 50000]")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Number of pairs per step.  [default: 1024, less for small data]"),
    ] = None,
    lag: Annotated[
        str | None,
        typer.Option(
            help="Maximum lag of a positive in a time series, in rows, or the shortest and the "
            "longest, such as 3:3.  [default: 1]"
        ),
    ] = None,
    window: Window = 1,
    max_gap: MaxGap = 0,
    unpaired: Annotated[
        Path | None,
        typer.Option(
            help="For pairs: file of further observations without a partner, with the same columns."
        ),
    ] = None,
    n_init: Annotated[
        str,
        typer.Option(
            help="Number of short runs from different weights, the best of which goes on, or auto: "
            "two or more, and one with --max-steps or --batch-size."
        ),
    ] = "auto",
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="For images: table (.csv or .parquet) of pairs, with the columns anchor and "
            "positive, which hold names of files in DATA.  [default: neighbours in the order of "
            "names, within a folder or video]"
        ),
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            help="For images: make pairs of two random views of each, by crop, flip, brightness, "
            "contrast, saturation, hue or grayscale, separated by commas, or all."
        ),
    ] = None,
    image_size: Annotated[
        str | None,
        typer.Option(
            help="For images: height and width in pixels to which they are resized, such as 64 or "
            "48x64.  [default: 64 for larger ones]"
        ),
    ] = None,
    grayscale: Annotated[
        bool, typer.Option("--grayscale", help="For images: convert colours to luma.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint in --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing model in --out.")
    ] = False,
    quiet: Quiet = False,
    devices: Annotated[
        int, typer.Option(help="Number of GPUs, or of processes on the CPU, per machine.")
    ] = 1,
    num_nodes: Annotated[int, typer.Option(help="Number of machines.")] = 1,
    accelerator: Annotated[str, typer.Option(help="Device type: auto, cpu, cuda or mps.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="Floating-point precision of the encoder: 32 or bf16-mixed.")
    ] = "32",
    log: Annotated[
        str | None,
        typer.Option(
            help="Log of all training steps in --out: csv, to log.csv, or tensorboard, to the "
            "directory tensorboard."
        ),
    ] = None,
    diagnosed: Annotated[
        bool,
        typer.Option(
            "--diagnose", help="Also check on the data whether to believe the model, as diagnose."
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Keep report.html in --out current while training runs; a browser reloads it.",
        ),
    ] = False,
    json: JsonOutput = None,
) -> None:
    """Train a model on pairs or on a time series."""
    first = is_first_process(devices, num_nodes)
    say = printer(json) if first else (lambda line: None)
    with ExitStack() as stack, interruptible(lambda: _resume_advice(out) if first else None):
        _check_options(context.params)
        trials = encoder in ENCODERS_OF_ROWS and data.suffix.lower() == ".npy"
        is_image = is_image_data(data) and not trials
        check_image_options(context.params, is_image)
        if is_image and diagnosed:
            raise ValueError("--diagnose is for rows of numbers, but DATA holds images")
        if first:  # the others may start after it has created files
            check_out(out, overwrite=overwrite, resume=resume)
            check_json(json, overwrite)
            stack.enter_context(lock_directory(out))
        observed: Observations | ImageData
        selection = data_selection(context.params, images=encoder in IMAGE_ENCODER_NAMES)
        if is_image:
            observed = read_image_data(context.params, _parse_lag(lag), quiet or not first)
            n_features = math.prod(observed.images.shape[1:])
        else:
            observed = _read(data, data_pos, selection, lag, say if not quiet else _say_nothing)
            n_features = math.prod(observed.x.shape[1:])
        most = n_features + (space == "sphere")
        if n_components is not None and n_components > most:  # before torch is imported
            raise _too_many_components(n_components, most, n_features)
        _check_beliefs(context.params)
        model = _build(context.params, n_features, is_image)
        _check_sizes(model, n_features)
        if not quiet:
            notes = observed.notes if isinstance(observed, ImageData) else ()  # others were said
            for line in (*notes, _summary(observed, model)):
                say(line)
            if model.recipe is not None and model.n_init == "auto":
                say("starts once: --n-init compares several starts with these settings, too")
            say(f"to be claimed: {model.expected_guarantee()}")
        live = _live_report(observed, model, data, out, say) if watch and first else None
        extra: dict[str, Any] = {}
        if not isinstance(observed, ImageData):
            extra = {"groups": observed.groups, "times": observed.times, "max_gap": max_gap}
            if unpaired is not None:
                extra["unpaired"] = _read_unpaired(unpaired, observed, selection, say)
        run_options = (quiet or not first, log if first else None, resume, live)
        _train(model, observed, extra, out, *run_options)
        if not first:
            return
        model.save(out, overwrite=overwrite or resume)
        names = None if isinstance(observed, ImageData) else observed.names
        write_data_record(out, selection, names, command_line())
        if overwrite and log is None:  # the log of the replaced model
            (out / "log.csv").unlink(missing_ok=True)
        last = model.history_[-1]
        say(f"guarantee: {model.guarantee_}")
        for line in (
            *describe_gains(model),
            *describe_axes(model),
        ):
            say(line)
        say(f"saved {out}: {last.number} steps, loss {last.loss:.3f}")
        (out / DIAGNOSIS_FILE).unlink(missing_ok=True)  # of the replaced model
        found = _diagnose(model, observed, max_gap, out, say) if diagnosed else None
        _write_report(model, observed, data, out, found)
        say(f"report: {out / REPORT_FILE}")
        write_result(
            json,
            {
                "model": str(out),
                "report": str(out / REPORT_FILE),
                **_describe_data(observed),
                "n_components": model.n_components,
                "steps": last.number,
                "loss": last.loss,
                **describe_model(model),
                "diagnosis": None if found is None else found.to_dict(),
            },
        )


def _diagnose(
    model: ContrastiveICA,
    observed: Observations | ImageData,
    max_gap: int,
    out: Path,
    say: Callable[[str], None],
) -> Diagnosis:
    """Diagnose a model with the data of its fit, print and write the result."""
    assert not isinstance(observed, ImageData)  # refused before the fit
    say("diagnosing the fit, which takes two to four times as long")
    with notes_are_said():  # and columns are those of the model
        options = recording_options(observed, max_gap)
        found = model.diagnose(observed.x, observed.x_pos, **options)
    write_json(out / DIAGNOSIS_FILE, found.to_dict(), indent=2)
    say(str(found))
    return found


def _describe_data(observed: Observations | ImageData) -> dict[str, Any]:
    """Return what was read, for programs."""
    if isinstance(observed, ImageData):
        return {"rows": len(observed.images), "shape": list(observed.images.shape[1:])}
    return {
        "rows": len(observed.x),
        "incomplete_rows": observed.n_incomplete,
        "columns": observed.names,
        "notes": observed.notes,
    }


def _check_sizes(model: ContrastiveICA, n_features: int) -> None:
    """Raise an error if the codes do not fit the space or the columns."""
    if model.beliefs.space == "sphere" and model.n_components < 2:
        raise ValueError(f"--n-components must be at least 2 on a sphere, got {model.n_components}")
    most = n_features + (model.beliefs.space == "sphere")
    if model.n_components > most:
        raise _too_many_components(model.n_components, most, n_features)


def _too_many_components(given: int, most: int, n_features: int) -> ValueError:
    return ValueError(
        f"--n-components must be at most {most} for {n_features} columns, got {given}: more "
        "factors cannot be mixed injectively"
    )


def describe_model(model: ContrastiveICA) -> dict[str, Any]:
    """Return what was found and what may be claimed, for programs."""
    return {
        "guarantee": str(model.guarantee_),
        "card": model.guarantee_.to_dict(),
        "relaxed": model.relaxed_,
        "gains": {
            name: {"nats": mean, "error": error} for name, (mean, error) in model.gains_.items()
        },
        "axes": None if model.axes_ is None else model.axes_.to_dict(),
        "support": None if model.support_ is None else model.support_._asdict(),
    }


def describe_gains(model: ContrastiveICA) -> list[str]:
    """Return lines about the relaxations that ``relax="auto"`` compared, none for other models."""
    if not model.gains_:
        return []
    return [
        "relaxations compared by their gain on held-out pairs, in nats:",
        *(
            f"  {name:<12}  {mean:.3f} ± {error:.3f}{'  in use' * (name in model.relaxed_)}"
            for name, (mean, error) in model.gains_.items()
        ),
    ]


def describe_axes(model: ContrastiveICA) -> list[str]:
    """Return a table of the axes of the codes, none for models without axes."""
    from isolatent.theory.code_axes import AXES_NOTE, axis_rows, has_timed_blocks

    if model.axes_ is None:
        return []
    axes = model.axes_.codes
    rows = axis_rows(axes)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"axes: {model.axes_.choice}",
        *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
        *([f"  {AXES_NOTE}"] if has_timed_blocks(axes) else []),
    ]


def is_first_process(devices: int, num_nodes: int) -> bool:
    """Return whether this is the one process of a training run that prints and saves."""
    together = max(devices, num_nodes, int(os.environ.get("WORLD_SIZE", "1"))) > 1
    ranks = (os.environ.get(name, "0") for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))
    return not together or all(rank == "0" for rank in ranks)


def _check_options(options: dict[str, Any]) -> None:
    """Raise an error that names the first invalid option."""
    check_one_of("--loss", options["loss"], FIT_LOSSES)
    if options["encoder"] is not None:
        check_one_of("--encoder", options["encoder"], (*ENCODERS_OF_ROWS, *IMAGE_ENCODER_NAMES))
    check_one_of("--accelerator", options["accelerator"], ["auto", "cpu", "cuda", "mps"])
    check_one_of("--precision", options["precision"], PRECISION_NAMES)
    for name, at_least in (
        ("n_components", 1),
        ("max_steps", 1),
        ("batch_size", 2),
        ("devices", 1),
        ("num_nodes", 1),
        ("window", 1),
    ):
        if options[name] is not None:
            check_integer(f"--{name.replace('_', '-')}", options[name], at_least=at_least)
    if options["window"] % 2 == 0:
        raise ValueError(f"--window must be odd, got {options['window']}")
    if options["window"] > 1 and options["data_pos"] is not None:
        raise ValueError("--window is for a time series in one file; DATA and DATA_POS hold pairs")
    _parse_n_init(options["n_init"])
    if options["log"] is not None:
        check_one_of("--log", options["log"], ["csv", "tensorboard"])
    if options["data_pos"] is not None and options["lag"] is not None:
        raise ValueError("--lag is for a time series in one file; DATA and DATA_POS hold pairs")
    shortest, longest = _parse_lag(options["lag"])
    if "dynamics" in str(options["relax"]) and shortest < longest:
        raise ValueError(
            "--relax must not contain dynamics with several lags: it needs positives that follow "
            f"their anchors by one lag, such as --lag {longest}:{longest}, got --lag "
            f"{options['lag']}, which takes all from {shortest} to {longest}"
        )


def _parse_n_init(text: str) -> int | str:
    """Return the number of runs of --n-init as ``ContrastiveICA`` takes it."""
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--n-init must be auto or a positive integer, got {text!r}")
    return int(text)


def _parse_lag(text: str | None) -> tuple[int, int]:
    """Return the shortest and the longest lag of --lag."""
    parts = ("1" if text is None else text).split(":")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"--lag must be a number of rows, or two such as 3:5, got {text!r}")
    shortest, longest = (1, int(parts[0])) if len(parts) == 1 else (int(parts[0]), int(parts[1]))
    if not 1 <= shortest <= longest:
        raise ValueError(f"--lag must be at least 1, the shortest lag first, got {text!r}")
    return shortest, longest


def _parse_relax(text: str | None) -> str | tuple[str, ...]:
    """Return the relaxations of --relax as ``ContrastiveICA`` takes them."""
    from isolatent.theory import NAMED_RELAXATIONS as RELAXATIONS

    if text is None or text == "auto":
        return text or "default"
    if text == "none":
        return ()
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        check_one_of("--relax", name, ("auto", *RELAXATIONS) if len(names) == 1 else RELAXATIONS)
    if len(set(names)) < len(names):
        raise ValueError(f"--relax must not name a relaxation twice, got {text!r}")
    return names


def _check_beliefs(options: dict[str, Any]) -> None:
    """Raise an error if a declared belief is unknown, which names the option."""
    from isolatent.theory import CONDITIONALS, MARGINALS, SPACES
    from isolatent.training.axis_search import AXES

    if options["axes"] is not None:
        check_one_of("--axes", options["axes"], (*AXES, "none"))

    for name, allowed in (
        ("space", SPACES),
        ("marginal", MARGINALS),
        ("conditional", CONDITIONALS),
    ):
        if options[name] is not None:
            check_one_of(f"--{name}", options[name], allowed)
    if options["conditional"] == "gennorm" and options["p"] is None:
        raise ValueError("--p must be given with --conditional gennorm: its exponent, at least 1")


def _build(options: dict[str, Any], n_features: int, is_image: bool) -> ContrastiveICA:
    from isolatent.training import ContrastiveICA, Recipe
    from isolatent.training.noise import NOISE_RECIPE

    given = {name: options[name] for name in ("max_steps", "batch_size") if options[name]}
    relax = _parse_relax(options["relax"])
    recipe = replace(NOISE_RECIPE if "noise" in relax else Recipe(), **given)
    processes = options["devices"] * options["num_nodes"]
    if recipe.batch_size % processes:
        raise ValueError(
            f"--batch-size must be a multiple of --devices times --num-nodes, {processes}, "
            f"got {recipe.batch_size}"
        )
    return ContrastiveICA(
        options["n_components"] or min(MAX_DEFAULT_COMPONENTS, n_features),
        encoder=options["encoder"] or ("pooled" if is_image else "mlp"),
        lag=_parse_lag(options["lag"]),
        window=options["window"],
        n_init=_parse_n_init(options["n_init"]),
        relax=relax,
        axes={None: "default", "none": None}.get(options["axes"], options["axes"]),
        recipe=recipe if given else None,  # without one, few pairs get small batches
        precision=PRECISION_NAMES[options["precision"]],
        **{name: options[name] for name in PARAMETERS},
    )


def _write_report(
    model: ContrastiveICA,
    observed: Observations | ImageData,
    data: Path,
    out: Path,
    found: Diagnosis | None,
) -> None:
    from isolatent.report import page_of_fit, write_report

    shown: dict[str, Any] = {}
    if isinstance(observed, ImageData):
        x, size = some_images(observed.images)[0], observed.describe()
    else:
        x, known = observed.x, observed.complete
        size = f"{len(x)} rows, {math.prod(x.shape[1:])} columns"
        shown = {"X_pos": observed.x_pos, "groups": observed.groups, "times": observed.times}
        columns = observed.columns if observed.others else None  # else the page takes those of X
        if not known.all():
            x = x[known]
            shown = {k: None if part is None else part[known] for k, part in shown.items()}
            columns = columns and {name: values[known] for name, values in columns.items()}
        shown["columns"] = columns
    page = page_of_fit(
        model,
        x,
        **shown,
        command=command_line(),
        title=f"Fit of {data.name}",
        summary=[f"{size}, {model.n_components} components."],
        diagnosis=found,
    )
    write_report(out / REPORT_FILE, page, overwrite=True)  # checked by check_out


def _say_nothing(line: str) -> None:
    """Print nothing."""


def _read(
    data: Path,
    data_pos: Path | None,
    selection: Selection,
    lag: str | None,
    say: Callable[[str], None],
) -> Observations:
    observed = read_data(data, data_pos, selection, say)
    if data_pos is not None:
        return observed
    if observed.x_pos is None:
        longest = max(_session_lengths(observed))
        if _parse_lag(lag)[1] >= longest:
            raise ValueError(
                f"--lag must be shorter than the longest session, {longest} rows, got {lag or 1}"
            )
    elif lag is not None:
        raise ValueError(f"--lag is for a time series; {data.name} holds pairs, x and x_pos")
    return observed


def _read_unpaired(
    path: Path, observed: Observations, selection: Selection, say: Callable[[str], None]
) -> NDArray[Any]:
    """Read observations without a partner, with the columns of the pairs."""
    if observed.x_pos is None:
        raise ValueError("--unpaired is for pairs; rows of a time series all have a partner")
    wanted = None if observed.names is None else tuple(observed.names)
    plain = replace(selection, wanted=wanted, anchors_only=True, session=None, time=None)
    further = read_data(path, None, plain, say, varying=False)
    if further.x.shape[1:] != observed.x.shape[1:]:
        raise ValueError(
            f"--unpaired: {path.name} must have {observed.x.shape[1]} columns like DATA, got "
            f"{further.x.shape[1]}"
        )
    return further.x[further.complete]


def _session_lengths(observed: Observations) -> list[int]:
    """Return the number of rows of each uninterrupted session."""
    ids = observed.groups
    changes = [] if ids is None else (1 + (ids[1:] != ids[:-1]).nonzero()[0]).tolist()
    return [end - start for start, end in pairwise([0, *changes, len(observed.x)])]


def _live_report(
    observed: Observations | ImageData,
    model: ContrastiveICA,
    data: Path,
    out: Path,
    say: Callable[[str], None],
) -> LiveReport:
    from isolatent.report import LiveReport

    path = out / REPORT_FILE
    say(f"open {path} in a browser: it follows the training")
    summary = _summary(observed, model).splitlines()
    return LiveReport(path, title=f"Fit of {data.name}", summary=summary, command=command_line())


def _train(
    model: ContrastiveICA,
    observed: Observations | ImageData,
    extra: dict[str, Any],
    out: Path,
    quiet: bool,
    log: str | None,
    resume: bool,
    live: LiveReport | None,
) -> None:
    import numpy as np

    from isolatent.training import CsvLog, ProgressDisplay, tensorboard_log

    checkpoints = out / "checkpoints"
    counted = None
    if isinstance(observed, ImageData):
        images = observed.images
        counted = ("images", lambda: images.n_read)
    with (
        warnings.catch_warnings(),
        ProgressDisplay(quiet=quiet, counted=counted) as display,
        ExitStack() as stack,
        live or nullcontext(),
    ):
        logs: list[Callable[[Step], None]] = []
        if log == "csv":
            logs.append(stack.enter_context(CsvLog(out / "log.csv")))
        elif log == "tensorboard":
            logs.append(stack.enter_context(tensorboard_log(out / "tensorboard")))

        def on_step(step: Step) -> None:
            for write in logs:
                out.mkdir(parents=True, exist_ok=True)
                write(step)
            if live is not None:
                live(step)
            display(step)

        run: dict[str, Any] = {
            "checkpoint": None if resume else checkpoints,
            "resume": checkpoints if resume else None,
            "on_step": on_step,
        }
        if isinstance(observed, ImageData):
            model.fit(observed.pairs, **run)
            return
        # The notes of the observations count incomplete rows already.
        warnings.filterwarnings("ignore", message=".*rows hold NaN and are left out")
        model.fit(observed.x, observed.x_pos, **extra, **run)
    if observed.names is not None:  # as scikit-learn does for data frames
        model.feature_names_in_ = np.asarray(observed.names, dtype=object)


def _summary(observed: Observations | ImageData, model: ContrastiveICA) -> str:
    if isinstance(observed, ImageData):
        what = observed.describe()
    else:
        rows, columns = len(observed.x), math.prod(observed.x.shape[1:])
        what = f"{rows} pairs" if observed.x_pos is not None else f"a time series of {rows} rows"
        if observed.x_pos is None:
            shortest, longest = model.lag  # type: ignore[misc]
            what += f", lag {longest}" if shortest == longest else f", lags {shortest} to {longest}"
        if observed.groups is not None:
            what += f", {len(_session_lengths(observed))} sessions"
        what += f", {columns} columns"
    relax = ", ".join([model.relax] if isinstance(model.relax, str) else model.relax)
    relax = "" if relax == "default" else relax
    return (
        f"{what}\n"
        f"{model.n_components} components; {model.declaration}; loss {model.loss}, "
        f"{f'relax {relax}, ' if relax else ''}seed {model.random_state}"
    )


def check_out(out: Path, *, overwrite: bool, resume: bool) -> None:
    """Raise an error if a model cannot or must not be written to a directory."""
    if overwrite and resume:
        raise ValueError("--overwrite and --resume exclude each other")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out must be a directory, but {out} is a file")
    if resume and not _has_checkpoint(out):
        raise FileNotFoundError(
            f"--resume: {out / 'checkpoints'} holds no checkpoint; omit --resume to start anew"
        )
    if out.is_dir() and any(not p.is_dir() and p.name != LOCK_FILE for p in out.rglob("*")):
        if not _is_ours(out):
            raise FileExistsError(
                f"--out: {out} is not empty and holds no isolatent model; choose another directory"
            )
        if not (overwrite or resume):
            raise FileExistsError(
                f"--out: {out} is not empty; pass --overwrite to replace the model"
                + (", or --resume to continue from its checkpoint" if _has_checkpoint(out) else "")
            )
    report = out / REPORT_FILE
    if report.exists() and not _is_report(report):
        raise FileExistsError(f"--out: {report} was not written by isolatent; move it first")
    ancestor = next(path for path in (out, *out.parents) if path.exists())
    if not ancestor.is_dir():
        raise NotADirectoryError(f"--out: {out} cannot be created: {ancestor} is a file")
    try:
        with tempfile.TemporaryFile(dir=ancestor):
            pass
    except OSError as error:
        raise PermissionError(f"--out: cannot write in {ancestor} ({error.strerror})") from error


def _is_report(path: Path) -> bool:
    from isolatent.report import is_report  # its package takes a second to import

    return is_report(path)


def _resume_advice(out: Path) -> str:
    """Return the message for an interrupted run: how to resume it."""
    if not _has_checkpoint(out):
        return "interrupted before the first checkpoint; nothing to resume"
    return f"interrupted; resume with: {command_line()} --resume"


def _has_checkpoint(out: Path) -> bool:
    return any((out / "checkpoints").glob("step-*.json"))


def _is_ours(out: Path) -> bool:
    """Return whether a directory holds a model, checkpoints or a log, all written by isolatent."""
    model, log = out / "model.json", out / "log.csv"
    if _has_checkpoint(out) or any((out / "checkpoints").glob(".step-*.partial")):
        return True  # whatever else there is, such as a log that was cut
    if model.exists():
        try:
            content = read_json(model)
        except (OSError, DamagedFileError):
            return False
        return isinstance(content, dict) and {"format", "tensors", "record"} <= content.keys()
    if not log.exists():
        return False
    with log.open(errors="replace") as file:
        return file.readline(100).startswith("number,total,loss")
