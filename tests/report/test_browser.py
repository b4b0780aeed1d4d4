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

import numpy as np
import pytest

import isolatent as iso
from isolatent.diagnosis import Check, Diagnosis
from isolatent.figure_data import encode_rows
from isolatent.report import (
    Page,
    Section,
    page_of_fit,
    page_of_runs,
    read_results,
    render_page,
    write_report,
)

NAMES = ("chromium", "chromium-browser", "google-chrome")
ADVICE = ("GL Driver Message", "willReadFrequently", "software WebGL")  # about speed
BROWSER = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)}, and CHROMIUM is not set"
)

PROBE = """
const sleep = (time) => new Promise((go) => setTimeout(go, time));
const until = async (test) => { for (let k = 0; k < 400 && !test(); k += 1) await sleep(20); };
const drag = async (target, from, to) => {
  const at = (type, [x, y], where) => where.dispatchEvent(new MouseEvent(type, {
    bubbles: true, cancelable: true, view: window, clientX: x, clientY: y,
    buttons: type === "mouseup" ? 0 : 1,
  }));
  at("mousemove", from, target);
  at("mousedown", from, target);
  for (let k = 1; k <= 6; k += 1) {
    const place = [0, 1].map((i) => from[i] + ((to[i] - from[i]) * k) / 6);
    at("mousemove", place, document.querySelector(".dragcover") ?? target);
    await sleep(20);
  }
  at("mouseup", to, document.querySelector(".dragcover") ?? target);
  await sleep(100);
};
const inner = (box, share) => [box.left + share[0] * box.width, box.top + share[1] * box.height];

addEventListener("load", async () => {
  const measured = { width: innerWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches };
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  const boxes = [...document.querySelectorAll(".plot[id]")];
  const explorer = document.querySelector("figure.explorer");
  if (boxes.length) await until(() => "ready" in document.documentElement.dataset);
  dispatchEvent(new Event("beforeprint")); // draws everything, in light colours
  dispatchEvent(new Event("afterprint"));
  await until(() => [...boxes, ...(explorer ? [explorer] : [])].every((b) => "drawn" in b.dataset));
  await sleep(300);
  measured.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  measured.plots = boxes.map((box) => {
    const whole = box.getBoundingClientRect();
    const marks = [...box.querySelectorAll(".trace, .heatmaplayer image, .barlayer path")];
    const texts = [...box.querySelectorAll(".main-svg text")].map((t) => t.getBoundingClientRect());
    return {
      name: box.getAttribute("aria-label"),
      drawn: "drawn" in box.dataset,
      size: [whole.width, whole.height],
      marked: Math.max(0, ...marks.map((m) => m.getBoundingClientRect().width)),
      within: texts.every((t) => t.left > whole.left - 3 && t.right < whole.right + 3
                                 && t.top > whole.top - 3 && t.bottom < whole.bottom + 3),
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
    const skipped = "svg, script, .unseen, .plot, option";
    if (!own || e.closest(skipped) || !e.getClientRects().length) return false;
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
  measured.foreign = document.querySelectorAll("img[onerror]").length + (document.title === "owned")
    + [...document.querySelectorAll("text")].filter((t) => /\u202e/.test(t.textContent)).length;
  measured.requests = performance.getEntriesByType("resource").map((e) => e.name)
    .filter((name) => !/^(data|blob):/.test(name));
  measured.buttons = [...new Set([...document.querySelectorAll(".modebar-btn")]
    .map((b) => b.dataset.title))];
  const surface = (box) => box.querySelector(".nsewdrag");
  const zoomed = boxes.find((b) => surface(b) && b._fullLayout.dragmode === "zoom");
  if (zoomed) {
    const range = () => [...zoomed._fullLayout.xaxis.range];
    const place = surface(zoomed).getBoundingClientRect();
    const before = range();
    await drag(surface(zoomed), inner(place, [0.3, 0.3]), inner(place, [0.6, 0.7]));
    measured.zoom = [before, range()];
  }
  if (explorer) {
    const part = (role) => explorer.querySelector(`[data-role=${role}]`);
    const [plane, space] = [part("plane"), part("space")];
    const status = () => part("status").textContent;
    const course = document.querySelector(`.plot[data-links="${explorer.id}"]`);
    const count = () => course?.data.length;
    const place = surface(plane).getBoundingClientRect();
    const dots = plane.querySelectorAll(".points path").length;
    const seen = { drawn: dots, before: [status(), count()] };
    seen.space = Boolean(space && !space.hidden && space.querySelector("canvas"));
    await drag(surface(plane), inner(place, [0.1, 0.1]), inner(place, [0.5, 0.9]));
    await sleep(500);
    seen.selected = [status(), count(), seen.space ? space.data.length : 0];
    part("clear").click();
    await sleep(300);
    seen.cleared = [status(), count()];
    if (course) { // drag over the second quarter of the time course
      const area = surface(course);
      course.scrollIntoView({ block: "center" });
      await sleep(100);
      const place = area.getBoundingClientRect();
      await drag(area, inner(place, [0.25, 0.5]), inner(place, [0.5, 0.6]));
      await sleep(500);
      const axis = course._fullLayout.xaxis;
      const [low, high] = axis.range.map((v) => axis.r2l(v));
      seen.brushed = [status(), low, high, count()];
      part("clear").click();
      await sleep(300);
      if (course._fullLayout.xaxis.type === "date") {
        const x = ["2026-01-01 10:00", "2026-01-01 12:00:00.5"];
        course.emit("plotly_selected", { range: { x } });
        await sleep(300);
        seen.dates = status();
        part("clear").click();
        await sleep(300);
      }
    }
    const menu = part("colour");
    const titles = [];
    for (let k = 0; k < menu.options.length; k += 1) {
      menu.value = String(k);
      menu.dispatchEvent(new Event("change"));
      await sleep(50);
      const first = plane.data.find((t) => t.type === "scatter");
      titles.push([menu.options[k].textContent, new Set(first.marker.color).size]);
    }
    seen.colours = titles;
    if (seen.space) {
      const eye = () => Object.values(space._fullLayout.scene._scene.getCamera().eye);
      const canvas = space.querySelector("canvas");
      const place = canvas.getBoundingClientRect();
      const first = eye();
      await drag(canvas, inner(place, [0.4, 0.5]), inner(place, [0.6, 0.5]));
      await sleep(300);
      seen.turned = [first, eye()];
    }
    measured.explorer = seen;
  }
  parent.postMessage(JSON.stringify(measured), "*");
});
"""
HARNESS = """<!doctype html><title>test</title>
<iframe src="page.html" style="border: 0; width: {}px; height: {}px"></iframe>
<pre id="measured"></pre>
<script>
addEventListener("message", (event) => {{
  document.getElementById("measured").textContent = event.data;
}});
</script>"""


