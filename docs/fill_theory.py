"""Write the tables of claims into docs/theory.md, from the code that derives guarantees.

python docs/fill_theory.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, combinations, product
from pathlib import Path

from isolatent.theory import CONDITIONALS, RELAXATIONS, SPACES, Beliefs, derive_guarantee

PAGE = Path(__file__).with_name("theory.md")
BLOCK = r"(<!-- {name} -->\n).*?(<!-- end -->)"
LOSS_GROUPS = {"InfoNCE": "infonce", "AnInfoNCE": "aninfonce", "NCE, SCL, NWJ": "nce"}
COLUMNS = ("space", "marginal", "conditional", "loss", "potentials", "head")
CLAIM = "claim, or the first condition that fails"
RELAXED_COLUMNS = ("space", "conditional", "relaxed", "potentials", "factors", CLAIM)
RELAXED_WORLDS = (
    Beliefs("sphere"),
    Beliefs("box", conditional="normal"),
    Beliefs("box", conditional="laplace"),
    Beliefs("box", conditional="gennorm", p=4.0),
    Beliefs("euclidean", conditional="normal"),
    Beliefs("euclidean", conditional="laplace"),
)


def rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each claim; potentials are the least with which there is one."""
    for space, marginal, conditional in product(SPACES, ("uniform", "unknown"), CONDITIONALS):
        if conditional == "vmf" and space != "sphere":
            continue
        beliefs = Beliefs(space, marginal, conditional, 3.0 if conditional == "gennorm" else None)
        for head in ("box", "free") if space == "box" else (beliefs.head,):
            claims: dict[tuple[str, str, str], list[str]] = {}
            for label, loss in LOSS_GROUPS.items():
                claims.setdefault(_claim(beliefs, loss, head), []).append(label)
            for claim, labels in claims.items():
                which = "all" if len(labels) == len(LOSS_GROUPS) else ", ".join(labels)
                yield (*_names(beliefs), which, *claim)


def _names(beliefs: Beliefs) -> tuple[str, ...]:
    marginal = "any other" if beliefs.marginal == "unknown" else str(beliefs.marginal)
    conditional = str(beliefs.conditional)
    if beliefs.p is not None:
        conditional = "gennorm, p ≠ 1, 2"
    return beliefs.space, marginal, conditional


def _claim(beliefs: Beliefs, loss: str, head: str) -> tuple[str, str, str]:
    for potentials in ("none", "constant", "learned"):
        card = derive_guarantee(beliefs, loss=loss, potentials=potentials, head=head)
        if card.equivalence is not None:
            derived = " (derived here)" if "derived here" in card.reference else ""
            return potentials, head, f"**{card.equivalence}**{derived}"
    return "learned", head, card.gap


def relaxed_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each claim with relaxations: all sets of them but for ``"marginal"``."""
    names = [name for name in RELAXATIONS if name != "marginal"]
    sets = [*chain.from_iterable(combinations(names, size) for size in range(1, len(names) + 1))]
    for beliefs in RELAXED_WORLDS:
        claims: dict[tuple[str, ...], list[str]] = {}
        for relaxed in sets:
            claims.setdefault(_relaxed_claim(beliefs, relaxed), []).append(" + ".join(relaxed))
        _, _, conditional = _names(beliefs)
        if beliefs.p is not None:
            conditional = f"gennorm, p = {beliefs.p:g}"
        for claim, labels in claims.items():
            yield beliefs.space, conditional, "; ".join(labels), *claim


def _relaxed_claim(beliefs: Beliefs, relaxed: tuple[str, ...]) -> tuple[str, str, str]:
    for potentials in ("none", "learned"):
        card = derive_guarantee(beliefs, potentials=potentials, relaxed=relaxed)
        if card.equivalence is not None:
            found = re.search(r"at least (\d+) factors", str(card))
            least = f"≥ {found[1]}" if found else "any"
            return potentials, least, f"**{card.equivalence}**"
    return "learned", "", card.gap


def _table(header: tuple[str, ...], body: Iterator[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *body)]
    return "\n".join(lines)


def fill(text: str) -> str:
    """Return the page with its tables generated anew."""
    tables = {
        "claims": _table((*COLUMNS, CLAIM), rows()),
        "relaxed claims": _table(RELAXED_COLUMNS, relaxed_rows()),
    }
    for name, table in tables.items():
        block = re.compile(BLOCK.format(name=name), re.DOTALL)
        if match := block.search(text):
            text = f"{text[: match.end(1)]}\n{table}\n\n{text[match.start(2) :]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
