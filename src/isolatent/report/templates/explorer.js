// The explorer: codes in the plane and in space, with one selection for all views.
const decode = ({ dtype, bdata }) => {
  const bytes = Uint8Array.from(atob(bdata), (c) => c.charCodeAt(0));
  return dtype === "u1" ? bytes : new Float32Array(bytes.buffer);
};
// plotly reads some HTML in labels.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
// Dates of equal length, so that they can be compared as text: plotly cuts what is zero.
const comparable = (time) => typeof time === "string"
  ? time.replace("T", " ") + "0000-01-01 00:00:00.000000000".slice(time.length) : time;
const MISSING = 255;
const BINS = 64;

function startExplorer(box) {
  const given = figures[box.id];
  const points = given.points.map(decode);
  const rows = decode(given.rows);
  const colourings = given.colourings.map((one) => ({ ...one, values: decode(one.values) }));
  const all = given.all && { ...given.all, codes: given.all.codes.map(decode) };
  const part = (role) => box.querySelector(`[data-role="${role}"]`);
  const [plane, space, status, clearButton] = ["plane", "space", "status", "clear"].map(part);
  const course = document.querySelector(`.plot[data-links="${box.id}"]`);
  const small = rows.length < 300;
  let chosen = null; // indices of the selected rows, or null for all

  const pick = (role) => Number(part(role)?.value ?? 0);
  const axes = () => {
    const [x, y] = [pick("x"), pick("y")];
    const others = points.map((_, k) => k).filter((k) => k !== x && k !== y);
    return [x, y, others[0] ?? x];
  };

  // One trace for a number, one for each category.
  const marker = (one, index, size) => {
    const values = index.map((k) => one.values[k]);
    if (one.labels.length) {
      return { size, color: values.map((v) => (v === MISSING ? css("--muted") : css(`--c${(v % 8) + 1}`))) };
    }
    const span = one.high - one.low;
    return {
      size,
      color: values.map((v) => (v === MISSING ? null : one.low + (span * v) / (MISSING - 1))),
      colorscale: "scale(sequential)", cmin: one.low, cmax: one.high === one.low ? one.low + 1 : one.high,
      showscale: true,
      colorbar: { title: { text: plain(one.name), side: "right" }, thickness: 12, len: 0.9 },
    };
  };
  const legend = (one, type) => one.labels.slice(0, 30).map((label, k) => ({
    type, mode: "markers", x: [null], y: [null], ...(type === "scatter3d" ? { z: [null] } : {}),
    name: plain(label), marker: { color: css(`--c${(k % 8) + 1}`), size: 8 }, showlegend: true,
  }));

  const density = (x, y) => {
    if (!all) return [];
    const [a, b] = [all.codes[x], all.codes[y]];
    const z = Array.from({ length: BINS }, () => new Array(BINS).fill(0));
    for (let k = 0; k < a.length; k += 1) {
      z[Math.floor((b[k] * BINS) / 255)][Math.floor((a[k] * BINS) / 255)] += 1;
    }
    const place = (k) => Array.from({ length: BINS }, (_, j) =>
      all.low[k] + ((j + 0.5) / BINS) * (all.high[k] - all.low[k]));
    return [{
      type: "heatmap", x: place(x), y: place(y), z: z.map((row) => row.map((v) => (v ? Math.log1p(v) : null))),
      colorscale: [[0, css("--panel")], [1, css("--muted")]], showscale: false, hoverinfo: "skip", opacity: 0.7,
    }];
  };

  const everything = rows.length ? Array.from(rows, (_, k) => k) : [];
  const trace = (type, index, size, opacity, one) => {
    const [x, y, z] = axes();
    const look = marker(one, index, size);
    return {
      type, mode: "markers", showlegend: false,
      x: index.map((k) => points[x][k]), y: index.map((k) => points[y][k]),
      ...(type === "scatter3d" ? { z: index.map((k) => points[z][k]) } : {}),
      customdata: index, text: index.map((k) => `row ${rows[k]}`), hovertemplate: "%{text}<extra></extra>",
      marker: { ...look, opacity },
    };
  };
  // All rows, faint if some are selected, and the selected ones.
  const traces = (type, size, most = Infinity, opacity = small ? 0.85 : 0.6) => {
    const one = colourings[pick("colour")];
    const every = Math.ceil(rows.length / most); // of the rows, which are in random order
    const some = every > 1 ? everything.filter((k) => k % every === 0) : everything;
    const shown = [trace(type, some, size, chosen ? 0.12 : opacity, one)];
    if (chosen) {
      shown[0].marker.showscale = false;
      shown.push(trace(type, chosen, size + 1, 0.95, one));
    }
    return [...shown, ...legend(one, type)];
  };

  const label = (k) => ({ title: { text: plain(given.names[k]) } });
  const drawPlane = () => {
    const [x, y] = axes();
    const layout = {
      xaxis: label(x), yaxis: label(y), margin: { t: 34, l: 8, r: 8, b: 8 }, uirevision: `${x} ${y}`,
      legend: { y: -0.18, yanchor: "top", x: 0, xanchor: "left" },
      ...(coarse ? {} : { dragmode: "select" }),
    };
    return paint(plane, [...density(x, y), ...traces("scatter", small ? 7 : 4)], layout, selecting);
  };
  const drawSpace = () => {
    const [x, y, z] = axes();
    const layout = {
      scene: { xaxis: label(x), yaxis: label(y), zaxis: label(z), aspectmode: "cube", dragmode: "orbit",
               camera: { eye: { x: 1.7, y: 1.7, z: 1.1 } } },
      margin: { t: 34, l: 0, r: 0, b: 0 }, uirevision: `${x} ${y} ${z}`, showlegend: false,
    };
    const data = traces("scatter3d", small ? 4 : 2.5, given.most_in_space, small ? 0.7 : 0.35);
    data.forEach((one) => { one.marker.showscale = false; });
    return paint(space, data, layout, { displayModeBar: true });
  };
  // Marks of the selected rows in the time course, one trace for each factor.
  const markCourse = () => {
    if (!course || !("drawn" in course.dataset)) return;
    const own = figures[course.id];
    const curves = own.data.filter((one, k) => own.data.findIndex((o) => o.meta === one.meta) === k);
    const marks = !chosen ? [] : curves.map((curve) => ({
      type: "scatter", mode: "markers", x: chosen.map((i) => given.times?.[i] ?? rows[i]),
      y: chosen.map((i) => points[curve.meta][i]), yaxis: curve.yaxis, showlegend: false, hoverinfo: "skip",
      marker: { color: "var(--ink)", size: 4 },
    }));
    drawn.set(course, () => paintFigure(course, marks));
    drawn.get(course)();
  };

  let hasSpace = false;
  const draw = () => {
    drawPlane();
    if (hasSpace) drawSpace();
  };
  const select = (index) => {
    chosen = index && index.length && index.length < rows.length ? index : null;
    clearButton.hidden = !chosen;
    status.textContent = chosen ? `${chosen.length} of ${rows.length} rows selected` : "";
    draw();
    markCourse();
  };
  drawn.set(box, draw);
  drawPlane();
  if (space) {
    try {
      const canvas = document.createElement("canvas");
      hasSpace = Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl"));
      if (hasSpace) drawSpace();
    } catch {
      hasSpace = false;
    }
    space.hidden = !hasSpace;
  }
  plane.on("plotly_selected", (event) => {
    if (!event) return;
    select([...new Set(event.points.map((p) => p.customdata).filter(Number.isInteger))]);
  });
  plane.on("plotly_deselect", () => select(null));
  clearButton.addEventListener("click", () => select(null));
  ["x", "y", "colour"].forEach((role) => part(role)?.addEventListener("change", draw));
  // A selection in the time course is a selection of rows.
  if (course) {
    const listen = () => {
      course.on?.("plotly_selected", (event) => {
        if (!event?.range?.x) return;
        const [from, to] = event.range.x;
        select(everything.filter((k) => {
          const time = comparable(given.times?.[k] ?? rows[k]);
          return time >= comparable(from) && time <= comparable(to);
        }));
      });
      course.on?.("plotly_deselect", () => select(null));
    };
    const ready = new MutationObserver(() => { if ("drawn" in course.dataset) { ready.disconnect(); listen(); } });
    if ("drawn" in course.dataset) listen();
    else ready.observe(course, { attributes: true, attributeFilter: ["data-drawn"] });
  }
}
if (held) startFigures();
