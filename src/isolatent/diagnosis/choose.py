"""Choose beliefs by held-out information: short runs first, the better ones longer."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, ValidationError
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import Generator, Tensor

from isolatent.cards import Row, card
from isolatent.checks import IsolatentWarning, check_integer, check_one_of
from isolatent.diagnosis.diagnose import diagnose as diagnose_model
from isolatent.diagnosis.held_out import TooFewPairsError, checked_source, hold_pairs_out
from isolatent.diagnosis.trials import (
    Candidate,
    Lead,
    Shared,
    describe,
    lead_of,
    prepare,
    run_trial,
    with_codes,
)
from isolatent.diagnosis.verdict import Diagnosis
from isolatent.files import (
    DamagedFileError,
    digest_data,
    digest_json,
    lock_directory,
    read_json,
    reading,
    to_plain,
    write_json,
)
from isolatent.pairs import (
    Batch,
    FinitePairSource,
    PairSource,
    SeparateRecordings,
    SeriesPairs,
    digest_source,
)
from isolatent.training import ContrastiveICA
from isolatent.training.support import NO_INFORMATION
from isolatent.worlds import World

__all__ = ["CHOICE_FILE", "Choice", "Trial", "choose"]

CHOICE_FILE = "choice.json"  # of trials that have ended, in the directory of a choice
MODEL_DIRECTORY = "model"  # beside it
CHOICE_SPACES = ("sphere", "box", "euclidean")
CHOICE_CONDITIONALS = ("vmf", "normal", "laplace")
SUITED = {  # conditionals that a theorem covers, by space
    "sphere": ("vmf", "anisotropic"),
    "box": ("normal", "laplace", "anisotropic"),
    "euclidean": ("normal", "laplace"),
}
STEPS, FACTOR, ROUNDS = 200, 3, 3  # of the first round, from one to the next, and rounds
KEPT_SHARE = 0.5
# Nats and standard errors by which a candidate may be behind without being dropped, by round.
BEHIND = (0.15, 0.05, 0.03)
BEHIND_ERRORS = 3.0
CODE_GAIN, CODE_ERRORS = 0.03, 4.0  # that a further code must bring
PATIENCE = 2  # further codes that bring nothing, after which no more are tried
MOST_CODES = 16
FEWEST_ON_SPHERE = 2  # codes
RELAXATION_GAIN = 0.02
SATURATED_LAG = 0.85  # share of the largest information, from which on all lags look alike
MOST_DIAGNOSED = 3
FEWEST_NULL_ERRORS = 4.0


class Trial(NamedTuple):
    """A run of one candidate.

    Attributes:
        name: The candidate in words.
        steps: Steps of its longest run.
        information: Held-out information, in nats; None if it diverged.
        behind: Nats by which the best candidate is ahead; None if they were not compared.
        behind_error: Standard error of this difference.
        n_factors: Number of factors: on a sphere one less than there are codes.
        equivalence: What the theorem leaves open.
        status: ``"chosen"``, ``"tied"``, ``"worse"`` or ``"diverged"``.
        parameters: Parameters of :class:`isolatent.ContrastiveICA`.
    """

    name: str
    steps: int
    information: float | None
    behind: float | None
    behind_error: float | None
    n_factors: int
    equivalence: str | None
    status: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """Which beliefs the data support.

    Attributes:
        best: Parameters of :class:`isolatent.ContrastiveICA`; None if nothing was found.
        tied: Names of candidates that cannot be told apart from the best.
        n_factors: Number of factors of the best: on a sphere one less than there are codes.
        holds: Whether the claim of the best holds for these data, by its diagnosis; None if that
            cannot be told or was not asked for.
        diagnosis: The :class:`isolatent.diagnosis.Diagnosis` of a fit with the best.
        trials: A :class:`Trial` for each candidate, the best first.
        verdict: What was chosen, in words.
        model: The fitted model that was diagnosed.
    """

    best: dict[str, Any] | None
    tied: tuple[str, ...]
    n_factors: int | None
    holds: bool | None
    diagnosis: Diagnosis | None
    trials: tuple[Trial, ...]
    verdict: str
    model: ContrastiveICA | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        width = max((len(trial.name) for trial in self.trials), default=0)
        lines = [self.verdict]
        for trial in self.trials:
            known = "diverged" if trial.information is None else f"{trial.information:6.3f} nats"
            behind = ""
            if trial.behind is not None and trial.status != "chosen":
                behind = f", {trial.behind:.3f} ± {trial.behind_error:.3f} behind"
            lines.append(
                f"  {trial.status:<8} {trial.name:<{width}} {known} after {trial.steps} steps"
                f"{behind}"
            )
        if self.diagnosis is not None:
            lines.append(str(self.diagnosis))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows: list[Row] = []
        marks = {"chosen": "yes", "tied": "open"}
        for trial in self.trials:
            known = "diverged" if trial.information is None else f"{trial.information:.3f} nats"
            behind = ""
            if trial.behind is not None and trial.status != "chosen":
                behind = f", {trial.behind:.3f} ± {trial.behind_error:.3f} behind"
            text = f"{trial.status}: {known} after {trial.steps} steps{behind}"
            rows.append((trial.name, text, marks.get(trial.status, "")))
        if self.diagnosis is not None:
            rows.append(("diagnosis of the best", self.diagnosis.verdict))
        status = {True: "yes", False: "no", None: "open"}[self.holds]
        return card("Choice", self.verdict, rows, status=status)

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as plain data for JSON."""
        record = {
            "best": self.best,
            "tied": self.tied,
            "n_factors": self.n_factors,
            "holds": self.holds,
            "diagnosis": None if self.diagnosis is None else self.diagnosis.to_dict(),
            "trials": [trial._asdict() for trial in self.trials],
            "verdict": self.verdict,
        }
        plain: dict[str, Any] = to_plain(record, nan_to_none=True)
        return plain


