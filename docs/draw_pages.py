"""Draw the pictures of report pages in docs/pages, in a real browser.

Four pages: a good fit of a recording, a failed one, a diagnosis that found one broken assumption,
and an experiment. Each is shown light and dark, 1200 pixels wide and as on a phone. Of pages with a
diagnosis, a further picture has the verdict, the checks and the card, which stand far below.

Run: .venv/bin/python docs/draw_pages.py [--only NAME] [--keep DIRECTORY]
Needs Chromium (or CHROMIUM=/path) and Pillow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import isolatent as iso
from isolatent.report import (
    Page,
    Section,
    page_of_fit,
    page_of_runs,
    read_results,
    write_report,
)

HERE = Path(__file__).parent
OUT = HERE / "pages"
BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"
WIDTHS = {"wide": (1200, 1500), "phone": (390, 1500)}
CHECKS = (1200, 2700)  # the picture of the checks
SHRUNK = {"wide": 640, "phone": 240}  # width of the stored picture
RECIPE = iso.Recipe(max_steps=1500, batch_size=256)
FRAME = '<!doctype html><body style="margin: 0"><iframe src="{}" style="{}"></iframe>'


def recording(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a recording of three factors with time scales of their own, and its sessions."""
    rng = np.random.default_rng(seed)
    rates = np.array([0.98, 0.93, 0.8])
    z = np.zeros((6000, 3))
    for t in range(1, len(z)):
        z[t] = rates * z[t - 1] + np.sqrt(1 - rates**2) * rng.laplace(size=3) / np.sqrt(2)
    x = np.tanh(0.5 * z @ rng.normal(size=(3, 12)))
    x += 0.02 * rng.normal(size=x.shape)
    return x, np.repeat(["monday", "tuesday", "friday"], 2000)


def good() -> Page:
    """Return the page of a fit that its diagnosis supports."""
    x, sessions = recording()
    model = iso.ContrastiveICA(3, recipe=RECIPE, random_state=0).fit(x, groups=sessions)
    return page_of_fit(
        model,
        x,
        groups=sessions,
        diagnosis=iso.diagnose(model, x, groups=sessions),
        command="isolatent fit recording.csv --session day",
        title="Fit of recording.csv",
        summary=["6000 rows, 12 columns, 3 components."],
    )


def failed() -> Page:
    """Return the page of a fit of noise, in which neighbours share nothing."""
    x = np.random.default_rng(0).normal(size=(3000, 6))
    model = iso.ContrastiveICA(3, recipe=RECIPE, random_state=0).fit(x)
    return page_of_fit(
        model, x, command="isolatent fit noise.csv", title="Fit of noise.csv",
        summary=["3000 rows, 6 columns, 3 components."],
    )  # fmt: skip


def broken() -> Page:
    """Return the page of a fit whose diagnosis found one broken assumption: unrelated pairs."""
    world = iso.World(iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(20.0), iso.Linear(), seed=0)
    x, x_pos = (part.numpy() for part in world.sample_pairs(6000))
    unrelated = np.random.default_rng(0).permutation(len(x))[: len(x) // 3]
    x_pos[unrelated] = x_pos[np.roll(unrelated, 1)]
    model = iso.ContrastiveICA(3, space="sphere", recipe=RECIPE, random_state=0).fit(x, x_pos)
    return page_of_fit(
        model,
        x,
        diagnosis=iso.diagnose(model, x, x_pos),
        command="isolatent fit x.npy x_pos.npy --space sphere --n-components 3",
        title="Fit of x.npy",
        summary=["6000 pairs, 3 columns, 3 components."],
    )


def experiment() -> Page:
    """Return the page of Table 1 of Zimmermann et al. 2021."""
    found = read_results(HERE.parent / "results" / "zimmermann2021")
    return page_of_runs([one for one in found if one[0]["name"] == "zimmermann2021/table1"])


PAGES: dict[str, Callable[[], Page]] = {
    "good": good,
    "failed": failed,
    "broken": broken,
    "experiment": experiment,
}


def checks_of(page: Page) -> Page:
    """Return the verdict, the diagnosis and the card of a page alone."""
    (section,) = page.sections
    bare = Section(section.name, diagnosis=section.diagnosis, guarantee=section.guarantee)
    return Page(page.title, sections=(bare,), headline=page.headline)


def photograph(
    page: Path, folder: Path, name: str, sizes: dict[str, tuple[int, int]], schemes: tuple[int, ...]
) -> None:
    """Store pictures of a page in some sizes, dark (0) and light (1), in few colours."""
    from PIL import Image

    for size, (width, height) in sizes.items():
        frame = folder / f"{name}-{size}.html"
        style = f"border: 0; width: {width}px; height: {height}px"
        frame.write_text(FRAME.format(page.as_uri(), style))
        for scheme in schemes:
            picture = folder / f"{name}-{size}.png"
            subprocess.run(
                [
                    *(BROWSER, "--headless", "--no-sandbox", "--no-first-run", "--hide-scrollbars"),
                    *("--disable-dev-shm-usage", "--enable-unsafe-swiftshader"),
                    f"--user-data-dir={folder / 'profile'}",
                    f"--blink-settings=preferredColorScheme={scheme}",
                    f"--window-size={max(width, 500)},{height}",
                    *("--virtual-time-budget=9000", f"--screenshot={picture}", frame.as_uri()),
                ],
                check=True,
                capture_output=True,
                timeout=180,
            )
            image = Image.open(picture).convert("RGB").crop((0, 0, width, height))
            shrunk = SHRUNK.get(size, SHRUNK["wide"])
            scaled = shrunk, round(height * shrunk / width)
            image = image.resize(scaled, Image.Resampling.LANCZOS)
            target = OUT / f"{name}-{size}-{('dark', 'light')[scheme]}.png"
            image.quantize(48).save(target, optimize=True)


def main() -> None:
    """Write the pages that are asked for, and photograph them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PAGES, help="draw one page only")
    parser.add_argument("--keep", type=Path, help="directory for the pages themselves")
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder)
        for name in [options.only] if options.only else PAGES:
            page, content = kept.resolve() / f"{name}.html", PAGES[name]()
            write_report(page, content, overwrite=True)
            photograph(page, Path(folder), name, WIDTHS, (0, 1))
            if content.sections[0].diagnosis is not None:
                checks = kept.resolve() / f"{name}-checks.html"
                write_report(checks, checks_of(content), overwrite=True)
                photograph(checks, Path(folder), name, {"checks": CHECKS}, (1,))
            print(f"{name}: {page.stat().st_size / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    main()
