// What the page knows: the data, the elements of the picture, and who writes and reads each tensor.

const root = document.documentElement;
root.dataset.errors = "";
addEventListener("error", (event) => { root.dataset.errors += `${event.message}\n`; });
addEventListener("securitypolicyviolation", (event) => { root.dataset.errors += `${event.violatedDirective}\n`; });

const byId = (id) => document.getElementById(id);
const pane = byId("pane");
const svg = byId("graph");
const vertices = [...svg.querySelectorAll(".vertex")];
const edges = [...svg.querySelectorAll(".edge")];

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function lists({ counts, steps }) {
  let at = 0;
  let number = 0;
  return counts.map((length) => steps.slice(at, at += length).map((step) => number += step));
}

// The page has columns, which are small; the script has one object a node, a tensor and an edge.
function readColumns({ nodes, edges: lines, tensors, ops, boxes, ...others }) {
  const known = (number) => (number < 0 ? null : number);
  const [reads, writes, carried] = [nodes.reads, nodes.writes, lines.tensors].map(lists);
  return {
    ...others,
    nodes: nodes.name.map((name, index) => ({
      name,
      op: ops[nodes.op[index]],
      vertex: nodes.vertex[index],
      segment: known(nodes.segment[index]),
      reason: known(nodes.reason[index]),
      reads: reads[index],
      writes: writes[index],
    })),
    edges: lines.source.map((source, index) => [source, lines.target[index], carried[index]]),
    tensors: tensors.name.map((name, index) => ({
      name, type: tensors.types[tensors.type[index]], constant: Boolean(tensors.constant[index]),
    })),
    boxes: vertices.map((_, index) => boxes.slice(4 * index, 4 * index + 4)),
  };
}

const data = readColumns(await unpack(byId("data").textContent));

function positions(pairs) {
  const found = new Map();
  pairs.forEach(([key, value]) => (found.has(key) ? found.get(key).push(value) : found.set(key, [value])));
  return found;
}

const members = vertices.map(() => []);
data.nodes.forEach((node, index) => members[node.vertex].push(index));
const endsOf = positions(data.ends);
const nodeNumber = new Map(data.nodes.map((node, index) => [node.name, index]));
const writer = new Map(data.nodes.flatMap((node, index) => node.writes.map((tensor) => [tensor, index])));
const readers = positions(data.nodes.flatMap((node, index) => node.reads.map((tensor) => [tensor, index])));

// Text always goes in as text: names come from the model and may look like markup.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  element.append(...children.filter((child) => child !== null));
  return element;
}

const unique = (items) => [...new Set(items)];
const fragment = (key, value) => `#${new URLSearchParams([[key, value]])}`;
const link = (key, value) => make("a", { href: fragment(key, value) }, value);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
