"""Write the table of claims into docs/theory.md, from the code that derives guarantees.

python docs/fill_theory.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from isolatent.theory import CONDITIONALS, SPACES, Beliefs, derive_guarantee

PAGE = Path(__file__).with_name("theory.md")
BLOCK = re.compile(r"(<!-- claims -->\n).*?(<!-- end -->)", re.DOTALL)
LOSS_GROUPS = {"InfoNCE": "infonce", "AnInfoNCE": "aninfonce", "NCE, SCL, NWJ": "nce"}
COLUMNS = ("space", "marginal", "conditional", "loss", "potentials", "head")
CLAIM = "claim, or the first condition that fails"


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


def fill(text: str) -> str:
    """Return the page with its table generated anew."""
    header = (*COLUMNS, CLAIM)
    lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows())]
    table = "\n".join(lines)
    return BLOCK.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
