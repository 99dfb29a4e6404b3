"use strict";
{% include "chart.js" %}
const POLL_MS = 2000, SLOT_S = {{ slot_s }}, SLOTS = {{ slots }}, RECENT_SLOTS = {{ recent_slots }};
const STEP = 2 ** (1 / 8), MOST_BATCHES = 12, MOST_COLUMNS = 60;
const STEADY_S = 3;  // a slot that has just begun says little about a rate
const LATELY_S = 300;  // failures since then are told apart from all
const root = document.documentElement;
const page = Object.fromEntries([...document.querySelectorAll("[id]")].map(node => [node.id, node]));
const opened = new Set([decodeURIComponent(location.hash.slice(1))]);  // model versions whose details are shown
let token = sessionStorage.getItem("token") || "";
let facts = null;  // what the server told last
const histories = new Map();  // of each model version, what happened in each slot

window.addEventListener("error", event => { root.dataset.errors = (root.dataset.errors || "") + event.message; });

const sum = values => values.reduce((total, value) => total + value, 0);
const total = pairs => sum(pairs.map(([, count]) => count));

function quantile(latencies, part) {
  let left = part * total(latencies);
  for (const [bound, count] of latencies) {
    if (left <= count) return bound / STEP + (bound - bound / STEP) * left / count;
    left -= count;
  }
  return undefined;
}

function span(seconds) {
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, word] = units.find(([size]) => seconds >= size) || units[3];
  return counted(Math.floor(seconds / size), word);
}

const keyOf = model => `${model.name}/${model.version}`;

const slotNow = () => Math.floor(facts.time_s / SLOT_S);

// Keep the slots of an hour. The server tells those again that weren't over the last time.
function remember(model) {
  const slots = histories.get(keyOf(model)) || new Map(), first = slotNow() - SLOTS;
  for (const [slot, answered, failed, p50, p99, waited, cpu] of model.history) slots.set(slot, {answered, failed, p50, p99, waited, cpu});
  for (const slot of slots.keys()) if (slot < first) slots.delete(slot);
  histories.set(keyOf(model), slots);
}

// Seconds over which a count of the newest slots is taken: the last one isn't over, and the server may be younger.
function covered(slots) {
  const begun = facts.time_s % SLOT_S;
  return Math.max(0.5, Math.min((slots - 1) * SLOT_S + begun, facts.uptime_s));
}

// Number of a kind in the newest slots.
function lately(model, kind, slots) {
  const first = slotNow() - slots;
  return sum([...histories.get(keyOf(model))].map(([slot, counts]) => slot > first ? counts[kind] : 0));
}

const rate = model => lately(model, "answered", RECENT_SLOTS) / covered(RECENT_SLOTS);
const failing = model => lately(model, "failed", LATELY_S / SLOT_S);

function idleness(model) {
  return model.last_s ? `idle for ${span(facts.time_s - model.last_s)}` : "no request yet";
}

// The minutes that pictures show: a young server has no hour yet.
const shownMinutes = () => [5, 15, SLOTS * SLOT_S / 60].find(minutes => 60 * minutes >= facts.uptime_s) || SLOTS * SLOT_S / 60;

// The slots of pictures, the oldest first, with their places between 0 and 1.
function history(model) {
  const count = 60 * shownMinutes() / SLOT_S, now = slotNow(), known = histories.get(keyOf(model));
  return Array.from({length: count}, (_, at) => {
    const ago = count - 1 - at, nothing = {answered: 0, failed: 0, waited: 0, cpu: 0};
    return {...nothing, ...known.get(now - ago), at: at / count, ago: ago * SLOT_S, seconds: ago ? SLOT_S : Math.max(STEADY_S, covered(1))};
  });
}

// Bars of answered requests per second, and of failed ones above.
function requests(slots) {
  const width = 0.9 / slots.length;
  const points = slots.map(({at, answered, failed, seconds}) => [at, answered / seconds, (answered + failed) / seconds]);
  return [
    {name: "answered", hue: 0, width, points: points.map(([at, good]) => [at, 0, good])},
    {name: "failed", hue: 4, width, points},
  ];
}

const ago = seconds => seconds ? `${seconds < 60 ? `${seconds} s` : `${number(Math.floor(seconds / 6) / 10)} min`} ago` : "now";

