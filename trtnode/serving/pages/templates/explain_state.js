// The fragment of the address holds the state: find, node, box, segment, split or tensor. So a link can be shared.

const field = byId("find");
const count = byId("count");
const previous = byId("previous");
const next = byId("next");
const card = byId("card");
const tip = byId("tip");

// Made when first needed: it is as large as all names.
let texts = null;
function textOf(number) {
  texts ??= data.nodes.map((node) => [
    node.name,
    node.op,
    ...[...node.reads, ...node.writes].map((tensor) => data.tensors[tensor].name),
    node.segment === null ? data.reasons[node.reason][0] : data.segments[node.segment],
  ].join("\n").toLowerCase());
  return texts[number];
}

const nothing = { steps: [], vertices: [], edges: [], card: null };
const allNodes = data.nodes.map((_, index) => index);
const verticesOf = (numbers) => unique(numbers.map((number) => data.nodes[number].vertex));
const edgesWhere = (test) => data.edges.flatMap((edge, index) => (test(edge) ? [index] : []));

function find(text) {
  const wanted = text.toLowerCase();
  const steps = wanted ? allNodes.filter((number) => textOf(number).includes(wanted)) : [];
  return { ...nothing, steps, vertices: verticesOf(steps) };
}

function pickVertex(vertex, content) {
  const touching = edgesWhere(([source, target]) => source === vertex || target === vertex);
  return { ...nothing, vertices: [vertex], edges: touching, current: vertex, card: content };
}

function pickSegment(name) {
  const segment = data.segments.indexOf(name);
  if (segment < 0) return nothing;
  const numbers = allNodes.filter((number) => data.nodes[number].segment === segment);
  const within = new Set(verticesOf(numbers));
  const inside = edgesWhere(([source, target]) => within.has(source) && within.has(target));
  return { ...nothing, vertices: [...within], edges: inside, card: nodesCard(place(name), numbers) };
}

function pickSplit(number) {
  const path = (data.splits[number] ?? []).map((node) => data.nodes[node].vertex);
  const steps = new Set(path.slice(1).map((vertex, index) => `${path[index]} ${vertex}`));
  const along = edgesWhere(([source, target]) => steps.has(`${source} ${target}`));
  return { ...nothing, vertices: unique(path), edges: along };
}

function pickTensor(name) {
  const tensor = data.tensors.findIndex((one) => one.name === name);
  if (tensor < 0) return nothing;
  const touching = [writer.get(tensor), ...(readers.get(tensor) ?? [])].filter((number) => number !== undefined);
  const ends = data.ends.filter((end) => end[1] === tensor).map((end) => end[0]);
  const carrying = edgesWhere((edge) => edge[2].includes(tensor));
  const content = make("div", {}, make("h3", {}, "Tensor"), make("ul", {}, tensorLine(tensor)),
    make("ul", {}, ...touching.slice(0, MOST_LISTED).map((number, index) => make(
      "li", {}, index === 0 && writer.has(tensor) ? "written by " : "read by ", link("node", data.nodes[number].name),
    ))));
  return { ...nothing, vertices: unique([...ends, ...verticesOf(touching)]), edges: carrying, card: content };
}

function pickNode(name) {
  const number = nodeNumber.get(name);
  return number === undefined ? nothing : pickVertex(data.nodes[number].vertex, nodeCard(number));
}

function pickBox(number) {
  return number in vertices ? pickVertex(Number(number), vertexCard(Number(number))) : nothing;
}

const PICK = {
  find, node: pickNode, box: pickBox, segment: pickSegment, split: pickSplit, tensor: pickTensor,
};

function picked(parameters) {
  const key = Object.keys(PICK).find((name) => parameters.has(name));
  return { key, ...(key ? PICK[key](parameters.get(key)) : nothing) };
}

// Shows what the fragment asks for; `move` is false while the reader points at things in the picture.
function apply({ move = true } = {}) {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const choice = picked(parameters);
  const at = clamp(Number(parameters.get("at")) || 0, 0, choice.steps.length);
  if (at > 0) {
    choice.current = data.nodes[choice.steps[at - 1]].vertex;
    choice.card = nodeCard(choice.steps[at - 1]);
  }
  mark(choice);
  if (document.activeElement !== field) field.value = parameters.get("find") ?? "";
  const total = choice.steps.length;
  [previous, next].forEach((button) => { button.disabled = total === 0; });
  count.textContent = choice.key !== "find" ? "" : at > 0 ? `${at} of ${plural(total, "node")}` : plural(total, "node");
  card.replaceChildren(...(choice.card ? [choice.card] : []));
  card.hidden = !choice.card;
  if (choice.card) card.parentElement.scrollTop = 0;
  if (move && at > 0) showVertex(choice.current);
  else if (move && choice.vertices.length > 0 && choice.key !== "find") showVertices(choice.vertices);
  root.dataset.matches = String(choice.key === "find" ? total : choice.vertices.length);
}

