"use strict";
// Episodes: filters, a list that only draws what is in view, transcripts shaded by token, the tree of a task.

const ROW = 34;
const PART = 10; // turns that a transcript draws at once
const SPANS = 1200; // tokens of a turn that are drawn at once

// --- the list

// A list of any length: `rows` is set, `draw(row)` fills a line, `open(row)` is called for the one that is chosen.
function virtual(label, draw, open) {
  const inner = el("div", { class: "rows" });
  const box = el("div", { class: "list", tabindex: 0, role: "listbox", "aria-label": label }, inner);
  const list = { box, rows: [], at: -1 };
  const render = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 8);
    const last = Math.min(list.rows.length, first + Math.ceil((box.clientHeight || 400) / ROW) + 16);
    const lines = [];
    for (let i = first; i < last; i++)
      lines.push(el("div", { class: "row", id: `row-${i}`, role: "option", "aria-selected": String(i === list.at), "aria-posinset": i + 1, "aria-setsize": list.rows.length, style: { top: `${i * ROW}px` }, onclick: () => list.choose(i) }, draw(list.rows[i])));
    inner.replaceChildren(...lines);
    if (list.at >= 0) box.setAttribute("aria-activedescendant", `row-${list.at}`);
    else box.removeAttribute("aria-activedescendant");
  };
  let waiting = false;
  box.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; render(); });
  });
  list.set = (rows) => {
    list.rows = rows;
    list.at = -1;
    inner.style.height = `${rows.length * ROW}px`;
    box.scrollTop = 0;
    render();
  };
  list.choose = (i) => {
    list.at = Math.max(0, Math.min(list.rows.length - 1, i));
    const top = list.at * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
    render();
    if (list.rows.length) open(list.rows[list.at]);
  };
  box.addEventListener("keydown", (event) => {
    const page = Math.floor(box.clientHeight / ROW);
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && list.at >= 0) $("transcript").focus();
    if (move === undefined || !list.rows.length) return;
    event.preventDefault();
    list.choose(list.at + move);
  });
  return list;
}

const failed = (one) => !finite(one.score) || one.score < 1;
const limited = (one) => one.cut || one.outcome === "truncated";
const mark = (score) => (!finite(score) ? "–" : score >= 1 ? "✓" : "✗");

function rowsOf(run) {
  const { endings } = run;
  const names = Object.keys(endings);
  return endings.step.map((_, i) => Object.fromEntries(names.map((name) => [name, endings[name][i]])));
}

