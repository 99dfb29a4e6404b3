"use strict";
const POLL_MS = 2000, WINDOW_S = 30, HISTORY = 60, STEP = 2 ** (1 / 8), MOST_BATCHES = 12;
const root = document.documentElement;
const page = Object.fromEntries([...document.querySelectorAll("[id]")].map(node => [node.id, node]));
const polls = [];  // what the server told, the oldest first: one poll older than the window, and those in it
const rates = new Map();  // requests per second of each model version, the oldest first
let token = sessionStorage.getItem("token") || "";

window.addEventListener("error", event => { root.dataset.errors = (root.dataset.errors || "") + event.message; });

function make(tag, content, attributes = {}) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...[content].flat());
  return node;
}

function minus(newer, older) {
  const before = new Map(older);
  return newer.map(([key, count]) => [key, count - (before.get(key) || 0)]).filter(([, count]) => count > 0);
}

function quantile(latencies, part) {
  const total = latencies.reduce((sum, [, count]) => sum + count, 0);
  let left = part * total;
  for (const [bound, count] of latencies) {
    if (left <= count) return bound / STEP + (bound - bound / STEP) * left / count;
    left -= count;
  }
  return undefined;
}

function duration(us) {
  if (us === undefined) return "–";
  if (us < 1e3) return `${us.toPrecision(us < 100 ? 2 : 3)} µs`;
  return us < 1e6 ? `${(us / 1e3).toPrecision(3)} ms` : `${(us / 1e6).toPrecision(3)} s`;
}

function number(value) {
  if (value === undefined) return "–";
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toPrecision(2);
}

function keyOf(model) { return `${model.name}/${model.version}`; }

function find(poll, model) { return poll && poll.models.find(other => keyOf(other) === keyOf(model)); }

function activity(model) {
  const now = polls[polls.length - 1], first = polls[0], before = find(first, model);
  const seconds = now.time_s - first.time_s;
  const rate = before && seconds > 0 ? (model.counts.success - before.counts.success) / seconds : undefined;
  const recent = before ? minus(model.counts.latencies, before.counts.latencies) : [];
  return {rate, latencies: recent.length ? recent : model.counts.latencies};
}

function tile(label, value, tone = "") { return make("div", [make("dt", label), make("dd", value, {class: tone})]); }

function numbers(model) {
  const {rate, latencies} = activity(model), counts = model.counts;
  const tiles = [
    tile("requests/s", number(rate)),
    ...[50, 95, 99].map(part => tile(`p${part}`, duration(quantile(latencies, part / 100)))),
    tile("waiting", number(counts.waiting)),
    tile("answered", number(counts.success)),
    tile("failed", number(counts.failures), counts.failures ? "bad" : ""),
  ];
  if (counts.rejections) tiles.push(tile("rejected", number(counts.rejections), "bad"));
  if (counts.fallbacks) tiles.push(tile("fell back", number(counts.fallbacks), "busy"));
  return make("div", [make("dl", tiles), history(model)]);
}

function history(model) {
  const values = rates.get(keyOf(model)), most = Math.max(...values, 1e-9), space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg"), line = document.createElementNS(space, "polyline");
  const points = values.map((value, at) => `${HISTORY - values.length + at},${32 - 30 * value / most}`);
  line.setAttribute("points", points.join(" "));
  drawing.setAttribute("viewBox", `0 0 ${HISTORY - 1} 33`);
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("class", "history");
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", "Requests per second, lately");
  drawing.append(line);
  return drawing;
}

function where(model) {
  const runs = model.runs;
  const all = runs.engine_nodes + runs.native_nodes, share = make("i", "");
  share.style.width = `${all ? 100 * runs.engine_nodes / all : 0}%`;
  const link = make("a", "why", {href: `models/${encodeURIComponent(model.name)}/versions/${model.version}/explain`});
  link.addEventListener("click", open);
  const engines = `${runs.engine_nodes} in ${runs.segments} ${runs.engine} segment${runs.segments === 1 ? "" : "s"}, `;
  const told = `${runs.segments ? engines : ""}${runs.native_nodes} native, ${runs.precision} (`;
  const parts = [make("h3", "Where nodes run"), make("div", share, {class: "share"}), make("p", [told, link, ")"])];
  if (runs.stand_in) parts.push(make("p", "Its engines are being built.", {class: "busy"}));
  for (const one of model.variants) {
    const figures = one.p95_ms === undefined ? "" : `: ${duration(1e3 * one.p95_ms)}`;
    const told = `${one.name}, quality ${one.quality}${figures}${one.answers ? ", answers" : ""}`;
    parts.push(make("p", told, {class: one.answers ? "good" : "note"}));
  }
  for (const reason of runs.rejected) parts.push(make("p", reason, {class: "reason"}));
  return make("div", parts, {class: "where"});
}

