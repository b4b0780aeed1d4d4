"""Fits of a benchmark: run in processes, and stored in one JSON file as soon as each has ended.

Several calls may share the fits of a benchmark: each runs those that are missing. Every record
holds the identity of the program that made it; a record of another program is run again, and is not
reported.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import torch

from isolatent.files import write_json, write_text

__all__ = [
    "Fit",
    "FitStore",
    "Record",
    "RecordsByWorld",
    "group_records",
    "make_parser",
    "mean_and_least",
    "starts_with",
]

Record = dict[str, Any]
RecordsByWorld = dict[str, dict[str, dict[int, Record]]]  # by world, approach and seed
Measure = Callable[["Fit", int | None], Record]


class Fit(NamedTuple):
    """A fit to run: the key of its record."""

    world: str
    approach: str
    seed: int

    def __str__(self) -> str:
        return f"{self.world} | {self.approach} | seed {self.seed}"

    @classmethod
    def of(cls, key: str) -> Fit:
        """Return the fit of a key.

        Example:
            >>> Fit.of("sphere | supervised | seed 2")
            Fit(world='sphere', approach='supervised', seed=2)
        """
        world, approach, seed = key.split(" | ")
        return cls(world, approach, int(seed.removeprefix("seed ")))


class FitStore:
    """Records of fits, in a JSON file with a report beside it.

    Args:
        path: The JSON file; the report has the same name and ends in ``.md``.
        program: Returns the identity of what the records of an approach depend on, or None for an
            approach that there is no more.
        report: Returns the report on records in Markdown.
    """

    def __init__(
        self,
        path: Path,
        program: Callable[[str], str | None],
        report: Callable[[dict[str, Record]], str],
    ) -> None:
        self.path, self.program, self.report = path, program, report
        path.parent.mkdir(parents=True, exist_ok=True)
        self.records: dict[str, Record] = json.loads(path.read_text()) if path.exists() else {}

    def is_current(self, key: str) -> bool:
        """Return whether there is a record of a fit by today's program."""
        program = self.program(Fit.of(key).approach)
        return key in self.records and self.records[key]["program"] == program

    @property
    def current(self) -> dict[str, Record]:
        """The records of today's program."""
        return {key: record for key, record in self.records.items() if self.is_current(key)}

    def write(self) -> None:
        """Write the records, and the report on those of today's program."""
        write_json(self.path, self.records, indent=1)
        write_text(self.path.with_suffix(".md"), self.report(self.current))

    def run(
        self,
        fits: Iterable[Fit],
        measure: Measure,
        *,
        jobs: int,
        max_steps: int | None,
        shown: Sequence[str],
    ) -> None:
        """Run the fits that are missing, and store each record once it is there.

        Args:
            fits: The fits, in the order in which to start them.
            measure: Returns the record of a fit with a largest number of steps; a function of a
                module, since it runs in other processes.
            jobs: Number of processes.
            max_steps: Passed to ``measure``.
            shown: Names of the fields of a record to print.
        """
        waiting = [fit for fit in fits if not self.is_current(str(fit))]
        for number, (fit, record) in enumerate(_run_all(waiting, measure, jobs, max_steps), 1):
            self.records[str(fit)] = {**record, "program": self.program(fit.approach)}
            printed = {name: record[name] for name in shown if name in record}
            print(f"[{number}/{len(waiting)}] {fit}", printed, flush=True)
            self.write()


def _run_all(
    fits: list[Fit], measure: Measure, jobs: int, max_steps: int | None
) -> Iterator[tuple[Fit, Record]]:
    if jobs == 1:
        for fit in fits:
            yield fit, _run(measure, fit, max_steps)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        tasks = {pool.submit(_run, measure, fit, max_steps): fit for fit in fits}
        try:
            for task in as_completed(tasks):
                yield tasks[task], task.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _run(measure: Measure, fit: Fit, max_steps: int | None) -> Record:
    """Run a fit on one thread, and return its record, or the error that it ended with."""
    torch.set_num_threads(1)
    try:
        return measure(fit, max_steps)
    except Exception as error:  # the other fits go on, and the report shows it
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def make_parser(description: str | None, out: Path, seeds: int = 3) -> argparse.ArgumentParser:
    """Return a parser of the options that all benchmarks of fits have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--report", action="store_true", help="write the report alone")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--max-steps", type=int, default=None, help=argparse.SUPPRESS)
    return parser


def starts_with(name: str, starts: Sequence[str]) -> bool:
    """Return whether a name has one of some beginnings; any name has if there are none."""
    return not starts or name.startswith(tuple(starts))


def group_records(
    records: dict[str, Record], worlds: Container[str]
) -> tuple[RecordsByWorld, list[str]]:
    """Return the records of known worlds by world, approach and seed, and a line for each error."""
    grouped: RecordsByWorld = {}
    failures = []
    for key, record in records.items():
        fit = Fit.of(key)
        if "error" in record:
            failures.append(f"- {key}: {record['error']}")
        elif fit.world in worlds:
            grouped.setdefault(fit.world, {}).setdefault(fit.approach, {})[fit.seed] = record
    return grouped, failures


def mean_and_least(values: Sequence[float]) -> str:
    """Return the mean over seeds, with the least in brackets where there are several.

    Example:
        >>> mean_and_least([0.9, 0.8])
        '0.8500 (0.8000)'
    """
    if not values:
        return ""
    mean = f"{statistics.mean(values):.4f}"
    return f"{mean} ({min(values):.4f})" if len(values) > 1 else mean