def choose(
    x: ArrayLike | Tensor | World | PairSource,
    x_pos: ArrayLike | Tensor | None = None,
    *,
    groups: ArrayLike | None = None,
    times: ArrayLike | None = None,
    max_gap: int = 0,
    n_components: int | str = "auto",
    spaces: Sequence[str] = CHOICE_SPACES,
    conditionals: Sequence[str] = CHOICE_CONDITIONALS,
    candidates: Sequence[Mapping[str, Any]] | None = None,
    relax: bool = True,
    lags: Sequence[int] | None = None,
    model: ContrastiveICA | None = None,
    steps: int = STEPS,
    diagnose: bool = True,
    directory: str | os.PathLike[str] | None = None,
    on_trial: Callable[[str], None] = lambda line: None,
    random_state: Any = 0,
    n_jobs: int = 1,
) -> Choice:
    """Choose beliefs that the data support, without ground truth.

    Candidates are trained on the same pairs, which are whitened once, and compared by the
    information that they find in the same held-out pairs, in batches of the same size: all of them
    briefly, the better half three times as long, and again. Among those that cannot be told apart
    the one with the fewest factors is taken, then the one whose theorem claims most. It is fitted
    and diagnosed.

    Args:
        x: Observations (N, m) with their positives in ``x_pos``; a recording, a world or a pair
            source without.
        x_pos: The positive of each row of x.
        groups: For a recording: one session id for each row.
        times: For a recording: the time of each row; a pause ends a session, as in ``fit``.
        max_gap: For a recording: longest run of rows with NaN that is interpolated.
        n_components: Number of codes, or ``"auto"`` to choose it as well. On a sphere n codes are
            n - 1 factors, so with one code spheres are left out.
        spaces: Spaces to compare, any of ``"sphere"``, ``"box"`` and ``"euclidean"``.
        conditionals: Conditionals to compare, any of ``"vmf"``, ``"normal"``, ``"laplace"`` and
            ``"anisotropic"``, on the spaces where a theorem covers them.
        candidates: Instead of these: for each candidate its ``space``, ``conditional``, ``p`` and
            ``marginal``, as the estimator takes them.
        relax: Whether the best is compared with ``relax="auto"``.
        lags: For a recording: lags to compare. Longer ones share less, so that they cannot be
            compared by their information: the shortest is taken at which InfoNCE does not saturate.
        model: An unfitted estimator with the parameters that all candidates share, such as
            ``window``, ``counts`` or ``encoder``.
        steps: Steps of the first runs.
        diagnose: Whether to fit and diagnose the best.
        directory: Directory for what has been run; a second call with the same data and arguments
            continues there, one with others is refused.
        on_trial: Called with a line of text after each run.
        random_state: Seed, as in scikit-learn.
        n_jobs: Number of processes, as in joblib.

    Example:
        >>> import isolatent as iso
        >>> world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
        >>> print(choose(*world.sample_pairs(300)))  # too few pairs to say anything
        Cannot tell: 300 pairs, of which a quarter must be at least 200.
    """
    if n_jobs != -1:
        check_integer("n_jobs", n_jobs, at_least=1)
    check_integer("steps", steps, at_least=10)
    template = _template(model)
    families = _families(spaces, conditionals, candidates)
    if n_components != "auto":
        if isinstance(n_components, str):
            raise ValueError(
                f"n_components must be 'auto' or a positive integer, got {n_components!r}"
            )
        check_integer("n_components", n_components, at_least=1)
    seed = int(check_random_state(random_state).randint(2**31 - 2))
    options = {
        "n_components": n_components,
        "families": [str(family) for family in families],
        "relax": relax,
        "lags": lags,
        "steps": steps,
        "seed": seed,
        # Each alone: the estimator cuts a long text.
        "template": {k: repr(v) for k, v in template.get_params(deep=False).items()},
    }
    given = [None] if lags is None else _check_lags(lags, x_pos)
    try:
        sources = [
            _source(template, x, x_pos, (groups, times, max_gap), lag, seed) for lag in given
        ]
    except TooFewPairsError as error:
        verdict = f"Cannot tell: {error}, of which a quarter must be at least 200."
        return Choice(None, (), None, None, None, (), verdict)
    folder = _check_folder(directory)
    columns = sources[0].columns
    most = columns if n_components == "auto" else int(n_components)
    if most > columns + all(family.space == "sphere" for family in families):
        raise ValueError(
            f"n_components must be at most {columns} for x with {columns} columns, got {most}: "
            "more factors cannot be mixed injectively"
        )
    if n_components != "auto" and most < FEWEST_ON_SPHERE:
        families = [family for family in families if family.space != "sphere"]
        if not families:
            raise ValueError(
                f"n_components must be at least {FEWEST_ON_SPHERE} on a sphere, got {most}"
            )
    with nullcontext() if folder is None else lock_directory(folder):
        store = _Store.open(folder, sources, options)
        comparison = _Comparison(template, seed, steps, n_jobs, on_trial, store)
        return _compare(comparison, sources, families, most, columns, n_components, relax, diagnose)


