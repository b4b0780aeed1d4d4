"""The page in a headless browser, opened from a local file: drawing, sorting, layout, errors.

A probe script in a copy of the page operates and measures it and posts the measurements to a
surrounding page, whose final state the browser prints. The page stands in a frame, which can be
narrower than a window.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from html import unescape

import pytest

import isolatent as iso
from isolatent.report import page_of_fit, page_of_runs, read_results, render_page, write_report

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)}, and CHROMIUM is not set"
)

PROBE = """
addEventListener("load", () => {
  const measured = { width: innerWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches };
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  measured.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  measured.plots = [...document.querySelectorAll("svg")].map((svg) => {
    const box = svg.getBoundingClientRect();
    const marks = [...svg.querySelectorAll(".line, .dots, .bars, rect")].map((m) => m.getBBox());
    const texts = [...svg.querySelectorAll("text")].map((t) => t.getBoundingClientRect());
    return {
      name: svg.querySelector("title").textContent,
      size: [box.width, box.height],
      marked: Math.max(0, ...marks.map((m) => m.width)),
      within: texts.every((t) => t.left > box.left - 2 && t.right < box.right + 2
                                 && t.top > box.top - 2 && t.bottom < box.bottom + 2),
    };
  });
  measured.images = [...document.images].map((image) => ({
    drawn: image.complete && image.naturalWidth > 0,
    stretched: image.width / image.height - image.naturalWidth / image.naturalHeight,
    width: image.width,
    named: image.alt !== "",
  }));
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const channel = (c) => linear(c / 255);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const back = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
  };
  measured.faint = [...document.body.querySelectorAll("*")].filter((e) => {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("svg, script, .unseen") || !e.getClientRects().length) return false;
    const pair = [luminance(parse(getComputedStyle(e).color)), luminance(back(e))];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05) < 4.5;
  }).map((e) => e.outerHTML);
  const table = document.querySelector("table.results");
  if (table) {
    const heads = [...table.tHead.rows[0].cells];
    const read = (k) => [...table.tBodies[0].rows].map((row) => row.cells[k].textContent);
    measured.sorts = {};
    heads.forEach((head, k) => {
      const button = head.querySelector("button");
      const seen = [];
      for (let time = 0; time < 2; time += 1) {
        button.click();
        seen.push([head.getAttribute("aria-sort"), read(k)]);
      }
      measured.sorts[button.textContent] = seen;
    });
    measured.marked_heads = heads.filter((head) => head.hasAttribute("aria-sort")).length;
    measured.status = document.getElementById("sorted").textContent;
  }
  parent.postMessage(JSON.stringify(measured), "*");
});
"""
HARNESS = """<!doctype html><title>test</title>
<iframe src="page.html" style="border: 0; width: {}px; height: 900px"></iframe>
<pre id="measured"></pre>
<script>
addEventListener("message", (event) => {{
  document.getElementById("measured").textContent = event.data;
}});
</script>"""


def browse(folder, name, dark=False):
    """Return the final state of the document, and the messages on the console."""
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", f"--user-data-dir={folder / 'profile'}", "--window-size=1300,1000"),
            *("--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            (folder / name).as_uri(),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


def probe(folder, page, width, dark):
    """Return the measurements of the probe for a page in a frame of a given width."""
    digest = base64.b64encode(hashlib.sha256(PROBE.encode()).digest()).decode()
    html = render_page(page)
    html = html.replace("script-src ", f"script-src &#39;sha256-{digest}&#39; ", 1)
    html = html.replace("</body>", f"<script>{PROBE}</script></body>")
    (folder / "page.html").write_text(html, encoding="utf-8")
    (folder / "frame.html").write_text(HARNESS.format(width))
    document, console = browse(folder, "frame.html", dark)
    assert console == []
    measured = re.search(r'<pre id="measured">(.+?)</pre>', document, re.DOTALL)
    assert measured, document[-2000:]
    return json.loads(unescape(measured[1]))


@pytest.fixture(scope="module")
def pages(results, reproduced, sprites):
    """Pages of experiments, synthetic, real and on images, and of a fit with and without truth."""
    world = iso.World(iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(9.0), iso.Linear(), seed=0)
    recipe = iso.Recipe(max_steps=60, batch_size=128)
    model = iso.ContrastiveICA(3, space="sphere", recipe=recipe, random_state=0).fit(world)
    z, _ = world.sample_latents(300)
    x = world.observe(z).numpy()
    return {
        "runs": page_of_runs(results),
        "real": page_of_runs(read_results(reproduced)),
        "images": page_of_runs(read_results(sprites)),
        "fit": page_of_fit(model, x, command="isolatent fit x.npy " + "--option value " * 30),
        "demo": page_of_fit(model, x, z.numpy(), truth=[9.0]),
    }


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [
        *(("runs", 1200, False), ("runs", 390, True)),
        *(("real", 1200, True), ("real", 390, False)),
        *(("fit", 390, False), ("demo", 1200, True)),
    ],
)
def test_the_page_is_drawn_and_fits(pages, tmp_path, name, width, dark):
    measured = probe(tmp_path, pages[name], width, dark)
    assert (measured["width"], measured["dark"]) == (width, dark)
    assert measured["overflow"] <= 0
    assert len(measured["plots"]) == {"runs": 52, "real": 18, "fit": 6, "demo": 7}[name]
    for plot in measured["plots"]:
        assert min(plot["size"]) > 80, plot
        assert plot["marked"] > 20, plot
        assert plot["within"], plot
    assert measured["faint"] == []


@pytest.mark.parametrize("name", ["runs", "real"])
def test_the_table_sorts_by_every_column(pages, tmp_path, name):
    measured = probe(tmp_path, pages[name], 1200, False)
    rows = len(pages[name].table)
    assert measured["marked_heads"] == 1
    assert measured["status"] == f"Sorted by {list(measured['sorts'])[-1]}, descending."
    for name, ((up, rising), (down, falling)) in measured["sorts"].items():
        assert (up, down) == ("ascending", "descending"), name
        assert len(rising) == rows
        assert sorted(rising) == sorted(falling)
    number = lambda text: float(text.split(" ")[0].replace("−", "-"))  # noqa: E731
    for name in ("Ours [%]", "Paper [%]", "Difference", "Seeds"):
        for (_, shown), sign in zip(measured["sorts"][name], (1, -1), strict=True):
            known = [number(text) for text in shown if text != "–"]
            assert known == sorted(known, key=lambda v, sign=sign: sign * v)
            assert all(text == "–" for text in shown[len(known) :])  # missing values come last
    assert measured["sorts"]["Verdict"][0][1][0].startswith("✗")


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_latent_traversals_are_drawn_and_fit(pages, tmp_path, width, dark):
    measured = probe(tmp_path, pages["images"], width, dark)
    assert measured["overflow"] <= 0
    assert measured["faint"] == []
    assert (
        len(measured["images"])
        == sum(len(section.traversal.rows) for section in pages["images"].sections)
        == 5
    )
    for image in measured["images"]:
        assert image["drawn"]
        assert image["named"]
        assert abs(image["stretched"]) < 0.3
        assert 300 < image["width"] < width


def test_the_written_page_runs_its_script_without_console_messages(pages, tmp_path):
    write_report(tmp_path / "report.html", pages["runs"])
    document, console = browse(tmp_path, "report.html")
    assert console == []
    buttons = re.findall(r'<button[^>]*class="copy"[^>]*>', document)
    assert buttons
    assert not any("hidden" in button for button in buttons)  # its own script ran


def test_an_error_in_a_script_is_noticed(tmp_path):
    (tmp_path / "bad.html").write_text("<!doctype html><script>nothing.at.all()</script>")
    assert len(browse(tmp_path, "bad.html")[1]) == 1


def test_hostile_text_is_never_executed(tmp_path, run_of, cell_of, results_of):
    evil = "<img src=x onerror=alert(1)></script><script>document.title='owned'</script>"
    run = run_of(evil, command=evil, error=evil, status=evil, warnings=[evil])
    given = results_of([cell_of(evil, note=evil, extra={evil: evil})], [run], evil)
    write_report(tmp_path / "report.html", page_of_runs([given]))
    document, console = browse(tmp_path, "report.html")
    assert console == []
    assert "<img" not in document
    assert not re.search("<title>owned", document)
