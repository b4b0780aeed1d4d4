"""The command ``isolatent``, and the options and checks that its subcommands share."""

from __future__ import annotations

import json as json_format
import os
import shlex
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from isolatent import __version__
from isolatent.checks import IsolatentWarning, check_integer
from isolatent.files import to_plain, write_json

__all__ = [
    "MAX_SEED",
    "REPORT_FILE",
    "STDOUT",
    "JsonOutput",
    "Model",
    "Overwrite",
    "Quiet",
    "RandomState",
    "app",
    "check_json",
    "check_seed",
    "check_writable",
    "command_line",
    "interruptible",
    "main",
    "printable",
    "printer",
    "write_result",
]

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_SEED = 2**32 - 1  # the largest that NumPy accepts
REPORT_FILE = "report.html"  # in the directory of a model or of results

STDOUT = "-"  # of --json
EXIT_CODES = """Exit codes: 0 done; 1 a run of reproduce failed; 2 an argument, a file or the data
cannot be used, which one line on standard error explains; 130 interrupted by Ctrl-C."""
# Commands and options in the order in which one thinks of them; others are in the first group of
# commands, and in the last group of options.
COMMAND_GROUPS = {
    "Commands": (),
    "Experiments of the papers": ("reproduce", "results"),
    "First steps": ("demo",),
}
OPTION_GROUPS = {
    "Data": (
        *(
            "columns",
            "drop",
            "time",
            "session",
            "positive_suffix",
            "array",
            "transpose",
            "lag",
            "counts",
            "window",
            "max_gap",
            "unpaired",
        ),
        *("data", "data_pos", "truth", "truth_columns", "blocks", "diagnosis", "max_memory"),
    ),
    "Images": ("pairs", "augment", "image_size", "grayscale"),
    "Model": (
        *("n_components", "space", "marginal", "conditional", "p", "encoder", "loss", "relax"),
        *("noise_share", "axes", "spaces", "conditionals", "lags"),
    ),
    "Training": ("max_steps", "steps", "batch_size", "n_init", "random_state", "resume"),
    "Output": (
        *("out", "overwrite", "quiet", "json", "log", "report", "diagnosed", "watch", "pause"),
        "once",
    ),
    "Devices": ("accelerator", "devices", "num_nodes", "precision", "jobs"),
}
OTHER_OPTIONS = "Options"


class _Command(TyperCommand):
    """A command whose help groups its options, and whose --json may have a file name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        group_of = {name: group for group, names in OPTION_GROUPS.items() for name in names}
        rows: dict[str, list[tuple[str, str]]] = {
            group: [] for group in ("Arguments", *OPTION_GROUPS, OTHER_OPTIONS)
        }
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is None:
                continue
            group = group_of.get(parameter.name or "", OTHER_OPTIONS)
            is_argument = parameter.param_type_name == "argument"
            rows["Arguments" if is_argument else group].append(row)
        for group, found in rows.items():
            if found:
                with formatter.section(group):
                    formatter.write_dl(found)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any(p.name == "json" and not getattr(p, "is_flag", False) for p in self.params):
            args = _with_json_target(args)
        return super().parse_args(ctx, args)


class _Group(TyperGroup):
    """The commands, in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        group_of = {name: group for group, names in COMMAND_GROUPS.items() for name in names}
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in COMMAND_GROUPS}
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        width = max(len(name) for name, _ in commands)
        for name, command in commands:
            if command is not None and not command.hidden:
                text = command.get_short_help_str(formatter.width - 6 - width)
                rows[group_of.get(name, "Commands")].append((name, text))
        for group, found in rows.items():
            if found:
                with formatter.section(group):
                    formatter.write_dl(found)


class _Application(typer.Typer):
    """The application; every command groups its options."""

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **options: Any
    ) -> Callable[[Function], Function]:
        return super().command(name, cls=cls or _Command, **options)


app = _Application(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Recover the latent factors behind data by contrastive learning.",
    epilog=EXIT_CODES,
)