function episodes(app) {
  const { run } = app;
  const all = rowsOf(run);
  const filter = app.filter;
  const steps = [...new Set(all.map((one) => one.step))];
  const last = steps.at(-1);
  const here = new Set(run.chunks);
  const draw = (one) => [
    el("span", { class: `mark ${failed(one) ? "bad" : "good"}`, text: mark(one.score) }),
    run.kind === "run" && el("span", { text: `step ${one.step}` }),
    el("span", { text: `task ${one.task}` }),
    el("span", { text: `branch ${one.branch}${one.parent >= 0 ? ` (of ${one.parent})` : ""}${one.trained ? "" : ", probe"}` }),
    el("span", { class: "grow", text: `${one.stop}${one.cut ? ", cut" : ""}` }),
    el("span", { text: num(one.score) }),
  ];
  const list = virtual("Episodes", draw, (one) => app.open(one));
  const said = el("output", { class: "said" });
  const apply = () => {
    const found = all.filter((one) =>
      (!filter.failed || failed(one)) && (!filter.cut || limited(one)) && (filter.step === "" || one.step === Number(filter.step)) &&
      (filter.stop === "" || one.stop === filter.stop) && (filter.task === "" || String(one.task) === filter.task.trim()));
    list.set(found);
    const without = new Set(found.map((one) => one.step).filter((step) => !here.has(step) && !LIVE));
    said.textContent = `${found.length.toLocaleString("en")} of ${count(all.length, "episode")}` + (without.size ? `; ${count(without.size, "step has", "steps have")} no transcripts in this page` : "");
    for (const [name, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", String(name === "last" ? filter.step !== "" && Number(filter.step) === last : Boolean(filter[name])));
    [step.value, stop.value, task.value] = [filter.step, filter.stop, filter.task];
  };
  const toggle = (text, title, change) => el("button", { type: "button", class: "chip", "aria-pressed": "false", text, title, onclick: () => { change(); apply(); } });
  const buttons = {
    failed: toggle("Failed", "a score below 1, or none", () => (filter.failed = !filter.failed)),
    cut: toggle("Cut at a limit", "of turns or context, or a turn at the token limit", () => (filter.cut = !filter.cut)),
    last: toggle("Last step", "of which there are episodes", () => (filter.step = Number(filter.step) === last && filter.step !== "" ? "" : String(last))),
  };
  const choice = (label, options, name) => {
    const box = el("select", { "aria-label": label, onchange: (event) => { filter[name] = event.target.value; apply(); } }, options.map(([value, text]) => el("option", { value, text })));
    return box;
  };
  const step = choice("Step", [["", "every step"], ...steps.map((one) => [String(one), `step ${one}${here.has(one) || LIVE ? "" : " (no transcripts)"}`])], "step");
  const stop = choice("Stop reason", [["", "every stop reason"], ...[...new Set(all.map((one) => one.stop))].sort().map((one) => [one, visible(one)])], "stop");
  const task = el("input", { type: "search", placeholder: "task", "aria-label": "Task", size: 9, oninput: (event) => { filter.task = event.target.value; apply(); } });
  if (run.kind !== "run") buttons.last.hidden = step.hidden = true;
  const bar = el("div", { class: "bar" }, Object.values(buttons), step, stop, task, said);
  const transcript = el("div", { id: "transcript", class: "transcript", tabindex: -1 }, el("p", { class: "none", text: all.length ? "Choose an episode." : "No episode was played." }));
  app.refilter = (changes) => { Object.assign(filter, changes); apply(); };
  app.choose = (one) => { const i = list.rows.findIndex((row) => row.step === one.step && row.task === one.task && row.branch === one.branch); if (i >= 0) list.choose(i); else app.open(one); };
  requestAnimationFrame(apply);
  return el("div", {}, bar, el("div", { class: "split" }, list.box, transcript));
}

// --- transcripts

const SHADES = {
  entropy: { text: "entropy", unit: "nats", of: (one) => one.e, colour: (v, most) => `color-mix(in srgb, var(--heat) ${Math.min(85, (100 * v) / most)}%, transparent)` },
  advantage: { text: "advantage", unit: "", of: (one) => one.a, colour: (v, most) => `color-mix(in srgb, var(${v < 0 ? "--minus" : "--plus"}) ${Math.min(70, (70 * Math.abs(v)) / most)}%, transparent)` },
  mismatch: { text: "learner − sampler", unit: "nats", of: (one) => one.m, colour: (v, most) => `color-mix(in srgb, var(--heat) ${Math.min(85, (100 * Math.abs(v)) / most)}%, transparent)` },
  none: { text: "plain", unit: "", of: () => null },
};

// The path of a leaf: its turns, those of the agent with their tokens {text, e, l, a, w, m}.
function pathOf(tree, leaf, pieces) {
  const nodes = [];
  for (let node = leaf.node; node >= 0; node = tree.turns[node].p) nodes.push(node);
  nodes.reverse();
  let slot = 0;
  const column = (name, at) => (Array.isArray(leaf[name]) ? leaf[name][at] : leaf[name]);
  return nodes.map((node) => {
    const turn = tree.turns[node];
    if (!turn.ids) return { node, turn };
    const reader = new TextDecoder();
    const begin = slot;
    const tokens = turn.ids.map((id, i) => {
      const drawn = !turn.s || turn.s[i] === 1;
      const piece = pieces[id];
      const text = piece === undefined ? null : typeof piece === "string" ? reader.decode(new Uint8Array(), { stream: false }) + piece : reader.decode(new Uint8Array(piece), { stream: true });
      const at = drawn ? slot++ : -1;
      return { id, text, drawn, e: drawn ? turn.e[i] : null, l: turn.l[i], a: drawn ? column("a", at) : null, w: drawn ? column("w", at) : null, m: drawn ? column("m", at) : null };
    });
    slot = begin + turn.sampled;
    return { node, turn, tokens };
  });
}

function most(path, shade) {
  const found = path.flatMap((one) => (one.tokens || []).map((token) => Math.abs(shade.of(token) ?? NaN)).filter(finite));
  return Math.max(minmax(found)[1], 1e-9);
}

function spans(tokens, shade, top) {
  return tokens.map((token) => {
    const value = shade.of(token);
    const known = [`token ${token.id}`, finite(token.e) && `entropy ${num(token.e)} nats`, finite(token.l) && token.drawn && `p ${num(Math.exp(token.l))}`, finite(token.a) && `advantage ${num(token.a)}`, finite(token.w) && token.w !== 1 && `weight ${num(token.w)}`, finite(token.m) && `learner − sampler ${num(token.m)} nats`];
    const box = el("span", { class: token.drawn ? "tok" : "tok given", title: token.drawn ? known.filter(Boolean).join("\n") : "given, not drawn", text: visible(token.text) });
    if (finite(value) && value !== 0) box.style.background = shade.colour(value, top);
    return box;
  });
}

// Elements of many tokens, a part at a time.
function shaded(tokens, shade, top) {
  const box = el("span", { class: "said-text" });
  const add = (from) => {
    box.append(...spans(tokens.slice(from, from + SPANS), shade, top));
    const rest = tokens.length - from - SPANS;
    if (rest > 0) box.append(el("button", { type: "button", class: "more", text: `${count(rest, "more token")}`, onclick: (event) => { event.target.remove(); add(from + SPANS); } }));
  };
  add(0);
  return box;
}

const left = (turn) => turn.left > 0 && el("p", { class: "none", text: `${count(turn.left, "character")} in the middle of this turn are left out of the page.` });

function turnBox(part, number, shade, top, unfold) {
  const { turn, tokens } = part;
  const box = el("article", { class: `turn ${turn.r}`, id: `turn-${part.node}` });
  if (turn.p < 0) {
    const messages = turn.messages?.length ? turn.messages : [[turn.r, turn.x, turn.left || 0]];
    for (const [role, text, cut] of messages) box.append(fold(visible(role), brief(text), el("pre", { text: visible(text) }), role !== "system" || unfold), left({ left: cut }) || "");
    return box;
  }
  if (turn.r !== "assistant") {
    box.append(fold(`${turn.r} answers`, brief(turn.x), el("pre", { text: visible(turn.x) }), unfold), left(turn) || "");
    return box;
  }
  const facts = [turn.sampled && `${count(turn.sampled, "token")}`, finite(turn.mean) && `mean entropy ${num(turn.mean)} nats${turn.estimate ? " (estimate)" : ""}`, finite(turn.reward) && turn.reward !== 0 && `reward ${num(turn.reward)}`, turn.ended === "length" && "cut at the token limit", turn.copied && `first ${turn.copied} tokens shared`];
  box.append(el("header", {}, el("b", { text: `turn ${number}` }), el("span", { text: facts.filter(Boolean).join(" · ") })));
  const calls = turn.status !== undefined;
  const whole = tokens && tokens.every((token) => token.text !== null);
  const body = whole ? (from, to) => shaded(tokens.slice(from, to), shade, top) : () => el("span", { class: "said-text", text: visible(turn.x) });
  const split = whole && calls ? Math.min(turn.th || 0, tokens.length) : 0;
  if (split) box.append(el("pre", {}, body(0, split)));
  const rest = el("pre", {}, body(split, Infinity));
  if (calls) box.append(fold(`calls ${visible(turn.tool || "a tool")} (${visible(turn.status)})`, brief(turn.x.slice(-4000)), rest, unfold));
  else box.append(rest);
  if (tokens && !whole) box.append(el("p", { class: "none", text: "The text of tokens was not kept with this run, so they are not shaded." }));
  if (turn.n > (tokens?.length ?? turn.n)) box.append(el("p", { class: "none", text: `${count(turn.n - tokens.length, "later token")} of this turn are left out of the page.` }));
  box.append(left(turn) || "");
  return box;
}

const fold = (name, about, body, open) => el("details", { open }, el("summary", {}, el("b", { text: name }), el("span", { text: ` ${about}` })), body);

async function showTranscript(app, one) {
  const place = $("transcript");
  const data = await transcriptsOf(app.index, one.step).catch(() => null);
  if (app.now !== one) return; // another one was chosen meanwhile
  const tree = data?.trees.find((found) => found.task === one.task);
  const leaf = tree?.leaves.find((found) => found.branch === one.branch);
  if (!leaf) {
    const why = data ? `this page holds ${data.trees.length} of ${data.of} tasks of step ${one.step}` : `this page holds no transcripts of step ${one.step}`;
    place.replaceChildren(el("p", { class: "none", text: `No transcript: ${why}. The journal in the run folder has it.` }));
    return;
  }
  const path = pathOf(tree, leaf, data.pieces);
  const draw = () => {
    const shade = SHADES[app.shade];
    const top = most(path, shade);
    const has = (name) => path.some((part) => part.tokens?.some((token) => finite(SHADES[name].of(token))));
    const radios = Object.entries(SHADES).map(([name, { text }]) => el("button", { type: "button", class: "chip", disabled: name !== "none" && !has(name), "aria-pressed": String(name === app.shade), text, onclick: () => { app.shade = name; draw(); } }));
    const unfold = el("button", { type: "button", class: "chip", "aria-pressed": String(app.unfold), text: "Unfold calls and answers", onclick: () => { app.unfold = !app.unfold; draw(); } });
    const info = leaf.info && leaf.info !== "{}" && el("p", { class: "facts", text: brief(leaf.info, 400) });
    const known = app.shade !== "none" && has(app.shade);
    const range = known && el("div", { class: "legend" }, el("span", { text: `${shade.text}: ${app.shade === "advantage" ? `${num(-top)} (orange) to ${num(top)} (blue)` : `0 to ${num(top)} ${shade.unit}`}` }));
    const lacks = !data.learned && app.run.kind === "run" && el("p", { class: "none", text: "This run kept no advantages and no log-probabilities of the learner." });
    const head = el("div", { class: "head" }, el("h3", { text: `${app.run.kind === "run" ? `Step ${one.step}, task` : "Task"} ${one.task}, branch ${one.branch}` }), el("p", { class: "facts", text: [`${mark(leaf.score)} score ${num(leaf.score)}`, leaf.stop, leaf.outcome, leaf.parent >= 0 && `forked from branch ${leaf.parent}`].filter(Boolean).map(visible).join(" · ") }), info, el("div", { class: "bar" }, radios, unfold), range, lacks);
    const turns = el("div", { class: "turns" });
    const end = el("div", { class: "end" });
    let next = 0;
    let number = 0;
    const add = () => {
      const part = path.slice(next, next + PART);
      next += part.length;
      turns.append(...part.map((one) => turnBox(one, one.turn.r === "assistant" && one.turn.p >= 0 ? number++ : number, shade, top, app.unfold)));
      if (next >= path.length) { sight.disconnect(); end.remove(); }
    };
    const sight = new IntersectionObserver((seen) => { if (seen.at(-1).isIntersecting) { add(); sight.unobserve(end); if (next < path.length) sight.observe(end); } }, { root: place, rootMargin: "600px" });
    place.replaceChildren(head, turns, end);
    place.scrollTop = 0;
    add();
    if (next < path.length) sight.observe(end);
  };
  draw();
}

// --- the tree of a task

function treePicture(tree, pieces, colours, chosen, pick) {
  const own = tree.turns.map((turn, node) => (turn.p >= 0 && turn.r === "assistant" ? node : -1)).filter((node) => node >= 0);
  const above = (node) => { let at = tree.turns[node].p; while (at > 0 && tree.turns[at].r !== "assistant") at = tree.turns[at].p; return at; };
  const parent = new Map(own.map((node) => [node, tree.turns[node].twin >= 0 && tree.turns[node].copied ? above(tree.turns[node].twin) : above(node)]));
  const depth = new Map([[0, 0]]);
  const row = new Map();
  for (const node of own) depth.set(node, (depth.get(parent.get(node)) ?? 0) + 1);
  const ends = new Map();
  const lastOf = (leaf) => { let at = leaf.node; while (at > 0 && tree.turns[at].r !== "assistant") at = tree.turns[at].p; return at; };
  tree.leaves.forEach((leaf) => { const at = lastOf(leaf); ends.set(at, [...(ends.get(at) || []), leaf]); });
  if (own.length > 1500) return () => el("p", { class: "none", text: `${count(own.length, "turn")} are too many to draw as a tree.` });
  const below = Map.groupBy(own, (node) => parent.get(node));
  const children = (node) => below.get(node) || [];
  let next = 0;
  const visit = (node) => { // rows of leaves, then the middle of the children
    const all = [...children(node).map(visit), ...(ends.get(node) || []).map(() => next++)];
    row.set(node, all.length ? mean(all) : next++);
    return row.get(node);
  };
  visit(0);
  const deep = Math.max(1, ...depth.values());
  return (width) => {
    const gap = Math.max(46, Math.min(170, (width - 220) / deep));
    const tall = 26;
    const size = [40 + deep * gap + 190, next * tall + 24];
    const x = (node) => 26 + depth.get(node) * gap;
    const y = (node) => 20 + row.get(node) * tall;
    const picture = svg("svg", { width: size[0], height: size[1], viewBox: `0 0 ${size[0]} ${size[1]}`, class: "tree", role: "group", "aria-label": `Tree of task ${tree.task}: ${count(tree.leaves.length, "path")}` });
    const edge = (x1, y1, x2, y2, kind) => svg("path", { class: `edge ${kind}`, d: `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` });
    for (const node of own) picture.append(edge(x(parent.get(node)), y(parent.get(node)), x(node), y(node), tree.turns[node].copied ? "inside" : ""));
    const means = own.map((node) => tree.turns[node].mean).filter(finite);
    const top = minmax(means)[1];
    picture.append(svg("rect", { class: "root", x: 18, y: y(0) - 8, width: 16, height: 16, rx: 3 }, svg("title", { text: "the prompt" })));
    for (const node of own) {
      const turn = tree.turns[node];
      const forks = children(node).length > 1;
      const about = [`turn ${depth.get(node) - 1}`, finite(turn.mean) && `mean entropy ${num(turn.mean)} nats`, turn.tool && `calls ${turn.tool} (${turn.status})`, forks && `forks into ${children(node).length}`, brief(turn.x, 120)].filter(Boolean).map(visible);
      const on = (tree.leaves.find((leaf) => onPath(tree, leaf, node)) || tree.leaves[0]);
      picture.append(svg("circle", { class: forks ? "node fork" : "node", cx: x(node), cy: y(node), r: forks ? 9 : 7, fill: finite(turn.mean) ? warmth(turn.mean / (top || 1)) : "var(--line)", tabindex: 0, role: "button", "aria-label": about.join(", "), ...acts(() => pick(on, node), about) }));
    }
    const scores = new Map(tree.leaves.map((leaf) => [leaf.branch, leaf.score]));
    for (const [node, leaves] of ends) leaves.forEach((leaf, i) => {
      const at = leaves.length === 1 && !children(node).length ? y(node) : y(node) + (i - (leaves.length - 1) / 2) * tall + (children(node).length ? tall : 0);
      const gain = leaf.parent >= 0 && finite(leaf.score) && finite(scores.get(leaf.parent)) ? leaf.score - scores.get(leaf.parent) : null;
      const text = `${mark(leaf.score)} ${num(leaf.score)}  branch ${leaf.branch}${leaf.parent >= 0 ? ` of ${leaf.parent}${gain === null ? "" : ` (${gain > 0 ? "+" : ""}${num(gain)})`}` : ""}${leaf.trained ? "" : ", probe"}`;
      if (at !== y(node)) picture.append(edge(x(node), y(node), x(node) + 22, at, ""));
      picture.append(svg("text", { class: `leaf ${failed(leaf) ? "bad" : "good"} ${leaf.branch === chosen ? "chosen" : ""}`, x: x(node) + 26, y: at + 4, tabindex: 0, role: "button", "aria-label": `${text}, ${leaf.stop}`, text, ...acts(() => pick(leaf), [text, leaf.stop]) }));
    });
    return [el("div", { class: "wide", tabindex: 0, "aria-label": "Tree, scrolls sideways" }, picture), finite(top) && el("div", { class: "legend" }, scaleOf("0", `${num(top)} nats`))];
  };
}

const onPath = (tree, leaf, node) => { for (let at = leaf.node; at >= 0; at = tree.turns[at].p) if (at === node) return true; return false; };

const acts = (act, lines) => ({
  onclick: act,
  onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } },
  onpointermove: (event) => tip(lines, event.clientX, event.clientY),
  onpointerleave: () => tip(null),
});
