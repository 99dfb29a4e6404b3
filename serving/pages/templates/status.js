"use strict";
const POLL_MS = 2000, SLOT_S = {{ slot_s }}, SLOTS = {{ slots }}, LATENCY_SLOTS = {{ latency_slots }};
const STEP = 2 ** (1 / 8), MOST_BATCHES = 12, SVG = "http://www.w3.org/2000/svg";
const root = document.documentElement;
const page = Object.fromEntries([...document.querySelectorAll("[id]")].map(node => [node.id, node]));
const opened = new Set();  // model versions whose details are shown
let token = sessionStorage.getItem("token") || "";
let facts = null;  // what the server told last

window.addEventListener("error", event => { root.dataset.errors = (root.dataset.errors || "") + event.message; });

function make(tag, content, attributes = {}) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...[content].flat());
  return node;
}

function draw(tag, attributes, children = []) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

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

// toPrecision would write 99.7 with two digits as 1.0e+2.
function rounded(value, digits) {
  return value.toLocaleString("en", {minimumSignificantDigits: digits, maximumSignificantDigits: digits});
}

function duration(us) {
  if (us === undefined) return "–";
  if (us < 1e3) return `${rounded(us, us < 100 ? 2 : 3)} µs`;
  return us < 1e6 ? `${rounded(us / 1e3, 3)} ms` : `${rounded(us / 1e6, 3)} s`;
}

function number(value) {
  if (value === undefined) return "–";
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : rounded(value, 2);
}

const counted = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

function span(seconds) {
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, word] = units.find(([size]) => seconds >= size) || units[3];
  return counted(Math.floor(seconds / size), word);
}

const keyOf = model => `${model.name}/${model.version}`;

// Seconds over which a count of the newest slots is taken: the last one isn't over, and the server may be younger.
function covered(slots) {
  const begun = facts.time_s % SLOT_S;
  return Math.max(0.5, Math.min((slots - 1) * SLOT_S + begun, facts.uptime_s));
}

function rate(model) {
  const now = Math.floor(facts.time_s / SLOT_S);
  return total(model.counts.answered_by_slot.filter(([slot]) => slot > now - LATENCY_SLOTS)) / covered(LATENCY_SLOTS);
}

function idleness(model) {
  return model.last_s ? `idle for ${span(facts.time_s - model.last_s)}` : "no request yet";
}

// Answered and failed requests per second of each slot, the oldest first.
function history(model) {
  const now = Math.floor(facts.time_s / SLOT_S);
  const answered = new Map(model.counts.answered_by_slot), failed = new Map(model.counts.failed_by_slot);
  return Array.from({length: SLOTS}, (_, at) => {
    const slot = now - SLOTS + 1 + at, seconds = at === SLOTS - 1 ? covered(1) : SLOT_S;
    return {ago: (SLOTS - 1 - at) * SLOT_S, answered: (answered.get(slot) || 0) / seconds, failed: (failed.get(slot) || 0) / seconds};
  });
}