function mark(choice) {
  const hits = new Set(choice.vertices);
  const lit = new Set(choice.edges);
  svg.classList.toggle("dimmed", Boolean(choice.key) && !["node", "box"].includes(choice.key));
  vertices.forEach((vertex, number) => {
    vertex.classList.toggle("hit", hits.has(number));
    vertex.classList.toggle("current", choice.current === number);
  });
  edges.forEach((edge, number) => edge.classList.toggle("lit", lit.has(number)));
  document.querySelectorAll("a.path").forEach((anchor) => {
    anchor.setAttribute("aria-current", String(anchor.getAttribute("href") === location.hash));
  });
  drawOverview();
}

function go(parameters, options) {
  const text = String(new URLSearchParams(parameters));
  history.replaceState(null, "", location.href.split("#")[0] + (text && `#${text}`));
  apply(options);
}

function step(direction) {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const total = picked(parameters).steps.length;
  if (total === 0) return;
  const at = Number(parameters.get("at")) || 0;
  const to = direction > 0 ? (at % total) + 1 : at <= 1 ? total : at - 1;
  go([["find", parameters.get("find")], ["at", to]]);
}

function fragmentOf(vertex) {
  const [tensor, ...others] = endsOf.get(vertex) ?? [];
  if (tensor !== undefined && others.length === 0) return [["tensor", data.tensors[tensor].name]];
  if (members[vertex].length === 1) return [["node", data.nodes[members[vertex][0]].name]];
  const isSegment = vertices[vertex].classList.contains("engine");
  return isSegment ? [["segment", data.segments[data.nodes[members[vertex][0]].segment]]] : [["box", vertex]];
}

function hint(event) {
  const over = event.buttons ? null : event.target.closest?.(".vertex, .grab");
  tip.hidden = !over;
  if (!over) return;
  const key = `${over.getAttribute("class")} ${over.dataset.index}`;
  if (tip.dataset.about !== key) {
    const number = Number(over.dataset.index);
    tip.replaceChildren(over.classList.contains("vertex") ? vertexCard(number) : edgeCard(number));
    tip.dataset.about = key;
  }
  const corner = pane.getBoundingClientRect();
  const right = event.clientX - corner.left + 16;
  const below = event.clientY - corner.top + 16;
  const fitsRight = right + tip.offsetWidth < pane.clientWidth;
  const fitsBelow = below + tip.offsetHeight < pane.clientHeight;
  tip.style.left = `${fitsRight ? right : Math.max(0, right - tip.offsetWidth - 32)}px`;
  tip.style.top = `${fitsBelow ? below : Math.max(0, below - tip.offsetHeight - 32)}px`;
}

function watchPointer() {
  let last = null;
  let moved = 0;
  pane.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    last = event;
    moved = 0;
  });
  pane.addEventListener("pointermove", (event) => {
    hint(event);
    if (!last || event.buttons !== 1) return;
    moved += Math.abs(event.clientX - last.clientX) + Math.abs(event.clientY - last.clientY);
    if (moved > 4 && !pane.hasPointerCapture(event.pointerId)) pane.setPointerCapture(event.pointerId);
    pan(event.clientX - last.clientX, event.clientY - last.clientY);
    last = event;
  });
  pane.addEventListener("pointerup", (event) => {
    if (last && moved <= 4) {
      const vertex = event.target.closest(".vertex");
      go(vertex ? fragmentOf(Number(vertex.dataset.index)) : [], { move: false });
    }
    last = null;
  });
  pane.addEventListener("pointerleave", () => { tip.hidden = true; });
}

function watchSearch() {
  field.addEventListener("input", () => go(field.value ? [["find", field.value]] : []));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { field.value = ""; go([]); pane.focus(); }
  });
  previous.addEventListener("click", () => step(-1));
  next.addEventListener("click", () => step(1));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || document.activeElement === field) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
}

// A thin line is hard to point at, so each edge gets an invisible wide one.
edges.forEach((edge, number) => {
  const grab = edge.cloneNode();
  grab.setAttribute("class", "grab");
  grab.dataset.index = number;
  edge.parentElement.append(grab);
});
watchView();
watchPointer();
watchSearch();
watchTables();
addEventListener("hashchange", () => apply());
drawOverview();
showStart();
apply();
root.dataset.ready = "true";
