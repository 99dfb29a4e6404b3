// What the page knows: the data, the elements of the picture, and who writes and reads each tensor.

const root = document.documentElement;
root.dataset.errors = "";
addEventListener("error", (event) => { root.dataset.errors += `${event.message}\n`; });
addEventListener("securitypolicyviolation", (event) => { root.dataset.errors += `${event.violatedDirective}\n`; });

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const pane = byId("pane");
const svg = byId("graph");
const vertices = [...svg.querySelectorAll(".vertex")];
const edges = [...svg.querySelectorAll(".edge")];

const members = vertices.map(() => []);
data.nodes.forEach((node, index) => members[node.vertex].push(index));
const endOf = new Map(data.ends.map((end) => [end.vertex, end]));
const nodeNumber = new Map(data.nodes.map((node, index) => [node.name, index]));

const writer = new Map();
const readers = new Map();
data.nodes.forEach((node, index) => {
  node.writes.forEach((tensor) => writer.set(tensor, index));
  node.reads.forEach((tensor) => readers.set(tensor, [...(readers.get(tensor) ?? []), index]));
});

// Text always goes in as text: names come from the model and may look like markup.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  element.append(...children.filter((child) => child !== null));
  return element;
}

const fragment = (key, value) => `#${new URLSearchParams([[key, value]])}`;
const link = (key, value) => make("a", { href: fragment(key, value) }, value);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
