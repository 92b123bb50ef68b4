"use strict";
// The sections of the page, and following a run that goes on.

const app = { head: null, index: 0, filter: { failed: false, cut: false, step: "", stop: "", task: "" }, shade: "entropy", unfold: false, family: "", metric: "", tree: null };

const section = (id, title, about, ...children) =>
  el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title`, text: title }), about && el("p", { class: "about", text: about }), children);
const panels = (...children) => el("div", { class: "panels" }, children);
const label = (text, control) => el("label", { class: "pick" }, el("span", { text }), control);
const select = (name, options, value, change) => {
  const box = el("select", { "aria-label": name, onchange: (event) => change(event.target.value) }, options.map(([key, text]) => el("option", { value: key, text: visible(text) })));
  box.value = value;
  return label(name, box);
};

// --- what a run came to

const points = (run, name, low, high) => series(run, name).map(([step, y]) => {
  const i = run.steps.indexOf(step);
  return low ? [step, y, run.metrics[low]?.[i], run.metrics[high]?.[i]] : [step, y];
});

const state = (run) => (run.finished ? "finished" : run.kind === "run" && !run.last ? "no step yet" : `not finished; last written ${run.age < 120 ? `${run.age} s` : `${Math.round(run.age / 60)} min`} before`);
const range = (value, low, high) => (finite(value) ? `${num(value, true)}${finite(low) ? ` [${[low, high].map((bound) => (100 * bound).toFixed(1)).join(", ")}]` : ""}` : "–");

function facts(run) {
  const valid = points(run, "valid/success", "valid/low", "valid/high");
  const score = run.summary.success;
  const success = run.kind === "evaluation" ? range(score?.value, score?.low, score?.high) : range(...(valid[0] || []).slice(1));
  const after = valid.length > 1 ? range(...valid.at(-1).slice(1)) : "";
  const tokens = (run.metrics.tokens || []).reduce((sum, value) => sum + (value || 0), 0);
  const alarms = [...new Set(run.alarms.map(([, kind]) => kind))].join(", ") || "none";
  return run.kind === "evaluation"
    ? [["success", success], ["episodes", num(run.summary.episodes)], ["mean reward", num(run.summary.reward)], ["turns", num(run.summary.turns)], ["without a score", num(run.summary.failed)]]
    : [["held-out success", after ? `${success} → ${after}` : success], ["steps", `${run.last}${run.settings.steps ? ` of ${run.settings.steps}` : ""}`], ["tokens drawn", num(tokens)], ["incidents", num(run.incidents.length)], ["alarms", alarms], ["state", state(run)]];
}

function overview(head) {
  const { runs } = head;
  const cards = runs.length === 1
    ? el("dl", { class: "cards" }, facts(runs[0]).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: visible(value) }))))
    : table(["run", ...facts(runs[0]).map(([name]) => name)], runs.map((run) => [run.name, ...facts(run).map(([, value]) => value)]));
  const notes = runs.flatMap((run) => [...run.notes, ...sampling(run)].map((text) => (runs.length > 1 ? `${run.name}: ${text}` : text)));
  return section("overview", "Overview", "", cards, notes.length > 0 && el("ul", { class: "notes" }, notes.map((text) => el("li", { text: visible(text) }))));
}

function sampling(run) {
  const all = run.journals.length;
  if (LIVE || run.chunks.length === all || run.kind !== "run") return [];
  return [`transcripts of ${run.chunks.length} of ${count(all, "step")} are in this page (the last, the first, and steps between at equal distances); numbers of tokens are rounded`];
}

function table(names, rows) {
  const body = rows.map((row) => el("tr", {}, row.map((cell, i) => el(i ? "td" : "th", { scope: i ? null : "row", text: visible(cell ?? "–") }))));
  return el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table, scrolls sideways" }, el("table", {}, el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col", text: name })))), el("tbody", {}, body)));
}

// --- learning curves: a line a run or, of a comparison, the mean of a method over seeds with its interval

function curves(head, name, low, high, dashed = "") {
  const groups = Map.groupBy(head.runs.filter((run) => run.kind === "run"), (run) => /^(.+)\/seed-\d+$/.exec(run.name)?.[1] ?? run.name);
  return [...groups].flatMap(([group, runs], i) => {
    const look = { colour: colour(i), dash: dashed || DASHES[Math.floor(i / COLOURS.length) % DASHES.length] };
    if (runs.length === 1) return [{ name: group, points: points(runs[0], name, low, high), ...look }];
    const by = Map.groupBy(runs.flatMap((run) => series(run, name)), ([step]) => step);
    const found = [...by].sort((a, b) => a[0] - b[0]).map(([step, all]) => {
      const ys = all.map((point) => point[1]);
      const middle = mean(ys);
      const half = ys.length > 1 ? head.t[Math.min(ys.length - 2, head.t.length - 1)] * Math.sqrt(ys.reduce((sum, y) => sum + (y - middle) ** 2, 0) / (ys.length - 1) / ys.length) : NaN;
      return [step, middle, middle - half, middle + half];
    });
    return [{ name: `${group} (${runs.length} seeds)`, points: found, ...look }];
  });
}

function learning(head) {
  const runs = head.runs.filter((run) => run.kind === "run");
  if (!runs.length) return null;
  const one = runs.length === 1;
  const success = curves(head, "valid/success", "valid/low", "valid/high");
  const seeds = success.some((line) => line.name.endsWith("seeds)"));
  const training = one ? [["reward", "reward"], ["success", "success"]].map(([name, key], i) => ({ name, points: series(runs[0], key), colour: colour(i), dash: DASHES[i] })) : curves(head, "reward");
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].sort();
  app.metric = names.includes(app.metric) ? app.metric : names.includes("entropy") ? "entropy" : names[0] || "";
  const place = el("div");
  const draw = (name) => { app.metric = name; place.replaceChildren(figure(visible(name), `${unit(name)}by step`, lines(curves(head, name), { label: name }))); };
  draw(app.metric);
  return section("learning", "Learning", "", panels(
    figure("Held-out success", seeds ? "mean over seeds, 95 % t-interval" : "with its 95 % interval", lines(success, { percent: true, label: "held-out success" })),
    figure(one ? "Reward and success in training" : "Reward in training", "means over the paths of a step", lines(training, { label: "reward in training", zero: true })),
    el("div", {}, select("Any metric", names.map((name) => [name, name]), app.metric, draw), place),
  ));
}

// --- turns

// How far each turn fell from its early level (mean of its first five values), and when it passed half of it.
function falls(run) {
  return family(run, "entropy_turn").map(([turn, row]) => {
    const known = row.map((y, i) => [run.steps[i], y]).filter(([, y]) => finite(y));
    const early = mean(known.slice(0, 5).map(([, y]) => y));
    const late = mean(known.slice(-5).map(([, y]) => y));
    return { turn, early, late, half: known.length > 9 ? known.find(([, y]) => y < early / 2)?.[0] : undefined, n: known.length };
  }).filter((one) => one.n > 5 && one.early > 0);
}

function turns(run) {
  const names = families(run);
  if (!names.length) return null;
  app.family = names.includes(app.family) ? app.family : names[0];
  const fall = falls(run).sort((a, b) => a.late / a.early - b.late / b.early)[0];
  const words = fall && (fall.late < fall.early ? `Turn ${fall.turn} lost most: ${num(fall.early)} nats in its first five steps, ${num(fall.late)} in its last five${fall.half === undefined ? "" : `; first below half of that at step ${fall.half}`}.` : "No turn lost entropy from its first five steps to its last five.");
  const go = (step) => { app.refilter({ step: String(step) }); location.hash = "#episodes"; };
  const place = el("div");
  const relative = (rows) => rows.map(([turn, row]) => { const start = mean(row.filter(finite).slice(0, 5)); return [turn, row.map((y) => (finite(y) && start ? Math.min(y / start, 2) : null))]; });
  const toggle = el("button", { type: "button", class: "chip", text: "relative to its start", title: "each turn by the mean of its first five values; above 2 as 2", onclick: () => { app.relative = !app.relative; draw(app.family); } });
  const draw = (name) => {
    app.family = name;
    toggle.setAttribute("aria-pressed", String(Boolean(app.relative)));
    const rows = family(run, name);
    place.replaceChildren(figure(visible(name), app.relative ? "by turn and step, as a multiple of its first five values" : `${unit(name)}by turn and step`, heat(app.relative ? relative(rows) : rows, run.steps, { label: name, pick: go, top: app.relative ? 1 : 0 })));
  };
  draw(app.family);
  const acts = ["valid_actions", "actions_valid"].find((name) => family(run, name).length);
  const called = series(run, "tool_calls_path").some(([, y]) => y > 0);
  const share = [["tool_ok", "calls that are ok"], ["tool_share", "turns that call"], ["used_tool", "answers from a tool"]].map(([key, name], i) => ({ name, points: series(run, key), colour: colour(i), dash: DASHES[i] }));
  return section("turns", "Turns", words || "", panels(
    el("div", {}, el("div", { class: "bar" }, select("By turn", names.map((name) => [name, name]), app.family, draw), toggle), place),
    figure("Tool calls", "of a path, mean", called ? lines([{ name: "calls", points: series(run, "tool_calls_path"), colour: colour(0) }], { label: "tool calls of a path", zero: true }) : nothing("No tool was called.")),
    acts ? figure("Valid actions", "by turn and step", heat(family(run, acts), run.steps, { label: acts, percent: true, pick: go })) : figure("Valid actions", "share of calls, turns and answers", called ? lines(share, { label: "valid actions", percent: true }) : nothing("No tool was called.")),
  ));
}

// --- what each method did

function controls(run) {
  const methods = Map.groupBy(Object.keys(run.metrics).filter((key) => key.startsWith("control/")), (key) => key.split("/")[1]);
  const acted = ["entropy_coef_turn", "weight_turn", "kl_coef_turn"].filter((name) => family(run, name).length);
  if (run.kind !== "run") return null;
  const figures = [...methods].flatMap(([method, keys]) => {
    const rest = (key) => key.split("/").slice(2);
    const groups = Map.groupBy(keys, (key) => rest(key).filter((part) => !/^\d+$/.test(part)).join(" ") || "value");
    const turnOf = (key) => rest(key).find((part) => /^\d+$/.test(part));
    return [...groups].map(([what, members]) => {
      members.sort((a, b) => turnOf(a) - turnOf(b));
      const name = (key) => (turnOf(key) === undefined ? what : `turn ${turnOf(key)}`);
      const draw = members.length > 8
        ? heat(members.map((key) => [turnOf(key), run.metrics[key]]), run.steps, { label: `${method} ${what}` })
        : lines(members.map((key, i) => ({ name: name(key), points: series(run, key), colour: colour(i), dash: DASHES[i % 4] })), { label: `${method} ${what}`, height: 170 });
      return figure(`${visible(method)}: ${visible(what)}`, turnOf(members[0]) !== undefined ? "by turn" : "", draw);
    });
  });
  const maps = acted.map((name) => figure(name === "weight_turn" ? "Weight of the policy term" : name === "entropy_coef_turn" ? "Coefficient of the entropy term" : name, "what the methods made of it, by turn and step", heat(family(run, name), run.steps, { label: name })));
  const about = `Method ${run.settings.method ?? "unknown"}. ${figures.length ? "The numbers in its state after each step:" : "It has no state that changes from step to step, so there is nothing to show."}`;
  return section("controls", "Controls", about, panels(maps, figures));
}

// --- what happened when

function timeline(run) {
  if (run.kind !== "run") return section("time", "How episodes ended", "", table(["stop reason", "episodes"], Object.entries(run.stops).map(([name, by]) => [name, num(by[0])])));
  const stops = Object.entries(run.stops).map(([name, by], i) => ({ name, by, colour: colour(i) }));
  const steps = [...new Set([...run.steps, ...run.journals])].filter((step) => step > 0).sort((a, b) => a - b);
  const events = run.incidents.map((one) => ({ step: finite(one.step) ? one.step : 0, text: `${one.kind}: ${one.what}`, alarm: one.kind === "alarm" })).sort((a, b) => a.step - b.step);
  const go = (step) => app.refilter({ step: String(step) });
  const items = events.slice(-200).reverse().map((one) => el("li", { class: one.alarm ? "alarm" : "" }, el("b", { text: `step ${one.step}` }), ` ${brief(one.text, 400)}`));
  return section("time", "Time line", events.length ? "" : "No incident and no alarm.", stops.length > 0 && figure("Stop reasons", "share of the episodes of a step; triangles are incidents and alarms", stacked(stops, steps, events, { label: "stop reasons", pick: go })), items.length > 0 && el("ul", { class: "events" }, items), events.length > 200 && el("p", { class: "none", text: `The last 200 of ${events.length} are listed.` }));
}

// --- trees

function forest(run) {
  const { endings } = run;
  if (!endings.step.length) return null;
  const place = el("div");
  const scores = new Map(endings.step.map((step, i) => [`${step} ${endings.task[i]} ${endings.branch[i]}`, endings.score[i]]));
  const gains = endings.step.map((step, i) => (endings.parent[i] < 0 ? null : endings.score[i] - scores.get(`${step} ${endings.task[i]} ${endings.parent[i]}`) )).filter((gain, i) => finite(gain) && finite(endings.score[i]));
  const forks = endings.parent.filter((parent) => parent >= 0).length;
  const words = forks ? `${count(forks, "path")} forked off others. Score less that of the path it left: ${gains.length ? `${num(mean(gains))} on average; ${gains.filter((gain) => gain > 0).length} better, ${gains.filter((gain) => gain < 0).length} worse, ${gains.filter((gain) => gain === 0).length} equal` : "not known"}.` : "No path forked off another: the paths of a task begin at its prompt.";
  const stepsHere = LIVE ? [...new Set(endings.step)] : run.chunks;
  if (!stepsHere.length) return null;
  const pairs = Map.groupBy(endings.step.map((step, i) => i), (i) => endings.step[i]);
  const tasksOf = (step) => [...new Set((pairs.get(step) || []).map((i) => endings.task[i]))];
  // The first task that forks, or else the first whose paths differ in score.
  const wanted = (step) => {
    const all = pairs.get(step) || [];
    const first = new Map(all.map((i) => [endings.task[i], endings.score[i]]).reverse());
    const at = all.find((i) => endings.parent[i] >= 0) ?? all.find((i) => endings.score[i] !== first.get(endings.task[i]));
    return at === undefined ? tasksOf(step)[0] : endings.task[at];
  };
  const draw = async (step, task, chosen) => {
    app.tree = { step, task };
    const data = await transcriptsOf(app.index, step).catch(() => null);
    const tree = data?.trees.find((one) => one.task === task);
    const pickers = el("div", { class: "bar" }, run.kind === "run" && select("Step", stepsHere.map((one) => [String(one), `step ${one}`]), String(step), (one) => draw(Number(one), wanted(Number(one)))), select("Task", (data?.trees.map((one) => one.task) ?? []).map((one) => [String(one), `task ${one}`]), String(task), (one) => draw(step, Number(one))));
    const show = (leaf) => app.choose({ step, task, branch: leaf.branch, parent: leaf.parent, score: leaf.score, stop: leaf.stop });
    place.replaceChildren(pickers, tree ? figure(`Task ${task}`, "circles are turns, coloured by mean entropy; larger ones fork; dashed lines leave inside a turn", treePicture(tree, data.pieces, colour, chosen, show)) : el("p", { class: "none", text: "This task is not in the page." }));
  };
  const first = app.tree && stepsHere.includes(app.tree.step) ? app.tree : { step: stepsHere.at(-1), task: wanted(stepsHere.at(-1)) };
  const near = new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) { near.disconnect(); draw(first.step, first.task); } }, { rootMargin: "400px" });
  near.observe(place);
  const maps = ["forks_turn", "forks_gain_turn"].filter((name) => family(run, name).length).map((name) => figure(name === "forks_turn" ? "Forks" : "Gain of forks", "by turn and step", heat(family(run, name), run.steps, { label: name })));
  return section("tree", "Trees", words, maps.length > 0 && panels(maps), place);
}

// --- settings and numbers of a comparison

function settings(run) {
  const rows = Object.entries({ ...run.settings, ...run.record }).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  const more = Object.entries(run.kind === "evaluation" ? run.summary : {}).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  return section("settings", "Settings", run.folder, el("details", {}, el("summary", { text: `${count(rows.length, "setting")}` }), table(["name", "value"], rows)), more.length > 0 && el("details", { open: true }, el("summary", { text: "All results" }), table(["name", "value"], more)));
}

function comparison(head) {
  const results = head.comparison.results;
  if (!results || typeof results !== "object") return null;
  const said = (one, percent) => (one ? `${num(one.value, percent)}${finite(one.half) ? ` ± ${num(one.half, percent)}` : ""}` : "–");
  const rows = Object.entries(results).map(([name, one]) => [name, one.finished?.length, said(one.before?.over_seeds, true), said(one.after?.over_seeds, true), said(one.ahead_of_reference, true), said(one.spent?.tokens), said(one.spent?.seconds), name === head.comparison.reference ? "" : one.effect?.said || "–"]);
  const advice = Object.values(results).filter((one) => one.effect?.advice).map((one) => el("p", { class: "alarm", text: one.effect.advice }));
  return section("comparison", "Comparison", `Means over seeds ± half of the 95 % t-interval; ahead of ${head.comparison.reference} on the same seeds.`, table(["method", "seeds", "before", "after", "ahead", "tokens", "seconds", `episodes beside ${head.comparison.reference}`], rows), ...advice);
}

// --- the whole

function render() {
  const { head } = app;
  const run = (app.run = head.runs[app.index]);
  const parts = [overview(head), comparison(head), learning(head)];
  if (head.runs.length > 1) parts.push(el("div", { class: "which" }, select("Run shown below", head.runs.map((one, i) => [String(i), one.name]), String(app.index), (index) => { app.index = Number(index); app.tree = null; app.filter = { failed: false, cut: false, step: "", stop: "", task: "" }; render(); })));
  app.open = (one) => { app.now = one; showTranscript(app, one); };
  parts.push(turns(run), controls(run), timeline(run), forest(run), section("episodes", "Episodes", "", episodes(app)), settings(run));
  const known = parts.filter(Boolean);
  $("top").replaceChildren(
    el("div", { class: "title" }, el("h1", { text: visible(head.runs.map((one) => one.name).slice(0, 4).join(", ") + (head.runs.length > 4 ? ", …" : "")) }), el("p", { text: visible([run.settings.env, run.settings.policy, run.settings.method].filter(Boolean).join(" · ")) })),
    el("nav", { "aria-label": "Sections" }, known.filter((part) => part.id).map((part) => el("a", { href: `#${part.id}`, text: part.querySelector("h2").textContent })), LIVE && el("span", { id: "pulse", role: "status", text: "live" })),
  );
  $("main").replaceChildren(...known, el("footer", { text: `turngym ${head.version}, ${LIVE ? "followed live" : `written ${head.at}`}` }));
}