def check_seed(parameter: typer.CallbackParam, seed: int) -> int:
    """Return a seed that NumPy accepts; the callback of an option."""
    return check_integer(parameter.opts[0], seed, at_least=0, at_most=MAX_SEED)


Model: TypeAlias = Annotated[Path, typer.Argument(help="Directory of a model saved by fit.")]
RandomState: TypeAlias = Annotated[
    int,
    typer.Option(
        "--random-state",
        "--seed",
        callback=check_seed,
        help="Random seed; the same seed gives the same result.",
    ),
]
JsonOutput: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="[FILE.json]",
        help="Print the result as JSON instead of text; with the name of a file, write it there.",
    ),
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace existing output files.")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print the result only.")]


@app.callback(invoke_without_command=True)
def isolatent(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Recover the latent factors behind data by contrastive learning."""
    if version:
        typer.echo(f"isolatent {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; user errors are printed without a traceback, in one place."""
    with warnings.catch_warnings():
        _show_warnings_as_lines()
        try:
            app()
        except (ValueError, OSError, FloatingPointError, ImportError) as error:
            typer.echo(f"isolatent: {printable(str(error))}", err=True)
            sys.exit(2)


def _show_warnings_as_lines() -> None:
    default = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: object) -> None:
        if issubclass(category, IsolatentWarning):
            typer.echo(f"isolatent: warning: {printable(str(message))}", err=True)
        else:
            default(message, category, *where)  # type: ignore[arg-type]

    warnings.showwarning = show  # type: ignore[assignment]


def printable(text: str) -> str:
    r"""Replace what a terminal would act on, such as escape sequences in names of columns.

    Line ends stay, since messages have several lines; those in names are quoted before.

    Example:
        >>> printable("a\x1b[31m")
        'a\\x1b[31m'
    """
    return "".join(
        one
        if one == "\n" or one.isprintable() or unicodedata.category(one) == "Zs"
        else one.encode("unicode_escape").decode()
        for one in text
    )


def _with_json_target(args: list[str]) -> list[str]:
    """Give --json a value: the name that follows it if it ends in .json, else standard output."""
    given: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*given, word, *rest]
        if word == "--json":
            has_name = bool(rest) and rest[0].endswith(".json")
            word = f"--json={rest.pop(0) if has_name else STDOUT}"
        given.append(word)
    return given


def check_json(json: str | None, overwrite: bool) -> None:
    """Raise an error if --json names a file that cannot or must not be written."""
    if json not in (None, STDOUT):
        check_writable("--json", Path(str(json)), overwrite)


def printer(json: str | None) -> Callable[[str], None]:
    """Return a function that prints a line, unless the output is JSON."""
    return (lambda line: None) if json == STDOUT else (lambda line: typer.echo(printable(line)))


def write_result(json: str | None, content: Any) -> None:
    """Write the result of a command as --json asks."""
    if json == STDOUT:
        plain = to_plain(content, nan_to_none=True)
        typer.echo(json_format.dumps(plain, indent=2, allow_nan=False))
    elif json is not None:
        write_json(json, content, indent=2)


def check_writable(name: str, path: Path | None, overwrite: bool) -> None:
    """Raise an error if an output file is requested that cannot or must not be written."""
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, but {path} is a directory")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{name}: the directory {path.parent} does not exist")
    if path.is_file() and path.stat().st_size and not overwrite:
        raise FileExistsError(f"{name}: {path} exists; pass --overwrite to replace it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{name}: no permission to write {path}")


def command_line() -> str:
    """Return the running command without --overwrite and --resume."""
    words = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
    return f"isolatent {shlex.join(words)}"


@contextmanager
def interruptible(advice: Callable[[], str | None] = lambda: "interrupted") -> Iterator[None]:
    """On Ctrl-C, print a line of advice and exit with status 130."""
    try:
        yield
    except KeyboardInterrupt:
        if line := advice():
            typer.echo(line, err=True)
        raise typer.Exit(130) from None