def _compare(
    comparison: _Comparison,
    sources: list[_Source],
    families: list[Candidate],
    most: int,
    columns: int,
    n_components: int | str,
    relax: bool,
    diagnose: bool,
) -> Choice:
    """Run the candidates, those of the first lag that suits, and choose."""
    template, seed = comparison.template, comparison.seed
    lagged = _choose_lag(comparison, sources, most)
    comparison.shared = lagged.shared(template, min(most, MOST_CODES), seed)
    comparison.lag = lagged.lag
    if n_components == "auto":
        n = _count_codes(comparison, min(columns, MOST_CODES))
        started = _with_numbers(families, n, columns)
    else:
        started = [with_codes(family, most) for family in families]
    if comparison.lag is not None:
        started = [replace(one, lag=(comparison.lag, comparison.lag)) for one in started]
    finalists = _halve(comparison, started)
    best, tied = _settle(comparison, finalists)
    if best is None:
        return _null(comparison)
    last = comparison.rounds[-1]
    if n_components == "auto":
        best = _adjust_codes(comparison, best, columns, last)
        tied = [one for one in tied if one != best]
    if relax:
        best = _relax(comparison, best, last)
    return _conclude(comparison, best, tied, lagged.whole if diagnose else None)


# Arguments


def _template(model: ContrastiveICA | None) -> ContrastiveICA:
    if model is None:
        return ContrastiveICA()
    if not isinstance(model, ContrastiveICA):
        raise TypeError(f"model must be a ContrastiveICA or None, got {model!r}")
    template: ContrastiveICA = clone(model)
    if template.loss != "infonce":
        raise ValueError(
            f"model must have loss='infonce', whose held-out value is compared, got "
            f"{template.loss!r}"
        )
    return template