// --- following a run

function merge(old, fresh) {
  fresh.runs.forEach((now, i) => {
    const run = old.runs[i];
    const metrics = {};
    for (const name of new Set([...Object.keys(run.metrics), ...Object.keys(now.metrics)]))
      metrics[name] = [...(run.metrics[name] || run.steps.map(() => null)), ...(now.metrics[name] || now.steps.map(() => null))];
    const endings = {};
    for (const name of Object.keys(now.endings)) endings[name] = [...run.endings[name], ...now.endings[name]];
    const stops = { ...run.stops };
    for (const [name, by] of Object.entries(now.stops)) stops[name] = { ...stops[name], ...by };
    old.runs[i] = { ...now, metrics, endings, stops, steps: [...run.steps, ...now.steps], journals: [...run.journals, ...now.journals], alarms: [...run.alarms, ...now.alarms], chunks: [] };
  });
  return old;
}

async function follow() {
  let wait = 2;
  try {
    const found = await fetch(`news?seen=${app.seen || 0}&steps=${app.head ? app.head.runs.map((run) => run.steps.at(-1) ?? -1) : ""}`);
    if (!found.ok) throw new Error(`status ${found.status}`);
    const fresh = await found.json();
    wait = fresh.wait;
    if (fresh.runs) {
      app.seen = fresh.seen;
      for (const run of fresh.runs) run.chunks = [];
      app.head = app.head && !fresh.whole ? merge(app.head, fresh) : fresh;
      const [at, list] = [scrollY, app.now];
      render();
      scrollTo(0, at);
      if (list) app.open(list);
    }
    if ($("pulse")) $("pulse").textContent = "live";
  } catch (error) {
    if ($("pulse")) $("pulse").textContent = "not reached; the page shows what it has";
    wait = 5;
  }
  setTimeout(follow, 1000 * wait);
}

async function begin() {
  if (LIVE) return follow();
  app.head = await unpack($("head").textContent);
  render();
  const target = location.hash.length > 1 && $(location.hash.slice(1));
  if (target) target.scrollIntoView();
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") tip(null);
});
begin().catch((error) => $("main").replaceChildren(el("p", { class: "none", text: `This page cannot be shown: ${error.message}` })));
