// Draw figures with plotly.js, which the page holds compressed, when they come into view.
const held = document.getElementById("figures");
const figures = held ? JSON.parse(held.textContent) : {};
const coarse = matchMedia("(pointer: coarse)").matches;
const config = {
  displaylogo: false,
  displayModeBar: coarse ? false : "hover",
  responsive: true,
  toImageButtonOptions: { format: "svg" },
  // Nothing leaves the page; and the mouse selects, zooms and moves without further buttons.
  modeBarButtonsToRemove: ["sendChartToCloud", "zoomIn2d", "zoomOut2d", "autoScale2d", "pan2d",
                           "select2d", "lasso2d", "resetCameraLastSave3d", "tableRotation"],
};
const scheme = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map(); // how to draw each element again, in other colours

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => scheme.matches && !document.documentElement.classList.contains("printed");
const scales = {
  heat: () => [[0, css("--surface")], [1, css("--heat")]],
  signed: () => [[0, css("--second")], [0.5, css("--surface")], [1, css("--first")]],
  // Parts of a perceptually uniform scale that stand out from the background.
  sequential: () => (isDark()
    ? [[0, "#5b2fb0"], [0.25, "#a03fb8"], [0.5, "#d9577b"], [0.75, "#f5944c"], [1, "#f4ee5c"]]
    : [[0, "#0d0887"], [0.25, "#6a00a8"], [0.5, "#b12a90"], [0.75, "#e16462"], [1, "#f0a030"]]),
};

// Replace names of colours by those of the current scheme; arrays of numbers stay as they are.
const coloured = (value) => {
  if (typeof value === "string") {
    if (value.startsWith("var(")) return css(value.slice(4, -1));
    if (value.startsWith("scale(")) return scales[value.slice(6, -1)]();
    return value;
  }
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(coloured);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item)]));
};

const clear = "rgba(0,0,0,0)";
const defaults = () => {
  const axis = {
    gridcolor: css("--rule"), linecolor: css("--muted"), tickcolor: css("--rule"), zeroline: false,
    automargin: true, ticks: "outside", ticklen: 4, title: { standoff: 6 }, color: css("--muted"),
  };
  const deep = { gridcolor: css("--rule"), color: css("--muted"), backgroundcolor: clear };
  return {
    paper_bgcolor: clear,
    plot_bgcolor: clear,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink") },
    title: { x: 0, xref: "container", xanchor: "left", y: 1, yanchor: "top", pad: { t: 6, l: 4 },
             font: { size: 13, weight: 600 } },
    margin: { t: 40, l: 8, r: 12, b: 8 },
    xaxis: axis,
    yaxis: axis,
    scene: { xaxis: deep, yaxis: deep, zaxis: deep },
    legend: { orientation: "h", x: 1, xanchor: "right", y: 1, yanchor: "bottom",
              bgcolor: clear, font: { size: 11 } },
    hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--rule"), font: { color: css("--ink") } },
    modebar: { bgcolor: clear, color: css("--muted"), activecolor: css("--ink") },
    dragmode: coarse ? false : "zoom",
  };
};

// Draw traces into an element; a later call replaces them.
const paint = (box, data, layout, options = {}) => {
  box.querySelector(".undrawn")?.remove();
  const complete = { template: { layout: defaults() }, ...coloured(layout), autosize: true };
  return Plotly.react(box, coloured(data), complete, { ...config, ...options });
};

// Of the explorer, and of figures that are linked with it: their tools select rows.
const selecting = {
  displayModeBar: true,
  modeBarButtonsToRemove: config.modeBarButtonsToRemove.filter((name) => !/select|lasso|pan/.test(name)),
};
const paintFigure = (box, more = []) => {
  const { data, layout } = figures[box.id];
  if (!box.dataset.links) return paint(box, data, layout);
  const linked = { ...layout, uirevision: "linked", ...(coarse ? { dragmode: false } : {}) };
  return paint(box, [...data, ...more], linked, selecting);
};

const drawFigure = (box) => {
  drawn.set(box, () => paintFigure(box));
  return drawn.get(box)();
};

const loadLibrary = async () => {
  const text = document.getElementById("library").textContent;
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script); // the policy admits it by its digest
};

const startFigures = async () => {
  await loadLibrary();
  const waiting = new Map();
  const start = (box) => {
    const draw = waiting.get(box);
    if (!draw) return;
    waiting.delete(box);
    watcher.unobserve(box);
    draw(box);
    box.dataset.drawn = "";
  };
  const watcher = new IntersectionObserver(
    (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => start(e.target)),
    { rootMargin: "400px" },
  );
  document.querySelectorAll(".plot[id]").forEach((box) => waiting.set(box, drawFigure));
  document.querySelectorAll("figure.explorer").forEach((box) => waiting.set(box, startExplorer));
  waiting.forEach((_, box) => watcher.observe(box));
  const again = () => drawn.forEach((draw) => draw());
  scheme.addEventListener("change", again);
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printed");
    unfold(document);
    waiting.forEach((_, box) => start(box));
    again();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printed");
    again();
  });
  document.documentElement.dataset.ready = "";
};