def browse(folder, name, dark=False, height=1000):
    """Return the final state of the document, and the messages on the console."""
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-dev-shm-usage"),
            *(
                "--no-first-run",
                "--enable-unsafe-swiftshader",
                f"--user-data-dir={folder / 'profile'}",
                f"--window-size=1300,{height}",
            ),
            *("--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            (folder / name).as_uri(),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, [line for line in console if not any(text in line for text in ADVICE)]


def probe(folder, page, width, dark, height=4000):
    """Return the measurements of the probe for a page in a frame of a given width."""
    digest = base64.b64encode(hashlib.sha256(PROBE.encode()).digest()).decode()
    html = render_page(page)
    html = html.replace("script-src ", f"script-src &#39;sha256-{digest}&#39; ", 1)
    assert digest in html
    html = html.replace("</body>", f"<script>{PROBE}</script></body>")
    (folder / "page.html").write_text(html, encoding="utf-8")
    (folder / "frame.html").write_text(HARNESS.format(width, height))
    document, console = browse(folder, "frame.html", dark, height)
    assert console == []
    measured = re.search(r'<pre id="measured">(.+?)</pre>', document, re.DOTALL)
    assert measured, document[-2000:]
    return json.loads(unescape(measured[1]))


EVIL = "<img src=x onerror=alert(1)></script><script>document.title='owned'</script>\u202e\"'"


@pytest.fixture(scope="module")
def runs_page(results):
    return page_of_runs(results)


@pytest.fixture(scope="module")
def real_page(reproduced):
    return page_of_runs(read_results(reproduced))


@pytest.fixture(scope="module")
def images_page(sprites):
    return page_of_runs(read_results(sprites))


@pytest.fixture(scope="module")
def fitted():
    """A model, observations and their factors."""
    world = iso.World(iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(9.0), iso.Linear(), seed=0)
    recipe = iso.Recipe(max_steps=60, batch_size=128)
    model = iso.ContrastiveICA(3, space="sphere", recipe=recipe, random_state=0).fit(world)
    z, _ = world.sample_latents(300)
    return model, world.observe(z).numpy(), z.numpy()


@pytest.fixture(scope="module")
def fit_page(fitted):
    command = "isolatent fit x.npy " + "--option value " * 30
    return page_of_fit(*fitted[:2], command=command)


@pytest.fixture(scope="module")
def demo_page(fitted):
    return page_of_fit(*fitted, truth=[9.0])


@pytest.fixture(scope="module")
def recording_page():
    """A fit of a recording that was diagnosed, with hostile names everywhere."""
    rng = np.random.default_rng(0)
    series = np.cumsum(rng.normal(size=(900, 4)), axis=0) @ rng.normal(size=(4, 5))
    recipe = iso.Recipe(max_steps=20, batch_size=64)
    groups = np.repeat(["monday", EVIL], 450)
    model = iso.ContrastiveICA(3, recipe=recipe, random_state=0).fit(series, groups=groups)
    model.feature_names_in_ = np.array([EVIL, "b", "c", "d", "e"], dtype=object)
    checks = (
        Check("information", "supported", 0.9, "0.9 nats", 1e-9, None, 0.02, 0.01),
        Check("pairing", "contradicted", 0.5, EVIL, 1e-9, 0.2, 0.02),
        Check("noise", "cannot tell", None, "not to be told"),
    )
    diagnosis = Diagnosis(False, ("pairing",), None, checks, f"Some pairs are unrelated: {EVIL}.")
    return page_of_fit(model, series, groups=groups, diagnosis=diagnosis, title=EVIL, command=EVIL)


@pytest.fixture
def page(request):
    """The page whose name is the parameter."""
    return request.getfixturevalue(f"{request.param}_page")


OTHERS = (
    *(("runs", 390, True), ("real", 1200, True), ("real", 390, False)),
    *(("fit", 390, False), ("demo", 1200, True), ("recording", 1200, True)),
)


@pytest.mark.parametrize(
    ("page", "width", "dark"),
    [
        ("recording", 390, True),
        ("runs", 1200, False),
        *(pytest.param(*some, marks=pytest.mark.slow) for some in OTHERS),
    ],
    indirect=["page"],
)
def test_the_page_is_drawn_and_fits(page, tmp_path, width, dark):
    measured = probe(tmp_path, page, width, dark)
    assert (measured["width"], measured["dark"]) == (width, dark)
    assert measured["overflow"] <= 0
    shown = re.findall('class="plot" id=', render_page(page))
    assert len(measured["plots"]) == len(shown) > 4
    for plot in measured["plots"]:
        assert plot["drawn"], plot
        assert min(plot["size"]) > 80, plot
        assert plot["marked"] > 5, plot
        assert plot["within"], plot
    assert measured["faint"] == []
    assert measured["requests"] == []
    assert measured["buttons"]
    assert not any("hare" in title or "loud" in title for title in measured["buttons"])
    (low, high), (zoomed_low, zoomed_high) = measured["zoom"]
    assert low < zoomed_low < zoomed_high < high
    assert measured["foreign"] == 0  # elements that names from files would have made
    if page.table:
        check_sorting(measured, len(page.table))


def test_a_selection_is_seen_in_all_views(recording_page, tmp_path):
    """In the plane, in space and over time, until it is cleared; and space can be turned."""
    seen = probe(tmp_path, recording_page, 1200, False)["explorer"]
    assert seen["drawn"] == 900
    assert seen["before"] == ["", 6]
    text, curves, traces = seen["selected"]
    count = int(re.fullmatch("([0-9]+) of 900 rows selected", text)[1])
    assert 50 < count < 850
    assert curves == 9  # a curve for each of three factors and two sessions, and its marks
    assert seen["cleared"] == ["", 6]
    text, low, high, curves = seen["brushed"]  # by dragging over a quarter of the time course
    count = int(re.fullmatch("([0-9]+) of 900 rows selected", text)[1])
    assert abs(count - (high - low) / 4) <= 5
    assert curves == 9
    names = [name for name, _ in seen["colours"]]
    assert names[:2] == ["row", "session"]
    assert [number for _, number in seen["colours"]][1] == 2
    assert all(number > 50 for name, number in seen["colours"] if name != "session")
    if seen["space"]:  # with WebGL
        assert traces > 1
        assert seen["turned"][0] != seen["turned"][1]


def test_dates_are_selected_in_a_time_course(tmp_path):
    codes = np.random.default_rng(0).normal(size=(900, 2))
    times = np.datetime64("2026-01-01T00:00:00") + 60 * np.arange(900)
    rows = encode_rows(codes, times=times)
    page = Page("p", sections=(Section("s", rows=rows, is_recording=True),))
    seen = probe(tmp_path, page, 1200, False)["explorer"]
    assert seen["dates"] == "121 of 900 rows selected"  # from 10:00 to 12:00
    assert re.fullmatch("2[0-9]{2} of 900 rows selected", seen["brushed"][0])


def check_sorting(measured, rows):
    """Every column sorts the table, up and down."""
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


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_latent_traversals_are_drawn_and_fit(images_page, tmp_path, width, dark):
    measured = probe(tmp_path, images_page, width, dark)
    assert measured["overflow"] <= 0
    assert measured["faint"] == []
    assert (
        len(measured["images"])
        == sum(len(section.traversal.rows) for section in images_page.sections)
        == 5
    )
    for image in measured["images"]:
        assert image["drawn"]
        assert image["named"]
        assert abs(image["stretched"]) < 0.3
        assert 300 < image["width"] < width


def test_an_error_in_a_script_is_noticed(tmp_path):
    (tmp_path / "bad.html").write_text("<!doctype html><script>nothing.at.all()</script>")
    assert len(browse(tmp_path, "bad.html")[1]) == 1


def test_hostile_text_is_never_executed(tmp_path, run_of, cell_of, results_of):
    run = run_of(EVIL, command=EVIL, error=EVIL, status=EVIL, warnings=[EVIL])
    given = results_of([cell_of(EVIL, note=EVIL, extra={EVIL: EVIL})], [run], EVIL)
    write_report(tmp_path / "report.html", page_of_runs([given]))
    document, console = browse(tmp_path, "report.html")
    assert console == []
    assert "<img" not in document
    assert not re.search("<title>owned", document)
    buttons = re.findall(r'<button[^>]*class="copy"[^>]*>', document)
    assert buttons
    assert not any("hidden" in button for button in buttons)  # its own script ran
