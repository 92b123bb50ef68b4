"use strict";
// Charts as inline SVG. Each is drawn for the width it has, and answers the pointer and the arrow keys.

const PAD = { left: 48, right: 14, top: 10, bottom: 30 };
const drawn = new Set(); // what is drawn again when its width changes

const watcher = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries)
    if (target.isConnected && Math.abs((target.width || 0) - contentRect.width) > 1) {
      target.width = contentRect.width;
      requestAnimationFrame(() => target.draw());
    }
});

// A figure whose `draw(width)` returns the picture and what a key or the pointer does in it.
function figure(title, about, draw, extra = null) {
  const stage = el("div", { class: "stage" });
  const box = el("figure", {}, el("figcaption", {}, el("b", { text: title }), about && el("span", { text: ` ${about}` })), extra, stage);
  stage.draw = () => {
    const width = Math.max(Math.floor(stage.clientWidth || 600), 220);
    stage.replaceChildren(...[draw(width)].flat().filter(Boolean));
  };
  watcher.observe(stage);
  return box;
}

const nothing = (text = "Nothing was measured.") => () => el("p", { class: "none", text });

function ticks(low, high, most) {
  const raw = (high - low) / Math.max(most, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  return found;
}

const scale = (from, to, low, high) => (value) => low + ((value - from) / (to - from || 1)) * (high - low);

// --- the tip, which also says aloud what it shows

function tip(lines, x, y) {
  const box = $("tip");
  box.hidden = !lines;
  if (!lines) return;
  box.replaceChildren(...lines.map((line) => el("div", {}, line)));
  const { offsetWidth: w, offsetHeight: h } = box;
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - w - 8))}px`;
  box.style.top = `${y + 18 + h > innerHeight ? y - h - 12 : y + 18}px`;
}

// Lets pointer and arrows choose one of `n` columns (and `m` rows) of a picture; `show` returns the lines of the tip.
function explore(picture, n, m, at, show, pick) {
  let where = [n - 1, 0];
  const rect = () => picture.getBoundingClientRect();
  const say = (x, y) => tip(show(...where), x ?? rect().left + rect().width / 2, y ?? rect().top + 20);
  picture.addEventListener("pointermove", (event) => {
    const found = at(event.clientX - rect().left, event.clientY - rect().top);
    if (!found) return tip(null);
    where = found;
    say(event.clientX, event.clientY);
  });
  picture.addEventListener("pointerleave", () => { tip(null); show(null); });
  picture.addEventListener("blur", () => { tip(null); show(null); });
  picture.addEventListener("click", () => pick && pick(...where));
  picture.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-n, 0], End: [n, 0] }[event.key];
    if (event.key === "Enter" && pick) pick(...where);
    else if (event.key === "Escape") tip(null);
    if (!move || (move[1] && m < 2)) return;
    event.preventDefault();
    where = [Math.max(0, Math.min(n - 1, where[0] + move[0])), Math.max(0, Math.min(m - 1, where[1] + move[1]))];
    say();
  });
}

function frame(width, height, label) {
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": label, focusable: true });
}

function axes(picture, width, height, x, y, xs, ys, form) {
  for (const tick of ys)
    picture.append(
      svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: PAD.left - 6, y: y(tick) + 4, "text-anchor": "end", text: form(tick) }),
    );
  for (const tick of xs) picture.append(svg("text", { class: "tick", x: x(tick), y: height - PAD.bottom + 16, "text-anchor": "middle", text: num(tick) }));
  picture.append(svg("text", { class: "tick", x: width - PAD.right, y: height - 2, "text-anchor": "end", text: "step" }));
}

const whole = (values) => values.filter(Number.isInteger);

// --- lines: `all` is [{name, points: [[x, y, low?, high?]], colour, dash}]

function lines(all, { height = 210, percent = false, label, zero = false }) {
  all = all.filter((one) => one.points.length);
  return (width) => {
    if (!all.length) return nothing()();
    const xs = all.flatMap((one) => one.points.map((point) => point[0]));
    const ys = all.flatMap((one) => one.points.flatMap((point) => point.slice(1).filter(finite)));
    let [low, high] = percent ? [0, 1] : [zero ? Math.min(0, ...minmax(ys)) : minmax(ys)[0], minmax(ys)[1]];
    if (low === high && zero && low === 0) high = 1;
    if (low === high) [low, high] = [low - (Math.abs(low) * 0.1 || 0.5), high + (Math.abs(high) * 0.1 || 0.5)];
    if (percent && minmax(ys)[1] > 1) high = minmax(ys)[1];
    const [first, last] = minmax(xs);
    const x = scale(first, last, PAD.left, width - PAD.right);
    const y = scale(low, high, height - PAD.bottom, PAD.top);
    const form = (value) => num(value, percent);
    const said = all.slice(0, 6).map((one) => `${one.name} from ${form(one.points[0][1])} to ${form(one.points.at(-1)[1])}`);
    const picture = frame(width, height, `${label}: ${said.join("; ")}`);
    axes(picture, width, height, x, y, whole(ticks(first, last, width / 90)), ticks(low, high, 4), form);
    for (const one of all) {
      const band = one.points.filter((point) => finite(point[2]) && finite(point[3]));
      if (band.length > 1 || band.length === one.points.length) {
        const edge = [...band.map((p) => [x(p[0]), y(p[2])]), ...band.map((p) => [x(p[0]), y(p[3])]).reverse()];
        if (band.length === 1) picture.append(svg("line", { stroke: one.colour, "stroke-opacity": 0.5, x1: edge[0][0], x2: edge[1][0], y1: edge[0][1], y2: edge[1][1] }));
        else if (band.length) picture.append(svg("polygon", { points: edge.map((p) => p.map((v) => v.toFixed(1)).join()).join(" "), fill: one.colour, "fill-opacity": 0.14 }));
      }
      const path = one.points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`);
      picture.append(svg("polyline", { points: path.join(" "), fill: "none", stroke: one.colour, "stroke-width": 1.8, "stroke-dasharray": one.dash || null }));
      if (path.length <= 30) for (const point of one.points) picture.append(svg("circle", { cx: x(point[0]), cy: y(point[1]), r: 2.4, fill: one.colour }));
    }
    const columns = [...new Set(xs)].sort((a, b) => a - b);
    const cursor = svg("line", { class: "cursor", y1: PAD.top, y2: height - PAD.bottom, visibility: "hidden" });
    picture.append(cursor);
    const nearest = (px) => columns.reduce((best, value, i) => (Math.abs(x(value) - px) < Math.abs(x(columns[best]) - px) ? i : best), 0);
    explore(picture, columns.length, 1, (px) => [nearest(px), 0], (column) => {
      cursor.setAttribute("visibility", column === null ? "hidden" : "visible");
      if (column === null) return null;
      const step = columns[column];
      cursor.setAttribute("x1", x(step));
      cursor.setAttribute("x2", x(step));
      const at = all.map((one) => [one, one.points.find((point) => point[0] === step)]).filter(([, point]) => point);
      return [`step ${num(step)}`, ...at.slice(0, 12).map(([one, p]) => `${one.name}: ${form(p[1])}${finite(p[2]) ? ` [${form(p[2])}, ${form(p[3])}]` : ""}`)];
    });
    return [picture, all.length > 1 && legend(all)];
  };
}