def _families(
    spaces: Sequence[str],
    conditionals: Sequence[str],
    candidates: Sequence[Mapping[str, Any]] | None,
) -> list[Candidate]:
    """Return the candidates, with two codes each."""
    if candidates is None:
        for name, given, allowed in (
            ("spaces", spaces, CHOICE_SPACES),
            ("conditionals", conditionals, (*CHOICE_CONDITIONALS, "anisotropic")),
        ):
            if isinstance(given, str) or not given:
                raise ValueError(f"{name} must be a sequence of names, got {given!r}")
            for chosen in given:
                check_one_of(name, chosen, allowed)
        found = [
            Candidate(space, conditional, 2)
            for space in spaces
            for conditional in conditionals
            if conditional in SUITED[space]
        ]
        if not found:
            raise ValueError(
                f"conditionals must suit one of the spaces, got {tuple(conditionals)} for "
                f"{tuple(spaces)}"
            )
        return found
    found = []
    if isinstance(candidates, str | Mapping) or not isinstance(candidates, Iterable):
        raise TypeError(
            "candidates must be a sequence of dicts such as {'space': 'sphere'}, got "
            f"{candidates!r}"
        )
    for one in candidates:
        if not isinstance(one, Mapping):
            raise TypeError(f"candidates must be dicts such as {{'space': 'sphere'}}, got {one!r}")
        unknown = set(one) - {"space", "conditional", "p", "marginal"}
        if unknown or "space" not in one:
            raise ValueError(
                "candidates must have a space and, if need be, conditional, p and marginal, got "
                f"{dict(one)}"
            )
        candidate = Candidate(
            one["space"], one.get("conditional"), 2, one.get("p"), one.get("marginal")
        )
        _ = candidate.beliefs  # raises an error if they contradict each other
        found.append(candidate)
    if not found:
        raise ValueError("candidates must be one or more, got none")
    return found


def _check_lags(lags: Any, x_pos: Any) -> list[int | None]:
    if isinstance(lags, str) or not isinstance(lags, Iterable):
        raise TypeError(f"lags must be a sequence of numbers of rows, or None, got {lags!r}")
    if x_pos is not None:
        raise ValueError("lags must be None when x_pos is given: they are for recordings")
    found = sorted({check_integer("lags", lag, at_least=1) for lag in lags})
    if not found:
        raise ValueError("lags must be one or more, got none")
    return [*found]


class _Source(NamedTuple):
    """The pairs of one lag: all of them, and split into those to train and to test with."""

    whole: PairSource
    training: PairSource
    testing: Any
    lag: int | None
    columns: int

    def shared(self, template: ContrastiveICA, most: int, seed: int) -> Shared:
        return prepare(template, self.training, self.testing, most, seed)


def _source(
    template: ContrastiveICA,
    x: Any,
    x_pos: Any,
    recorded: tuple[Any, Any, int],
    lag: int | None,
    seed: int,
) -> _Source:
    """Read the pairs, and keep some from all runs.

    ``recorded`` are sessions, times and the longest gap of a recording.
    """
    if lag is not None:
        template.set_params(lag=(lag, lag))
    source = checked_source(template, x, x_pos, *recorded, reset=True)
    if lag is not None and not isinstance(source, SeriesPairs):
        raise ValueError("lags must be None for a world or a pair source: they are for recordings")
    if isinstance(source, SeparateRecordings):
        raise ValueError("x must be pairs for one encoder, got recordings with an encoder each")
    if not hasattr(template, "_shape"):
        drawn = Batch.of(source.sample(2, Generator().manual_seed(seed)))
        template._set_shape(tuple(drawn.x.shape[1:]))
    held = hold_pairs_out(template, source, seed)
    if held.testing.negatives is not None or held.testing.tags is not None:
        raise ValueError("x must be pairs alone: pairs with negatives or tags are not compared")
    columns = held.testing.x[:1].numel()
    return _Source(source, held.source, held.testing, lag, columns)


# What has been run


def _check_folder(directory: Any) -> Path | None:
    if directory is None:
        return None
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"directory must be a directory, but {folder} is a file")
    return folder


