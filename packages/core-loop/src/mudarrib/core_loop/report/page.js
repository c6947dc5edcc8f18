"use strict";
// Draws the charts from the numbers in the page; loads nothing.
const { runs, colours, panels } = JSON.parse(document.getElementById("data").textContent);
const DASHES = ["", "7 3", "2 2.5", "8 3 2 3"];
const NOT_NOISY = ["learning rate", "memory"];
const STEP = 0, SECONDS = 2, VALUE = 3, FEW = 30;
const HEIGHT = 230, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 22;
const hidden = new Set();
const element = (id) => document.getElementById(id);
const make = (name, attributes = {}, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};

const namesOf = (panel) => [...new Set(panel.lines.map((line) => line.name))];
const several = runs.length > 1;
const colourOf = (panel, line) =>
  colours[(several ? runs.indexOf(line.run) : namesOf(panel).indexOf(line.name)) % colours.length];
const dashOf = (panel, line) => (several ? DASHES[namesOf(panel).indexOf(line.name) % DASHES.length] : "");
const labelOf = (panel, line) =>
  several ? (namesOf(panel).length > 1 ? `${line.run} · ${line.name}` : line.run) : line.name;

// Numbers and ticks

function number(value, title) {
  if (value === null || value === undefined) return "not finite";
  if (title === "memory") return bytes(value);
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e6) return compact(value);
  if (size < 1e-3) return value.toExponential(2).replace("e-", "e−");
  return String(Number(value.toPrecision(size >= 1000 ? 5 : 4)));
}
function compact(value) {
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 }).format(value);
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(value) >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}
function tick(value, title, logarithmic) {
  if (title === "memory") return bytes(value);
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || (logarithmic && size < 1e-2))) return String(Number(value.toPrecision(3)).toExponential()).replace("e-", "e−");
  return size >= 1e4 ? compact(value) : String(Number(value.toPrecision(6)));
}
function span(value) {
  if (value < 60) return `${Number(value.toPrecision(3))}s`;
  const minutes = value / 60;
  return minutes < 60 ? `${Number(minutes.toPrecision(3))}m` : `${Number((minutes / 60).toPrecision(3))}h`;
}
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999) ?? rough;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found;
}
function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
  const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  return inside.length > 6 ? inside.filter((value) => /^1(e|$|0*$)|^0\.0*1$/.test(String(value))) : inside;
}

// A moving average whose beginning is not pulled to zero.
function smooth(points, weight) {
  let mean = 0, norm = 0;
  return points.map((point) => {
    if (point[VALUE] === null) return point;
    mean = weight * mean + (1 - weight) * point[VALUE];
    norm = weight * norm + (1 - weight);
    return [...point.slice(0, VALUE), mean / norm];
  });
}

// One chart

function chart(panel) {
  const card = document.createElement("section");
  card.className = "card";
  const heading = card.appendChild(document.createElement("h2"));
  heading.textContent = panel.title;
  const values = card.appendChild(document.createElement("ul"));
  values.className = "values";
  const svg = card.appendChild(make("svg", { role: "img", "aria-label": `${panel.title} by step` }));
  const view = { panel, card, values, svg };
  svg.addEventListener("pointermove", (event) => hover(view, event));
  svg.addEventListener("pointerdown", (event) => hover(view, event));
  svg.addEventListener("pointerleave", () => charts.forEach((other) => point(other, null)));
  return view;
}

function settings() {
  return {
    axis: Number(element("axis").value),
    weight: Number(element("smoothing").value),
    logarithmic: element("logarithmic").checked,
  };
}