function minmax(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function legend(all) {
  const key = (one) => svg("svg", { width: 22, height: 10, "aria-hidden": true }, svg("line", { x1: 1, x2: 21, y1: 5, y2: 5, stroke: one.colour, "stroke-width": 2.4, "stroke-dasharray": one.dash || null }));
  return el("div", { class: "legend" }, all.map((one) => el("span", {}, key(one), visible(one.name))));
}

// --- a heat map: rows by turn, columns by step; neighbours are averaged where there are more steps than columns

const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

const SIGNED = [[196, 92, 0], [240, 170, 100], [236, 236, 236], [120, 175, 225], [0, 92, 170]]; // below and above 0

function warmth(share, ramp = VIRIDIS) {
  const at = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
  const [low, high] = [ramp[Math.floor(at)], ramp[Math.ceil(at)]];
  return `rgb(${low.map((value, i) => Math.round(value + (high[i] - value) * (at % 1))).join()})`;
}

const scaleOf = (low, high, ramp = VIRIDIS) =>
  el("span", {}, low, el("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${ramp.map((one) => `rgb(${one})`).join()})` } }), high);

function heat(rows, steps, { label, percent = false, pick, top = 0 }) {
  const first = steps.findIndex((_, i) => rows.some(([, row]) => finite(row[i])));
  [rows, steps] = [rows.map(([turn, row]) => [turn, row.slice(Math.max(first, 0))]), steps.slice(Math.max(first, 0))];
  return (width) => {
    const values = rows.flatMap(([, row]) => row.filter(finite));
    if (!values.length) return nothing()();
    const signed = minmax(values)[0] < 0;
    const sizes = values.map(Math.abs).sort((a, b) => a - b);
    const size = top || sizes[Math.floor(0.95 * (sizes.length - 1))] || sizes.at(-1); // so that a rare turn does not darken the others
    const more = size < sizes.at(-1) ? "≥ " : "";
    const [low, high] = signed ? [-size, size] : [0, size];
    const ramp = signed ? SIGNED : VIRIDIS;
    const room = width - PAD.left - PAD.right;
    const bin = Math.ceil(steps.length / Math.max(20, Math.min(room / 4, 6000 / rows.length)));
    const columns = Math.ceil(steps.length / bin);
    const tall = Math.max(7, Math.min(26, 200 / rows.length));
    const height = PAD.top + rows.length * tall + PAD.bottom;
    const picture = frame(width, height, `${label}: ${rows.length} turns, ${steps.length} steps, from ${num(low)} to ${num(high)}`);
    const wide = room / columns;
    const cell = (row, column) => {
      const inside = rows[row][1].slice(column * bin, (column + 1) * bin).filter(finite);
      return inside.length ? mean(inside) : null;
    };
    rows.forEach(([turn], row) => {
      if (rows.length < 24 || row % 5 === 0) picture.append(svg("text", { class: "tick", x: PAD.left - 6, y: PAD.top + (row + 0.5) * tall + 4, "text-anchor": "end", text: turn }));
      for (let column = 0; column < columns; column++) {
        const value = cell(row, column);
        if (value !== null) picture.append(svg("rect", { x: (PAD.left + column * wide).toFixed(2), y: PAD.top + row * tall, width: (wide + 0.3).toFixed(2), height: tall - 1, fill: warmth((value - low) / (high - low || 1), ramp) }));
      }
    });
    for (const tick of whole(ticks(steps[0], steps.at(-1), width / 90))) {
      const column = steps.findIndex((step) => step >= tick) / bin;
      if (column >= 0) picture.append(svg("text", { class: "tick", x: PAD.left + (Math.floor(column) + 0.5) * wide, y: height - PAD.bottom + 16, "text-anchor": "middle", text: tick }));
    }
    picture.append(svg("text", { class: "tick", x: width - PAD.right, y: height - 2, "text-anchor": "end", text: "step" }), svg("text", { class: "tick", x: 0, y: height - PAD.bottom + 16, text: "turn" }));
    const cursor = svg("rect", { class: "cell", width: wide, height: tall, visibility: "hidden" });
    picture.append(cursor);
    const name = (column) => (bin === 1 ? `step ${steps[column]}` : `mean of steps ${steps[column * bin]} to ${steps[Math.min((column + 1) * bin, steps.length) - 1]}`);
    const at = (px, py) => {
      const [column, row] = [Math.floor((px - PAD.left) / wide), Math.floor((py - PAD.top) / tall)];
      return column >= 0 && column < columns && row >= 0 && row < rows.length ? [column, row] : null;
    };
    explore(picture, columns, rows.length, at, (column, row) => {
      cursor.setAttribute("visibility", column === null ? "hidden" : "visible");
      if (column === null) return null;
      cursor.setAttribute("x", PAD.left + column * wide);
      cursor.setAttribute("y", PAD.top + row * tall);
      return [`turn ${rows[row][0]}, ${name(column)}`, `${label}: ${num(cell(row, column), percent)}`];
    }, pick && ((column, row) => pick(steps[Math.min((column + 1) * bin, steps.length) - 1], rows[row][0])));
    return [picture, el("div", { class: "legend" }, scaleOf(num(low, percent), more + num(high, percent), ramp), bin > 1 && el("span", { text: `each column is the mean of ${bin} steps` }))];
  };
}

// --- stacked shares by step, with marks above them

function stacked(parts, steps, marks, { label, pick }) {
  return (width) => {
    const height = 210;
    const top = PAD.top + (marks.length ? 22 : 0);
    const bin = Math.ceil(steps.length / Math.max(20, (width - PAD.left - PAD.right) / 4));
    const columns = Math.ceil(steps.length / bin);
    const wide = (width - PAD.left - PAD.right) / Math.max(columns, 1);
    const y = scale(0, 1, height - PAD.bottom, top);
    const picture = frame(width, height, `${label}: ${parts.map((part) => part.name).join(", ")}`);
    axes(picture, width, height, (v) => v, y, [], [0, 0.5, 1], (value) => num(value, true));
    const inside = (part, column) => steps.slice(column * bin, (column + 1) * bin).reduce((sum, step) => sum + (part.by[step] || 0), 0);
    for (let column = 0; column < columns; column++) {
      const all = parts.reduce((sum, part) => sum + inside(part, column), 0);
      let below = 0;
      for (const part of parts) {
        const share = all ? inside(part, column) / all : 0;
        if (share) picture.append(svg("rect", { x: PAD.left + column * wide, y: y(below + share), width: Math.max(wide - (wide > 5 ? 1 : 0), 0.5), height: y(below) - y(below + share), fill: part.colour }));
        below += share;
      }
    }
    const place = (step) => PAD.left + (Math.max(0, steps.findIndex((one) => one >= step)) / bin + 0.5) * wide;
    for (const tick of whole(ticks(steps[0], steps.at(-1), width / 90))) picture.append(svg("text", { class: "tick", x: place(tick), y: height - PAD.bottom + 16, "text-anchor": "middle", text: tick }));
    for (const mark of marks.slice(-400)) picture.append(svg("path", { class: `flag ${mark.alarm ? "alarm" : ""}`, d: `M${place(mark.step)} ${top - 4} l-5 -9 h10 z` }, svg("title", { text: `step ${mark.step}: ${visible(mark.text)}` })));
    explore(picture, columns, 1, (px) => [Math.max(0, Math.min(columns - 1, Math.floor((px - PAD.left) / wide))), 0], (column) => {
      if (column === null) return null;
      const near = marks.filter((mark) => steps.slice(column * bin, (column + 1) * bin).includes(mark.step));
      return [`step ${steps[column * bin]}`, ...parts.map((part) => [part, inside(part, column)]).filter(([, n]) => n).map(([part, n]) => `${visible(part.name)}: ${n}`), ...near.slice(0, 3).map((mark) => brief(mark.text))];
    }, pick && ((column) => pick(steps[Math.min((column + 1) * bin, steps.length) - 1])));
    return [picture, legend(parts.map((part) => ({ ...part, dash: "" })))];
  };
}