function sparkline(model) {
  const slots = history(model), size = Math.ceil(slots.length / MOST_COLUMNS), add = (one, other) => one + other;
  const columns = Array.from({length: slots.length / size}, (_, at) => slots.slice(at * size, (at + 1) * size)).map(part => ({
    at: part[0].at, ...Object.fromEntries(["answered", "failed", "seconds"].map(key => [key, part.map(slot => slot[key]).reduce(add)])),
  }));
  const most = Math.max(...columns.map(({answered, failed, seconds}) => (answered + failed) / seconds));
  if (!most) return make("div", idleness(model), {class: "trend"});
  const drawing = box(`Requests per second, at most ${number(most)}`, shapes(requests(columns), most));
  return make("div", [drawing, make("span", `${number(most)}/s`, {title: "the height of the picture"})], {class: "trend"});
}

function charts(model) {
  const slots = history(model), over = slots.slice(0, -1), width = 1 / slots.length, minutes = shownMinutes();
  const ticks = [[0, `${minutes} min ago`], [0.5, `${minutes / 2} min ago`], [1, "now"]];
  const chart = (title, series, write, tell) => plot({
    title, series, write, ticks, hints: slots.map(slot => [slot.at, width, `${ago(slot.ago)}: ${tell(slot)}`]),
  });
  const line = (name, hue, part, value) => ({name, hue, points: part.map(slot => [slot.at + width / 2, value(slot)])});
  return make("div", [
    chart("Requests/s", requests(slots), number, ({answered, failed, seconds}) =>
      `${number(answered / seconds)} requests/s${failed ? `, ${number(failed / seconds)} failed/s` : ""}`),
    chart("Latency", [line("p99", 1, slots, slot => slot.p99 || undefined), line("p50", 0, slots, slot => slot.p50 || undefined)], duration,
      slot => slot.p50 ? `p50 ${duration(slot.p50)}, p99 ${duration(slot.p99)}` : "no answers"),
    chart("Waiting requests, on average", [line("", 3, over, slot => slot.waited / SLOT_S)], number,
      slot => slot.ago ? number(slot.waited / SLOT_S) : "not over"),
    chart("CPU, in cores", [line("", 2, over, slot => slot.cpu / SLOT_S)], number, slot => slot.ago ? number(slot.cpu / SLOT_S) : "not over"),
  ], {class: "charts"});
}

const WHY = {
  CANCELED: "the client left before the model ran", BACKEND: "the model failed", OTHER: "the request was at fault",
  not_ready: "the model wasn't ready", draining: "the server was stopping", max_requests: "the server had too many requests",
  queue_full: "the model's queue was full", timeout: "waited longer than allowed", cancelled: "the client left the queue",
};

const reasons = pairs => pairs.map(([reason, count]) => make("li", [make("b", number(count)), WHY[reason] || reason]));

function failures(model) {
  const {failures, rejections, fallbacks} = model.counts, last = model.last_failure;
  const causes = reasons([...failures.filter(([reason]) => reason !== "REJECTED"), ...rejections]);
  const unexplained = total(failures.filter(([reason]) => reason === "REJECTED")) - total(rejections);
  if (unexplained > 0) causes.push(...reasons([["rejected", unexplained]]));
  const parts = [make("h3", "Why requests failed, since the start"), causes.length ? make("ul", causes) : make("p", "none failed", {class: "note"})];
  if (last && last.detail) {
    parts.push(make("p", [`Last, ${span(facts.time_s - last.time_s)} ago: `, make("span", last.detail, {class: "reason"})]));
  }
  if (fallbacks.length) parts.push(make("h3", "Answered natively instead of by engines"), make("ul", reasons(fallbacks)));
  return make("div", parts);
}

function where(model) {
  const runs = model.runs, all = runs.engine_nodes + runs.native_nodes, share = make("i", "");
  share.style.width = `${all ? 100 * runs.engine_nodes / all : 0}%`;
  const link = make("a", "why", {href: `models/${encodeURIComponent(model.name)}/versions/${model.version}/explain`});
  link.addEventListener("click", open);
  const engines = `${runs.engine_nodes} in ${counted(runs.segments, `${runs.engine} segment`)}, `;
  const told = `${runs.segments ? engines : ""}${runs.native_nodes} native, ${runs.precision} (`;
  const parts = [make("h3", "Where nodes run"), make("div", share, {class: "share"}), make("p", [told, link, ")"])];
  const sizes = Object.entries(model.memory || {}).filter(([, bytes]) => bytes);
  const amounts = sizes.map(([kind, bytes]) => `${kind.replace("_", " ")} ${rounded(bytes / 1e6, 2)}\u00a0MB`);
  if (sizes.length) parts.push(make("p", `memory: ${amounts.join(", ")}`, {class: "note"}));
  if (runs.stand_in) parts.push(make("p", "Its engines are being built.", {class: "busy"}));
  for (const one of model.variants) {
    const figures = one.p95_ms === undefined ? "" : `: ${duration(1e3 * one.p95_ms)}`;
    const told = `${one.name}, quality ${one.quality}${figures}${one.answers ? ", answers" : ""}`;
    parts.push(make("p", told, {class: one.answers ? "good" : "note"}));
  }
  for (const reason of runs.rejected) parts.push(make("p", reason, {class: "reason"}));
  return make("div", parts);
}

