"use strict";
// Elements, numbers and the data in the page. Text only ever becomes text: nothing here writes HTML.

const $ = (id) => document.getElementById(id);

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);
const svg = (tag, props = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

// --- numbers and texts

const finite = (value) => typeof value === "number" && Number.isFinite(value);

function num(value, percent = false) {
  if (!finite(value)) return "–";
  if (percent) return `${(100 * value).toFixed(Math.abs(value) < 0.1 && value !== 0 ? 1 : 0)} %`;
  const size = Math.abs(value);
  if (Number.isInteger(value)) return size < 1e4 ? String(value) : value.toLocaleString("en");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size !== 0 && size < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

// What the figure of a metric says of its unit.
const unit = (name) => (/^entropy(?!_coef)|^kl|log_ratio|mismatch/.test(name) ? "in nats, " : "");

const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

// Characters that cannot be seen, or that turn the text around, by their number.
const visible = (text) =>
  String(text).replace(ODD, (char) => `⟨${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
const brief = (text, most = 90) => {
  const line = visible(String(text).slice(0, most * 2)).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most)}…` : line;
};

// --- the data

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const LIVE = document.documentElement.hasAttribute("data-live");
const opened = new Map(); // transcripts by "RUN-STEP"

async function transcriptsOf(run, step) {
  const name = `${run}-${step}`;
  if (!opened.has(name)) {
    const part = $(`c-${name}`);
    if (part) opened.set(name, unpack(part.textContent));
    else if (LIVE) opened.set(name, fetch(`step?run=${run}&step=${step}`).then((found) => found.json()));
    else return null;
    if (opened.size > 12) opened.delete(opened.keys().next().value);
  }
  return opened.get(name);
}

// Of a run: a metric as points, and the members NAME/T of a family by T.
const series = (run, name) => (run.metrics[name] || []).map((y, i) => [run.steps[i], y]).filter(([, y]) => finite(y));

function family(run, name) {
  const turns = Object.keys(run.metrics).filter((key) => key.startsWith(`${name}/`) && /^\d+$/.test(key.slice(name.length + 1)));
  return turns.map((key) => [Number(key.slice(name.length + 1)), run.metrics[key]]).sort((a, b) => a[0] - b[0]);
}

const families = (run) =>
  [...new Set(Object.keys(run.metrics).map((key) => /^(.+)\/\d+$/.exec(key)?.[1]).filter(Boolean))]
    .filter((name) => !name.startsWith("control/"));

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8a3c", "#7a5195"];
const colour = (index) => COLOURS[index % COLOURS.length];
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
