// Further rows of tables, in the forms that the page's own rows have.

const ROWS_AT_ONCE = 200;
const HUE_START = {{ hue_start }};
const HUE_STEP = {{ hue_step }};

function place(name) {
  const segment = data.segments.indexOf(name);
  if (segment < 0) return name;
  const chip = link("segment", name);
  chip.className = "chip";
  chip.style.setProperty("--hue", (HUE_START + segment * HUE_STEP) % 360);
  return chip;
}

function named(key, name) {
  const anchor = link(key, name);
  anchor.className = "name";
  return anchor;
}

const joined = (items, separator) => items.flatMap((item, index) => (index ? [separator, item] : [item]));

const CELLS = {
  nodes: (...names) => joined(names.map((name) => named("node", name)), ", "),
  tensor: (name) => [named("tensor", name)],
  places: (...names) => joined(names.map(place), ", "),
  path: (split, ...names) => [make(
    "a", { class: "path", href: fragment("split", split) }, ...joined(names.map((name) => make("span", {}, name)), " → "),
  )],
  loss: (text) => [make("span", { class: "loss" }, text)],
};

function tableRow(row, columns) {
  return make("tr", {}, ...row.map((content, index) => {
    const like = columns[index];
    const parts = typeof content === "string" ? [content] : CELLS[content[0]](...content.slice(1));
    return make("td", { class: like.className, "data-label": like.dataset.label }, ...parts);
  }));
}

function watchTables() {
  document.querySelectorAll("button.more").forEach((button) => {
    const left = data.folded[button.dataset.name];
    const body = button.parentElement.querySelector("tbody");
    const columns = [...body.rows[0].cells];
    const tell = () => {
      const next = Math.min(left.length, ROWS_AT_ONCE);
      button.textContent = next < left.length ? `${next} more of ${left.length.toLocaleString("en")}` : `${next} more`;
      button.hidden = next === 0;
    };
    button.addEventListener("click", () => {
      body.append(...left.splice(0, ROWS_AT_ONCE).map((row) => tableRow(row, columns)));
      tell();
    });
    tell();
  });
}
