const SVG = "http://www.w3.org/2000/svg", WIDE = 1000, HIGH = 100;

function filled(node, content, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...[content].flat());
  return node;
}

const make = (tag, content, attributes = {}) => filled(document.createElement(tag), content, attributes);
const draw = (tag, attributes, children = []) => filled(document.createElementNS(SVG, tag), children, attributes);

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

// The least round number that an axis can end with.
function nice(value) {
  const size = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 3, 4, 5, 6, 8, 10].map(times => times * size).find(end => end >= value * (1 - 1e-9));
}

// Subpaths from one point to the next; none across a missing value, where the next one begins anew.
const joined = points => points.map(([x, y], at) => y === undefined ? "" : `${points[at - 1]?.[1] === undefined ? "M" : "L"}${x} ${y}h0`).join("");

/* The shapes of series in a box. A series has a hue, and points in order of their x, which is from 0 to 1: as bars of a
   width from one value to another, else as a line, with dots if there are few. */
function shapes(series, most) {
  const up = value => value === undefined ? undefined : +(HIGH - HIGH * value / most).toFixed(2);
  return series.flatMap(({hue, width, points, dotted}) => {
    const style = `--hue: var(--c${hue})`;
    if (width) {
      const bars = points.filter(([, from, to]) => to > from);
      return [draw("path", {class: "bars", style, d: bars.map(([x, from, to]) => `M${WIDE * x} ${up(from)}V${up(to)}h${WIDE * width}V${up(from)}Z`).join("")})];
    }
    const placed = points.map(([x, value]) => [+(WIDE * x).toFixed(2), up(value)]);
    const dots = placed.filter(([, y]) => y !== undefined).map(([x, y]) => `M${x} ${y}h0`).join("");
    return [draw("path", {class: "line", style, d: joined(placed)}), ...(dotted ? [draw("path", {class: "dots", style, d: dots})] : [])];
  });
}

const box = (label, children) => draw("svg", {viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": label}, children);

/* A picture with axes. `ticks` are pairs of an x and its label, `hints` triples of an x, a width and a text, and `write`
   says a value of the other axis. Labels at the ends stay inside, unless all are to stand centred. */
function plot({title, series, ticks, hints, write, axis = "", height = 96, centred = false}) {
  const values = series.flatMap(({points}) => points.map(point => point.at(-1))).filter(value => value !== undefined);
  const most = nice(Math.max(...values, 0));
  const names = series.filter(({name}) => name).map(({name, hue}) => make("span", [make("i", "", {style: `--hue: var(--c${hue})`}), name]));
  const grid = [0, HIGH / 2, HIGH].map(y => draw("path", {class: "grid", d: `M0 ${y}H${WIDE}`}));
  const told = hints.map(([x, width, text]) => draw("rect", {class: "hint", x: WIDE * x, y: 0, width: WIDE * width, height: HIGH}, [draw("title", {}, [text])]));
  const marks = ticks.map(([x, label]) => make("span", label, {style: `--x: ${100 * x}%; --x-shift: ${centred ? 50 : 100 * x}%`}));
  return make("figure", [
    make("figcaption", [make("b", title), ...names]),
    make("div", [most, most / 2, 0].map(value => make("span", value ? write(value) : "0")), {class: "scale"}),
    box(`${title}, at most ${write(most)}`, [...grid, ...shapes(series, most), ...told]),
    make("div", marks, {class: "ticks"}), ...(axis ? [make("div", axis, {class: "axis"})] : []),
  ], {class: "plot", style: `--height: ${height}px`});
}