class _Record(BaseModel):
    """The contents of a choice's file, as far as they are read again."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    identity: str
    trials: dict[str, list[float] | None] = {}
    diagnoses: dict[str, dict[str, Any]] = {}


class _Store:
    """Values of runs that have ended, by candidate and steps, in memory or in a file."""

    def __init__(self, path: Path | None, record: _Record) -> None:
        self.path, self.identity = path, record.identity
        self.trials, self.diagnoses = record.trials, record.diagnoses

    @classmethod
    def open(
        cls, folder: Path | None, sources: Sequence[_Source], options: Mapping[str, Any]
    ) -> _Store:
        """Open the store of a directory; raise an error if it is of other data or arguments."""
        if folder is None:
            return cls(None, _Record(identity=""))
        identity = digest_json({"data": [*map(_digest, sources)], **to_plain(dict(options))})
        path = folder / CHOICE_FILE
        if not path.exists():
            return cls(path, _Record(identity=identity))
        try:
            record = _Record.model_validate(read_json(path))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "its content"
            raise DamagedFileError(path, f"{place}: {first['msg']}") from error
        if record.identity != identity:
            raise ValueError(
                f"directory must be new or of a choice with the same data and arguments, but "
                f"{path} is of others"
            )
        return cls(path, record)

    def write(self, choice: Choice | None = None) -> None:
        if self.path is None:
            return
        record: dict[str, Any] = {
            "identity": self.identity,
            "trials": self.trials,
            "diagnoses": self.diagnoses,
        }
        if choice is not None:
            record["choice"] = choice.to_dict()
        write_json(self.path, record, indent=1)


def _digest(source: _Source) -> str:
    """Return a hash of all pairs of a source; of endless ones that of those held out."""
    arrays = (part.detach().cpu().numpy() for part in (source.testing.x, source.testing.x_pos))
    return f"{digest_data(*arrays)} {digest_source(source.whole).hex()}"


@dataclass
class _Comparison:
    """Runs of candidates, each done once."""

    template: ContrastiveICA
    seed: int
    steps: int
    n_jobs: int
    on_trial: Callable[[str], None]
    store: _Store
    shared: Any = None
    lag: int | None = None
    ended: dict[Candidate, tuple[int, list[float] | None]] = field(default_factory=dict)

    @property
    def rounds(self) -> list[int]:
        """Steps of each round."""
        return [self.steps * FACTOR**number for number in range(ROUNDS)]

    def run(
        self, candidates: Iterable[Candidate], steps: int, shared: Shared | None = None
    ) -> dict[Candidate, list[float] | None]:
        """Return the values of candidates, in their order, and store each run as it ends."""
        wanted = [*dict.fromkeys(candidates)]
        shared = self.shared if shared is None else shared
        missing = [one for one in wanted if _key(one, steps) not in self.store.trials]
        endless = not isinstance(shared.source, FinitePairSource)  # its generator cannot be sent
        jobs = 1 if endless or len(missing) < 2 else self.n_jobs
        done = Parallel(n_jobs=jobs, return_as="generator")(
            delayed(run_trial)(one, shared, steps, self.seed) for one in missing
        )
        started = time.perf_counter()
        for number, (one, values) in enumerate(zip(missing, done, strict=True), 1):
            self.store.trials[_key(one, steps)] = values
            self.store.write()
            spent = time.perf_counter() - started
            left = spent / number * (len(missing) - number)
            found = "diverged" if values is None else f"{np.mean(values):.3f} nats"
            self.on_trial(
                f"{one}: {found} after {steps} steps"
                + (f"; {left:.0f} s left in this round" if number < len(missing) else "")
            )
        values_of = {one: self.store.trials[_key(one, steps)] for one in wanted}
        for one, values in values_of.items():
            if steps >= self.ended.get(one, (0, None))[0]:
                self.ended[one] = (steps, values)
        return values_of


def _key(candidate: Candidate, steps: int) -> str:
    return f"{candidate} | {steps} steps"


# Stages


def _choose_lag(comparison: _Comparison, sources: list[_Source], most: int) -> _Source:
    """Return the shortest lag at which InfoNCE does not saturate; the longest if all do."""
    if len(sources) == 1:
        return sources[0]
    n = min(most, MOST_CODES)
    for source in sources:
        assert source.lag is not None
        shared = source.shared(comparison.template, n, comparison.seed)
        probe = replace(_probe(min(n, source.columns)), lag=(source.lag, source.lag))
        values = comparison.run([probe], comparison.steps, shared)[probe]
        if values is not None and float(np.mean(values)) < SATURATED_LAG * shared.most:
            break
    comparison.ended.clear()
    return source


def _probe(n: int) -> Candidate:
    """Return the candidate that assumes least, to count codes with."""
    return Candidate("euclidean", "normal", n, marginal="unknown")


def _count_codes(comparison: _Comparison, most: int) -> int:
    """Return the number of codes from which on further ones bring nothing."""
    best, values = 1, None
    for n in range(1, most + 1):
        tried = comparison.run([_probe(n)], comparison.steps)[_probe(n)]
        if values is None or (
            tried is not None and lead_of(tried, values).exceeds(CODE_GAIN, CODE_ERRORS)
        ):
            best, values = n, tried
        if n - best >= PATIENCE:
            break
    comparison.ended.clear()  # these counted codes, and are no candidates
    return best


def _with_numbers(families: Sequence[Candidate], n: int, columns: int) -> list[Candidate]:
    """Return candidates with about n codes: on a sphere, where n codes are n - 1 factors, two."""
    found = []
    for family in families:
        on_sphere = family.space == "sphere"
        numbers = {max(FEWEST_ON_SPHERE, n), n + 1} if on_sphere else {n}
        most = columns + on_sphere
        found += [with_codes(family, number) for number in sorted(numbers) if number <= most]
    return found


def _halve(comparison: _Comparison, candidates: list[Candidate]) -> list[Candidate]:
    """Train all briefly, the better half longer, and so on; return those of the last round."""
    left = candidates
    for number, steps in enumerate(comparison.rounds):
        values = comparison.run(left, steps)
        ranked = _ranked(values)
        if not ranked:
            return []
        if number == ROUNDS - 1:
            return ranked
        best = values[ranked[0]]
        keep = math.ceil(KEPT_SHARE * len(ranked))
        left = [
            one
            for place, one in enumerate(ranked)
            if not _lead(best, values[one]).exceeds(BEHIND[number], BEHIND_ERRORS)
            and (place < keep or not _lead(best, values[one]).exceeds(BEHIND[-1], BEHIND_ERRORS))
        ]
    return left


def _ranked(values: Mapping[Candidate, list[float] | None]) -> list[Candidate]:
    done = [one for one, found in values.items() if found is not None]
    return sorted(done, key=lambda one: -float(np.mean(_known(values[one]))))


def _known(values: list[float] | None) -> list[float]:
    assert values is not None
    return values


def _lead(best: list[float] | None, other: list[float] | None) -> Lead:
    return lead_of(_known(best), _known(other))


def _settle(
    comparison: _Comparison, finalists: list[Candidate]
) -> tuple[Candidate | None, list[Candidate]]:
    """Return the best, and those that cannot be told apart from it; None if all found nothing."""
    if not finalists:
        return None, []
    values = {one: comparison.ended[one][1] for one in finalists}
    first = values[finalists[0]]
    assert first is not None
    error = float(np.std(first, ddof=1)) / math.sqrt(len(first))
    if not float(np.mean(first)) > max(NO_INFORMATION, FEWEST_NULL_ERRORS * error):
        return None, []
    close = [
        one for one in finalists if not _lead(first, values[one]).exceeds(BEHIND[-1], BEHIND_ERRORS)
    ]
    best = min(close, key=lambda one: one.preference)
    return best, [one for one in close if one != best]


def _adjust_codes(comparison: _Comparison, best: Candidate, columns: int, steps: int) -> Candidate:
    """Compare the best with one code more or fewer, trained as long."""
    on_sphere = best.space == "sphere"
    most, least = columns + on_sphere, FEWEST_ON_SPHERE if on_sphere else 1
    start = best.n_components
    while best.n_components < min(most, start + PATIENCE):
        more = with_codes(best, best.n_components + 1)
        values = comparison.run([best, more], steps)
        if values[more] is None or values[best] is None:
            break
        if not _lead(values[more], values[best]).exceeds(CODE_GAIN, CODE_ERRORS):
            break
        best = more
    while best.n_components > max(least, start - PATIENCE) and best.n_components <= start:
        fewer = with_codes(best, best.n_components - 1)
        values = comparison.run([best, fewer], steps)
        if values[fewer] is None or values[best] is None:
            break
        if _lead(values[best], values[fewer]).exceeds(BEHIND[-1], BEHIND_ERRORS):
            break
        best = fewer
    return best


def _relax(comparison: _Comparison, best: Candidate, steps: int) -> Candidate:
    """Return the best with the relaxations that held-out pairs ask for, if that gains."""
    relaxed = replace(best, relax="auto")
    values = comparison.run([best, relaxed], steps)
    if values[relaxed] is None or values[best] is None:
        return best
    gains = _lead(values[relaxed], values[best]).exceeds(RELAXATION_GAIN, CODE_ERRORS)
    return relaxed if gains else best


# Result


def _trials(
    comparison: _Comparison, best: Candidate | None, tied: Sequence[Candidate]
) -> tuple[Trial, ...]:
    """Return the table: each candidate by its longest run, those that ran longest first."""
    chosen = None if best is None else comparison.ended[best][1]
    rows = []
    for one, (steps, values) in comparison.ended.items():
        lead = None
        if values is not None and chosen is not None:
            rival = comparison.store.trials.get(_key(best, steps))  # type: ignore[arg-type]
            lead = None if rival is None else lead_of(rival, values)
        if values is None:
            status = "diverged"
        else:
            status = "chosen" if one == best else "tied" if one in tied else "worse"
        information = None if values is None else float(np.mean(values))
        rows.append(
            Trial(
                str(one),
                steps,
                information,
                None if lead is None else lead.mean,
                None if lead is None else lead.error,
                one.n_factors,
                one.equivalence,
                status,
                one.parameters,
            )
        )
    order = {"chosen": 0, "tied": 1}
    rows.sort(key=lambda row: (order.get(row.status, 2), -row.steps, -(row.information or 0.0)))
    return tuple(rows)


def _null(comparison: _Comparison) -> Choice:
    trials = _trials(comparison, None, ())
    largest = max((row.information for row in trials if row.information is not None), default=0.0)
    verdict = (
        f"Nothing to find: no candidate knows more than {max(0.0, largest):.3f} nats about "
        "held-out pairs, which chance explains."
    )
    choice = Choice(None, (), None, False, None, trials, verdict)
    comparison.store.write(choice)
    return choice


def _conclude(
    comparison: _Comparison,
    best: Candidate,
    tied: Sequence[Candidate],
    source: PairSource | None,
) -> Choice:
    """Diagnose the best, and those tied with it if it is contradicted, and put it into words."""
    model, found = None, None
    if source is not None:
        for one in [best, *tied][:MOST_DIAGNOSED]:
            tested_model, tested = _diagnosed(comparison, one, source)
            if found is None or tested.holds is not False:
                model, found, kept = tested_model, tested, one
            if tested.holds is not False:
                break
        if kept != best:
            tied = [best, *(one for one in tied if one != kept)]
            best = kept
    trials = _trials(comparison, best, tied)
    names = tuple(str(one) for one in tied)
    text = f"{best}: {describe(best.parameters)}"
    if names:
        text += f". Cannot be told apart from it: {'; '.join(names)}"
    holds = None if found is None else found.holds
    if found is not None and found.holds is False:
        text = f"None is supported by these data. The best is {text}"
    elif found is not None:
        text += ". Its claim holds" if found.holds else ". Whether its claim holds cannot be told"
    choice = Choice(best.parameters, names, best.n_factors, holds, found, trials, f"{text}.", model)
    comparison.store.write(choice)
    return choice


def _diagnosed(
    comparison: _Comparison, candidate: Candidate, source: PairSource
) -> tuple[ContrastiveICA, Diagnosis]:
    """Fit a candidate to all pairs, and diagnose it; or read what was stored."""
    store, key = comparison.store, str(candidate)
    folder = None
    if store.path is not None:
        folder = store.path.parent / MODEL_DIRECTORY / digest_json(key)[:8]
        if key in store.diagnoses and (folder / "model.json").is_file():
            loaded = ContrastiveICA.load(folder)
            with reading(store.path):
                return loaded, Diagnosis.from_dict(store.diagnoses[key])
    given = {name: value for name, value in candidate.parameters.items() if name != "lag"}
    unset = {"space": None, "conditional": None, "p": None, "marginal": None, "relax": ()}
    model: ContrastiveICA = clone(comparison.template)
    model.set_params(**unset | given, axes=None, random_state=comparison.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsolatentWarning)  # the diagnosis says what is wrong
        model.fit(source)
    comparison.on_trial(f"{candidate}: fitted in {len(model.history_)} steps; diagnosing it")
    found = diagnose_model(model, source, random_state=comparison.seed, n_jobs=comparison.n_jobs)
    if folder is not None:
        model.save(folder, overwrite=True)
        store.diagnoses[key] = found.to_dict()
        store.write()
    return model, found