function executions(title, sizes, unit, notes = []) {
  const shown = sizes.slice(0, MOST_BATCHES);
  const rest = total(sizes.slice(MOST_BATCHES));
  if (rest) shown.push([`> ${shown[MOST_BATCHES - 1][0]}`, rest]);
  const places = shown.map(([rows, count], at) => [(at + 0.5) / shown.length, rows, count]);
  const width = Math.min(0.15, 0.8 / shown.length), told = ([x, rows, count]) => [x - width / 2, width, `${rows} ${unit}: ${counted(count, "execution")}`];
  const drawing = shown.length ? plot({
    title, write: number, ticks: places.map(([x, rows]) => [x, `${rows}`]), axis: unit, hints: places.map(told), centred: true,
    series: [{hue: 7, width, points: places.map(([x, , count]) => [x - width / 2, 0, count])}],
  }) : make("div", [make("h3", title), make("p", "none yet", {class: "note"})]);
  return make("div", [drawing, ...notes.map(note => make("p", note, {class: "note"}))]);
}

const batches = model => executions("Executions by rows of the batch", model.counts.batches, "rows");

// Of a model whose requests are padded to few lengths.
function lengths(model) {
  const {buckets, padding, shapes} = model.counts;
  const notes = [`${counted(padding, "element")} of padding, ${counted(shapes, "shape")}`];
  return buckets.length ? [executions("Executions by padded length", buckets, "long", notes)] : [];
}

// Of a model that keeps state.
function sequences(model) {
  const told = model.counts.sequences.map(([what, count]) => what === "of state" ? `${rounded(count / 1e6, 2)}\u00a0MB of state` : `${number(count)} ${what}`);
  return told.length ? [make("div", [make("h3", "Sequences"), make("p", told.join(", "), {class: "note"})])] : [];
}

const TONES = {READY: "good", LOADING: "busy", UNLOADING: "busy", UNAVAILABLE: "bad"};

function summary(runs) {
  if (!runs) return "–";
  if (!runs.segments) return `native, ${runs.precision}`;
  const share = Math.floor(100 * runs.engine_nodes / Math.max(1, runs.engine_nodes + runs.native_nodes));
  return `${runs.engine} ${share} %, ${runs.precision}`;
}

function cells(model) {
  const counts = model.counts, recent = counts.recent_latencies, idle = recent.length === 0;
  const latencies = idle ? counts.latencies : recent, failed = failing(model);
  const latency = part => [
    duration(quantile(latencies, part / 100)), `p${part}`,
    idle ? {class: "idle", title: "since the start: no request in the last 30 seconds"} : {},
  ];
  const columns = [
    [number(rate(model)), "requests/s", idle ? {class: "idle", title: idleness(model)} : {}],
    latency(50), latency(95), latency(99),
    [number(counts.waiting), "waiting", {}],
    [number(counts.success), "answered", {}],
    [number(failed), "failed, 5 min", failed ? {class: "bad"} : {}],
    [number(total(counts.failures)), "failed", {}],
  ];
  return columns.map(([value, label, {class: tone = "", title = ""}]) => make("td", value, {
    class: `number ${tone} ${["p95", "answered", "failed"].includes(label) ? "minor" : ""}`, "data-label": label, ...(title && {title}),
  }));
}

function rows(model, at) {
  const key = keyOf(model), isOpen = opened.has(key), id = `details-${at}`;
  const name = make("button", [model.name, make("small", ` version ${model.version}`)], {
    class: "name", type: "button", "aria-expanded": isOpen, "aria-controls": id, "data-key": key,
    ...(model.required ? {} : {title: "optional: the server is ready without it"}),
  });
  name.addEventListener("click", () => {
    if (!opened.delete(key)) opened.add(key);
    show();
  });
  const state = make("td", make("span", model.state.toLowerCase(), {class: `state ${TONES[model.state]}`}));
  const runs = make("td", summary(model.runs), {class: "runs minor"});
  const row = make("tr", [make("td", name), state, make("td", sparkline(model)), ...cells(model), runs], {class: "model"});
  const parts = model.runs ? [failures(model), where(model), batches(model), ...lengths(model), ...sequences(model)] : [failures(model)];
  const about = model.reason ? [make("p", model.reason, {class: "reason"})] : [];
  if (isOpen) about.push(...(model.runs ? [charts(model)] : []), make("div", parts, {class: "parts"}));
  return about.length ? [row, make("tr", make("td", about, {colspan: 12}), {class: "more", id})] : [row];
}