function draw(view) {
  const { panel, svg } = view;
  const { axis, weight, logarithmic } = settings();
  const width = Math.max(240, Math.round(svg.clientWidth || svg.parentNode.clientWidth - 30));
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren();
  const lines = panel.lines.filter((line) => !hidden.has(line.run)).map((line) => {
    const points = line.points.filter((item) => item[axis] !== null);
    return { line, raw: points, points: weight > 0 && points.length >= FEW && !NOT_NOISY.includes(panel.title) ? smooth(points, weight) : points };
  });
  const finite = lines.flatMap((item) => item.raw).filter((item) => item[VALUE] !== null);
  const isLog = logarithmic && finite.some((item) => item[VALUE] > 0);
  const shown = isLog ? finite.filter((item) => item[VALUE] > 0) : finite;
  view.lines = lines;
  if (!shown.length) {
    view.x = null;
    svg.append(make("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing to show on this axis"));
    return point(view, null);
  }
  scales(view, shown, lines.flatMap((item) => item.raw), { axis, width, isLog });
  axes(view, { axis, width, isLog });
  for (const item of lines) curve(view, item, isLog);
  view.cross = svg.appendChild(make("g"));
  point(view, null);
}

function scales(view, shown, all, { axis, width, isLog }) {
  const xs = all.map((item) => item[axis]), ys = shown.map((item) => item[VALUE]);
  const extent = (list) => list.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  let [left, right] = extent(xs), [low, high] = extent(ys);
  if (left === right) [left, right] = [left - 1, right + 1];
  if (low === high) [low, high] = isLog ? [low / 2, high * 2] : low === 0 ? [-1, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  else if (!isLog) {
    const room = (high - low) * 0.06;
    [low, high] = [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  }
  const place = isLog ? (value) => Math.log10(Math.max(value, low)) : (value) => value;
  view.range = { left, right, low, high };
  view.x = (value) => LEFT + ((value - left) / (right - left)) * (width - LEFT - RIGHT);
  view.y = (value) => HEIGHT - BOTTOM - ((place(value) - place(low)) / (place(high) - place(low))) * (HEIGHT - TOP - BOTTOM);
}

function axes(view, { axis, width, isLog }) {
  const { svg, panel, range } = view;
  const unit = panel.title === "memory" ? 1024 ** Math.floor(Math.log2(Math.max(range.high, 1)) / 10) : 1;
  const marks = isLog ? logTicks(range.low, range.high) : ticks(range.low / unit, range.high / unit, 4).map((value) => value * unit);
  for (const value of marks) {
    const y = view.y(value);
    svg.append(make("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
    svg.append(make("text", { x: LEFT - 7, y: y + 3.5, "text-anchor": "end" }, tick(value, panel.title, isLog)));
  }
  svg.append(make("line", { class: "base", x1: LEFT, x2: width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
  const wanted = Math.max(2, Math.floor((width - LEFT) / 85));
  for (const value of ticks(range.left, range.right, wanted)) {
    if (axis === STEP && value !== Math.round(value)) continue;
    const text = axis === SECONDS ? span(value) : tick(value, "");
    const anchor = view.x(value) > width - RIGHT - 14 ? "end" : "middle";
    svg.append(make("text", { x: view.x(value), y: HEIGHT - 6, "text-anchor": anchor }, text));
  }
}

function path(view, points, axis, isLog) {
  let pen = "M", text = "";
  for (const item of points) {
    if (item[VALUE] === null || (isLog && item[VALUE] <= 0)) { pen = "M"; continue; }
    text += `${pen}${view.x(item[axis]).toFixed(1)} ${view.y(item[VALUE]).toFixed(1)}`;
    pen = "L";
  }
  return text;
}

function curve(view, { line, raw, points }, isLog) {
  const { axis } = settings();
  const stroke = colourOf(view.panel, line), dash = dashOf(view.panel, line);
  if (points !== raw) view.svg.append(make("path", { class: "line raw", stroke, d: path(view, raw, axis, isLog) }));
  view.svg.append(make("path", { class: "line", stroke, "stroke-dasharray": dash, d: path(view, points, axis, isLog) }));
  for (const item of raw) {
    if (item[VALUE] === null) {
      const mark = view.svg.appendChild(make("text", { class: "broken", x: view.x(item[axis]), y: TOP + 10, "text-anchor": "middle" }, "✕"));
      mark.append(make("title", {}, `${line.name} is not finite at step ${item[STEP]}`));
    } else if (raw.length < FEW && !(isLog && item[VALUE] <= 0)) {
      view.svg.append(make("circle", { class: "dot", fill: stroke, r: 2.8, cx: view.x(item[axis]), cy: view.y(item[VALUE]) }));
    }
  }
}

// What is under the pointer, in all charts at once

function hover(view, event) {
  if (!view.x) return;
  const box = view.svg.getBoundingClientRect();
  const share = ((event.clientX - box.left) * (view.svg.viewBox.baseVal.width / box.width) - view.x(view.range.left)) /
    (view.x(view.range.right) - view.x(view.range.left));
  const at = view.range.left + Math.min(1, Math.max(0, share)) * (view.range.right - view.range.left);
  charts.forEach((other) => point(other, at));
}

function nearest(points, axis, at) {
  return points.reduce((best, item) => (best && Math.abs(best[axis] - at) <= Math.abs(item[axis] - at) ? best : item), null);
}

function point(view, at) {
  const { axis } = settings();
  view.cross?.replaceChildren();
  const inside = at !== null && view.x && at >= view.range.left && at <= view.range.right;
  if (inside) view.cross.append(make("line", { class: "cross", x1: view.x(at), x2: view.x(at), y1: TOP, y2: HEIGHT - BOTTOM }));
  view.values.replaceChildren(...(view.lines ?? []).filter((item) => item.points.length).map(({ line, points }) => {
    const found = inside ? nearest(points, axis, at) : points[points.length - 1];
    const colour = colourOf(view.panel, line);
    if (inside && found[VALUE] !== null)
      view.cross.append(make("circle", { class: "dot", fill: colour, r: 4, cx: view.x(found[axis]), cy: view.y(found[VALUE]) }));
    return entry(view.panel, line, colour, found, inside);
  }));
}

function entry(panel, line, colour, found, inside) {
  const item = document.createElement("li");
  const sample = make("svg", { width: 18, height: 8, "aria-hidden": "true" });
  sample.append(make("line", { class: "line", x1: 0, x2: 18, y1: 4, y2: 4, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dashOf(panel, line) }));
  const name = document.createElement("span"), value = document.createElement("b");
  name.textContent = labelOf(panel, line);
  value.textContent = number(found[VALUE], panel.title) + (inside ? ` @ ${Number(found[STEP].toPrecision(7))}` : "");
  item.append(sample, name, value);
  return item;
}

// The page

function runButton(run, index) {
  const item = document.createElement("li"), button = item.appendChild(document.createElement("button"));
  const swatch = button.appendChild(document.createElement("span"));
  swatch.className = "swatch";
  swatch.style.background = colours[index % colours.length];
  button.append(run);
  button.type = "button";
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    if (!hidden.delete(run)) hidden.add(run);
    button.setAttribute("aria-pressed", String(!hidden.has(run)));
    charts.forEach(draw);
  });
  return item;
}

if (several) element("runs").append(...runs.map(runButton));
const every = panels.flatMap((panel) => panel.lines.flatMap((line) => line.points));
for (const option of [...element("axis").options])
  if (every.every((item) => item[Number(option.value)] === null)) option.remove();
if (!panels.some((panel) => panel.lines.some((line) => line.points.length >= FEW))) element("smoothing").parentNode.hidden = true;
const charts = panels.map(chart);
element("charts").append(...charts.map((view) => view.card));
charts.forEach(draw);
element("controls").addEventListener("input", () => {
  element("smoothed").textContent = element("smoothing").value;
  charts.forEach(draw);
});
element("controls").addEventListener("submit", (event) => event.preventDefault());
new ResizeObserver(() => charts.forEach(draw)).observe(element("charts"));
addEventListener("beforeprint", () => charts.forEach(draw));