function bars(slots, most, height) {
  const shapes = slots.flatMap(({ago, answered, failed}, at) => {
    const [good, bad] = [answered, failed].map(value => height * value / most);
    const told = `${ago ? `${ago} s ago` : "now"}: ${number(answered)} requests/s${failed ? `, ${number(failed)} failed/s` : ""}`;
    return [
      ...(good ? [draw("rect", {class: "answered", x: 2 * at, y: height - good, width: 1.6, height: good})] : []),
      ...(bad ? [draw("rect", {class: "failed", x: 2 * at, y: height - good - bad, width: 1.6, height: bad})] : []),
      draw("rect", {class: "hint", x: 2 * at, y: 0, width: 2, height}, [draw("title", {}, [told])]),
    ];
  });
  const label = `Requests per second over the last two minutes, at most ${number(most)}`;
  const frame = {viewBox: `0 0 ${2 * SLOTS} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label};
  return draw("svg", frame, shapes);
}

const highest = slots => Math.max(...slots.map(slot => slot.answered + slot.failed));

function sparkline(model) {
  const slots = history(model), most = highest(slots);
  if (!most) return make("div", idleness(model), {class: "line"});
  return make("div", [bars(slots, most, 20), make("span", `${number(most)}/s`, {title: "the height of the picture"})], {class: "line"});
}

function chart(model) {
  const slots = history(model), most = highest(slots) || 1, drawing = bars(slots, most, 96);
  for (const y of [0.5, 48, 95.5]) drawing.prepend(draw("line", {x1: 0, x2: 2 * SLOTS, y1: y, y2: y}));
  const axis = names => make("div", names.map(name => make("span", name)), {class: "axis"});
  return make("div", [
    make("h3", "Requests per second"), axis([number(most), ""]), drawing, axis(["2 minutes ago", "1 minute ago", "now"]),
  ], {class: "chart"});
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
  const parts = [make("h3", "Why requests failed"), causes.length ? make("ul", causes) : make("p", "none failed", {class: "note"})];
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
  const amounts = sizes.map(([kind, bytes]) => `${kind.replace("_", " ")} ${(bytes / 1e6).toFixed(1)} MB`);
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
  const most = Math.max(...shown.map(([, count]) => count), 1);
  const columns = shown.map(([rows, count]) => {
    const bar = make("i", "");
    bar.style.height = `${60 * count / most}%`;
    return make("li", [number(count), bar, `${rows}`], {title: `${rows} ${unit}: ${counted(count, "execution")}`});
  });
  const drawing = columns.length ? make("ol", columns, {class: "batches"}) : make("p", "none yet", {class: "note"});
  return make("div", [make("h3", title), drawing, ...notes.map(note => make("p", note, {class: "note"}))]);
}

const batches = model => executions("Executions by rows", model.counts.batches, "rows");

// Of a model whose requests are padded to few lengths.
function lengths(model) {
  const {buckets, padding, shapes} = model.counts;
  const notes = [`${counted(padding, "element")} of padding, ${counted(shapes, "shape")}`];
  return buckets.length ? [executions("Executions by padded length", buckets, "long", notes)] : [];
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
  const latencies = idle ? counts.latencies : recent, failed = total(counts.failures);
  const latency = part => [
    duration(quantile(latencies, part / 100)), `p${part}`,
    idle ? {class: "idle", title: "since the start: no request in the last 30 seconds"} : {},
  ];
  const columns = [
    [number(rate(model)), "requests/s", idle ? {class: "idle", title: idleness(model)} : {}],
    latency(50), latency(95), latency(99),
    [number(counts.waiting), "waiting", {}],
    [number(counts.success), "answered", {}],
    [number(failed), "failed", failed ? {class: "bad"} : {}],
  ];
  return columns.map(([value, label, {class: tone = "", title = ""}]) => make("td", value, {
    class: `number ${tone} ${["p95", "answered"].includes(label) ? "minor" : ""}`, "data-label": label, ...(title && {title}),
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
  const parts = model.runs ? [chart(model), failures(model), where(model), batches(model), ...lengths(model)] : [failures(model)];
  const about = model.reason ? [make("p", model.reason, {class: "reason"})] : [];
  if (isOpen) about.push(make("div", parts, {class: "parts"}));
  return about.length ? [row, make("tr", make("td", about, {colspan: 11}), {class: "more", id})] : [row];
}

function tile(label, value, {tone = "", title = ""} = {}) {
  return make("div", [make("dt", label), make("dd", value, {class: tone})], title ? {title} : {});
}

function totals() {
  const models = facts.models, over = key => sum(models.map(model => key(model.counts)));
  const failed = over(counts => total(counts.failures)), ready = models.filter(model => model.state === "READY").length;
  const memory = facts.memory_bytes ? `${(facts.memory_bytes / 1e6).toFixed(0)} MB` : "unknown";
  const processes = facts.processes > 1 ? {title: `of ${facts.processes} processes`} : {};
  return [
    tile("models ready", `${ready} of ${models.length}`, {tone: ready < models.length ? "busy" : ""}),
    tile("requests/s", number(sum(models.map(rate)))),
    tile("waiting", number(over(counts => counts.waiting))),
    tile("answered", number(over(counts => counts.success))),
    tile("failed", number(failed), {tone: failed ? "bad" : ""}),
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
  facts = await answer.json();
  page.ask.hidden = true;
  show();
  page.told.textContent = `as of ${new Date().toLocaleTimeString()}`;
}

async function poll() {
  try {
    const answer = await ask("status.json");
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