function tile(label, value, {tone = "", title = ""} = {}) {
  return make("div", [make("dt", label), make("dd", value, {class: tone})], title ? {title} : {});
}

function totals() {
  const models = facts.models, over = key => sum(models.map(model => key(model.counts)));
  const failed = sum(models.map(failing)), ready = models.filter(model => model.state === "READY").length;
  const memory = facts.memory_bytes ? `${(facts.memory_bytes / 1e6).toFixed(0)} MB` : "unknown";
  const processes = facts.processes > 1 ? {title: `of ${facts.processes} processes`} : {};
  return [
    tile("models ready", `${ready} of ${models.length}`, {tone: ready < models.length ? "busy" : ""}),
    tile("requests/s", number(sum(models.map(rate)))),
    tile("waiting", number(over(counts => counts.waiting))),
    tile("answered", number(over(counts => counts.success))),
    tile("failed in 5 minutes", number(failed), {tone: failed ? "bad" : ""}),
    tile("failed", number(over(counts => total(counts.failures)))),
    ...(facts.unknown_requests ? [tile("for unknown models", number(facts.unknown_requests), {tone: "bad"})] : []),
    tile("up for", span(facts.uptime_s)),
    tile("memory", memory, processes),
  ];
}

function listed(reasons, most = 3) {
  const more = reasons.length > most ? [`and ${reasons.length - most} more`] : [];
  return [...reasons.slice(0, most), ...more].join(", ");
}

function matches(model) {
  const text = [model.name, model.state, summary(model.runs)].join(" ").toLowerCase();
  return page.filter.value.toLowerCase().split(/\s+/).every(word => text.includes(word));
}

function show() {
  const active = document.activeElement, held = active && (active.dataset.key || active.getAttribute("href"));
  const shown = facts.models.filter(matches);
  page.shown.hidden = false;
  page.version.textContent = facts.version;
  page.server.textContent = facts.not_ready.length ? "not ready" : "ready";
  page.server.className = `state ${facts.not_ready.length ? "busy" : "good"}`;
  page.reasons.textContent = listed(facts.not_ready);
  page.libraries.textContent = `${Object.entries(facts.libraries).map(one => one.join(" ")).join(", ")}.`;
  facts.models.forEach(remember);
  page.span.textContent = shownMinutes() < 60 ? `last ${shownMinutes()} minutes` : "last hour";
  page.totals.replaceChildren(...totals());
  page.models.replaceChildren(...shown.flatMap(rows));
  const all = counted(facts.models.length, "model");
  page.matching.textContent = page.filter.value ? `${shown.length} of ${all}` : all;
  page.none.hidden = shown.length > 0;
  page.none.textContent = facts.models.length ? "No model matches the filter." : "No model is served to this caller.";
  const again = [...page.models.querySelectorAll("[data-key], a")].find(one => [one.dataset.key, one.getAttribute("href")].includes(held));
  if (held && again) again.focus();
}

function ask(path) { return fetch(path, token ? {headers: {authorization: `Bearer ${token}`}} : {}); }

async function open(event) {
  if (!token) return;  // the link works by itself
  event.preventDefault();
  const answer = await ask(event.target.getAttribute("href"));
  location.assign(URL.createObjectURL(await answer.blob()));
}

// What a refusal means for who types tokens.
function refuse(status) {
  page.ask.hidden = false;
  page.shown.hidden = true;
  page.server.textContent = page.reasons.textContent = "";
  page.refused.hidden = !token;
  page.refused.textContent = status === 401
    ? "The server doesn't know this token. It may be mistyped, or taken out of the file."
    : "The server knows this token, but its rights don't include the status.";
  page.told.textContent = status === 401 ? "a token is needed" : "the token's rights don't suffice";
}

async function tell(answer) {
  const told = await answer.json();
  if (facts && told.uptime_s < facts.uptime_s) location.reload();  // another server
  facts = told;
  page.ask.hidden = true;
  show();
  page.told.textContent = `as of ${new Date().toLocaleTimeString()}`;
}

async function poll() {
  try {
    const answer = await ask(`status.json?since=${facts ? slotNow() - 1 : 0}`);
    const isRefused = [401, 403].includes(answer.status);
    if (!answer.ok && !isRefused) throw new Error(`the server says ${answer.status}`);
    root.classList.remove("lost");
    if (isRefused) refuse(answer.status);
    else await tell(answer);
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

page.filter.addEventListener("input", show);
page.ask.addEventListener("submit", event => {
  event.preventDefault();
  token = page.token.value.trim();
  sessionStorage.setItem("token", token);
  poll();
});
follow();