function batches(model) {
  const sizes = model.counts.batches, shown = sizes.slice(0, MOST_BATCHES);
  const rest = sizes.slice(MOST_BATCHES).reduce((sum, [, count]) => sum + count, 0);
  if (rest) shown.push([`> ${shown[MOST_BATCHES - 1][0]}`, rest]);
  const most = Math.max(...shown.map(([, count]) => count), 1);
  const bars = shown.map(([rows, count]) => {
    const bar = make("i", "");
    bar.style.height = `${60 * count / most}%`;
    return make("li", [number(count), bar, `${rows}`], {title: `${rows} rows: ${count} executions`});
  });
  const drawing = bars.length ? make("ol", bars, {class: "batches"}) : make("p", "none yet", {class: "note"});
  return make("div", [make("h3", "Executions by rows"), drawing]);
}

const TONES = {READY: "good", LOADING: "busy", UNLOADING: "busy", UNAVAILABLE: "bad"};

function card(model) {
  const heading = [
    make("h2", [model.name, make("small", ` version ${model.version}${model.required ? "" : ", not required"}`)]),
    make("p", model.state.toLowerCase(), {class: `state ${TONES[model.state]}`}),
  ];
  if (model.reason) heading.push(make("p", model.reason, {class: "reason"}));
  const section = make("section", make("header", heading));
  if (model.runs) section.append(make("div", [numbers(model), where(model), batches(model)], {class: "parts"}));
  return section;
}

function show() {
  const now = polls[polls.length - 1], held = document.activeElement && document.activeElement.getAttribute("href");
  page.version.textContent = now.version;
  page.server.textContent = now.not_ready.length ? "not ready" : "ready";
  page.server.className = `state ${now.not_ready.length ? "busy" : "good"}`;
  page.reasons.textContent = now.not_ready.join(", ");
  page.models.replaceChildren(...now.models.map(card));
  if (held) [...document.links].filter(link => link.getAttribute("href") === held).forEach(link => link.focus());
}

function remember(poll) {
  const last = polls[polls.length - 1];
  for (const model of poll.models) {
    const before = find(last, model), values = rates.get(keyOf(model)) || [];
    if (before) values.push((model.counts.success - before.counts.success) / (poll.time_s - last.time_s));
    rates.set(keyOf(model), values.slice(-HISTORY));
  }
  polls.push(poll);
  while (polls.length > 2 && polls[1].time_s <= poll.time_s - WINDOW_S) polls.shift();
}

function ask(path) { return fetch(path, token ? {headers: {authorization: `Bearer ${token}`}} : {}); }

async function open(event) {
  if (!token) return;  // the link works by itself
  event.preventDefault();
  const answer = await ask(event.target.getAttribute("href"));
  location.assign(URL.createObjectURL(await answer.blob()));
}

async function poll() {
  try {
    const answer = await ask("status.json");
    page.ask.hidden = answer.status !== 401;
    if (!answer.ok) throw new Error(answer.status === 401 ? "a token is needed" : `the server says ${answer.status}`);
    remember(await answer.json());
    show();
    root.classList.remove("lost");
    page.told.textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    root.classList.add("lost");
    page.told.textContent = `not up to date: ${error.message}`;
  }
  root.dataset.polls = Number(root.dataset.polls || 0) + 1;
}

async function follow() {
  if (!document.hidden) await poll();
  setTimeout(follow, POLL_MS);
}

page.ask.addEventListener("submit", event => {
  event.preventDefault();
  token = page.token.value.trim();
  sessionStorage.setItem("token", token);
  poll();
});
follow();
