// What is said about a node, a box, an end of the graph or an edge: for the tooltip, and longer for the side panel.

const MOST_LISTED = 12;

function tensorLine(number) {
  const tensor = data.tensors[number];
  const type = make("span", { class: "type" }, tensor.type + (tensor.constant ? ", constant" : ""));
  return make("li", {}, link("tensor", tensor.name), " ", type);
}

function tensorList(title, numbers) {
  if (numbers.length === 0) return null;
  const shown = numbers.slice(0, MOST_LISTED).map(tensorLine);
  const more = numbers.length - shown.length;
  if (more > 0) shown.push(make("li", {}, `and ${more} more`));
  return make("div", {}, make("h4", {}, title), make("ul", {}, ...shown));
}

function placeOf(node) {
  if (node.segment !== null) return make("p", {}, "runs in ", link("segment", data.segments[node.segment]));
  const [code, detail] = data.reasons[node.reason];
  return make("p", {}, "native: ", make("a", { href: fragment("find", code) }, make("code", {}, code)), ` ${detail}`);
}

function nodeCard(number) {
  const node = data.nodes[number];
  return make(
    "div", {},
    make("h3", {}, node.op, " ", link("node", node.name)),
    placeOf(node),
    tensorList("reads", node.reads),
    tensorList("writes", node.writes),
  );
}

const titleOf = (vertex) => vertices[vertex].querySelector(".title").textContent;

function endCard(vertex) {
  const kind = vertices[vertex].classList.contains("input") ? "Graph input" : "Graph output";
  const tensors = endsOf.get(vertex);
  if (tensors.length > 1) return tensorList(`Graph ${titleOf(vertex)}`, tensors);
  return make("div", {}, make("h3", {}, kind), make("ul", {}, tensorLine(tensors[0])));
}

// What enters and what leaves a group of nodes; constants belong to whoever reads them.
function boundaryOf(numbers) {
  const inside = new Set(numbers);
  const results = new Set(data.ends.map(([, tensor]) => tensor));
  const isInput = (tensor) => !data.tensors[tensor].constant && !inside.has(writer.get(tensor));
  const isOutput = (tensor) => results.has(tensor) || (readers.get(tensor) ?? []).some((number) => !inside.has(number));
  const nodes = numbers.map((number) => data.nodes[number]);
  return [
    unique(nodes.flatMap((node) => node.reads)).filter(isInput),
    unique(nodes.flatMap((node) => node.writes)).filter(isOutput),
  ];
}

function nodesCard(title, numbers) {
  const nodes = numbers.map((number) => data.nodes[number]);
  const counts = new Map();
  nodes.forEach(({ op }) => counts.set(op, (counts.get(op) ?? 0) + 1));
  const common = [...counts].sort((one, other) => other[1] - one[1]).slice(0, MOST_LISTED);
  const reasons = unique(nodes.map((node) => node.reason).filter((reason) => reason !== null));
  const segments = unique(nodes.map((node) => node.segment).filter((segment) => segment !== null));
  const [reads, writes] = boundaryOf(numbers);
  return make(
    "div", {},
    make("h3", {}, title),
    make("p", {}, `${plural(numbers.length, "node")}: ${common.map(([op, count]) => `${count} ${op}`).join(", ")}`),
    segments.length > 1 || reasons.length > 0
      ? make("p", {}, ...joined(segments.slice(0, MOST_LISTED).map((number) => place(data.segments[number])), " "))
      : null,
    ...reasons.slice(0, 3).map((number) => placeOf({ segment: null, reason: number })),
    tensorList("reads", reads),
    tensorList("writes", writes),
    make("h4", {}, "nodes"),
    make("ul", {}, ...numbers.slice(0, MOST_LISTED).map((n) => make("li", {}, link("node", data.nodes[n].name)))),
    numbers.length > MOST_LISTED ? make("p", {}, `and ${plural(numbers.length - MOST_LISTED, "other")}`) : null,
  );
}

function vertexCard(vertex) {
  if (endsOf.has(vertex)) return endCard(vertex);
  const numbers = members[vertex];
  return numbers.length === 1 ? nodeCard(numbers[0]) : nodesCard(titleOf(vertex), numbers);
}

function endName(vertex) {
  if (endsOf.has(vertex)) return `graph ${titleOf(vertex)}`;
  return members[vertex].length === 1 ? data.nodes[members[vertex][0]].name : titleOf(vertex);
}

function edgeCard(number) {
  const [source, target, tensors] = data.edges[number];
  return make("div", {}, make("h3", {}, `${endName(source)} → ${endName(target)}`), tensorList("carries", tensors));
}
