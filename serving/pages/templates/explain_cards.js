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

function endCard(end) {
  const kind = vertices[end.vertex].classList.contains("input") ? "Graph input" : "Graph output";
  return make("div", {}, make("h3", {}, kind), make("ul", {}, tensorLine(end.tensor)));
}

function groupCard(vertex) {
  const numbers = members[vertex];
  const counts = new Map();
  numbers.forEach((number) => counts.set(data.nodes[number].op, (counts.get(data.nodes[number].op) ?? 0) + 1));
  const common = [...counts].sort((one, other) => other[1] - one[1]).slice(0, MOST_LISTED);
  const reasons = new Set(numbers.filter((n) => data.nodes[n].reason !== null).map((n) => data.nodes[n].reason));
  const segment = data.nodes[numbers[0]].segment;
  return make(
    "div", {},
    make("h3", {}, segment === null ? "Native group" : link("segment", data.segments[segment])),
    make("p", {}, `${plural(numbers.length, "node")}: ${common.map(([op, count]) => `${count} ${op}`).join(", ")}`),
    ...[...reasons].slice(0, 3).map((number) => placeOf({ segment: null, reason: number })),
    make("ul", {}, ...numbers.slice(0, MOST_LISTED).map((n) => make("li", {}, link("node", data.nodes[n].name)))),
    numbers.length > MOST_LISTED ? make("p", {}, `and ${plural(numbers.length - MOST_LISTED, "other")}`) : null,
  );
}

function vertexCard(vertex) {
  if (endOf.has(vertex)) return endCard(endOf.get(vertex));
  return members[vertex].length === 1 ? nodeCard(members[vertex][0]) : groupCard(vertex);
}

function endName(vertex) {
  if (endOf.has(vertex)) return vertices[vertex].classList.contains("input") ? "graph input" : "graph output";
  if (members[vertex].length === 1) return data.nodes[members[vertex][0]].name;
  const segment = data.nodes[members[vertex][0]].segment;
  return segment === null ? plural(members[vertex].length, "native node") : data.segments[segment];
}

function edgeCard(number) {
  const [source, target, tensors] = data.edges[number];
  return make("div", {}, make("h3", {}, `${endName(source)} → ${endName(target)}`), tensorList("carries", tensors));
}
