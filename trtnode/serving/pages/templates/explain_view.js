// Pan, zoom and overview. The view is the place in the picture of the pane's corner, and the pixels of a unit there.
// The whole picture is moved as one: changing its view box would make the browser lay out every text again.

const READABLE = 0.75;
const FAR = 0.4;
const CLOSEST = 3;
const OVERVIEW = { width: 170, height: 420, stretch: 6, share: 0.25, hit: 4 };

const whole = (({ x, y, width, height }) => ({ x, y, width, height }))(svg.viewBox.baseVal);
const view = { x: whole.x, y: whole.y, scale: 1 };
const overview = byId("overview");
const frame = byId("frame");
const shrink = { x: 1, y: 1 };

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

// Asking the browser for it after each change would make it lay everything out anew.
const size = { width: 1, height: 1 };
function measure() {
  size.width = pane.clientWidth || 1;
  size.height = pane.clientHeight || 1;
}
measure();

const wholeScale = () => Math.min(size.width / whole.width, size.height / whole.height);

function show() {
  const { width, height } = size;
  const place = [(whole.x - view.x) * view.scale, (whole.y - view.y) * view.scale];
  svg.style.transform = `translate(${place[0]}px, ${place[1]}px) scale(${view.scale})`;
  svg.classList.toggle("far", view.scale < FAR);
  overview.parentElement.hidden = wholeScale() >= view.scale * 0.98;
  frame.style.left = `${(view.x - whole.x) * shrink.x}px`;
  frame.style.top = `${(view.y - whole.y) * shrink.y}px`;
  frame.style.width = `${(width / view.scale) * shrink.x}px`;
  frame.style.height = `${(height / view.scale) * shrink.y}px`;
}

function centerOn(x, y, scale) {
  view.scale = clamp(scale, Math.min(wholeScale(), FAR) * 0.8, CLOSEST);
  view.x = x - size.width / view.scale / 2;
  view.y = y - size.height / view.scale / 2;
  show();
}

function zoom(factor, x = size.width / 2, y = size.height / 2) {
  const fixed = { x: view.x + x / view.scale, y: view.y + y / view.scale };
  view.scale = clamp(view.scale * factor, Math.min(wholeScale(), FAR) * 0.8, CLOSEST);
  view.x = fixed.x - x / view.scale;
  view.y = fixed.y - y / view.scale;
  show();
}

function pan(x, y) {
  view.x -= x / view.scale;
  view.y -= y / view.scale;
  show();
}

const showWhole = () => centerOn(whole.x + whole.width / 2, whole.y + whole.height / 2, Math.min(wholeScale(), 1.2));

// The whole picture where it can be read, else its beginning, beside the overview, at a size that can.
function showStart() {
  if (wholeScale() >= READABLE) return showWhole();
  const { width, height } = size;
  const free = width - overviewRoom().width - 24;
  const scale = clamp(free / whole.width, READABLE, 1);
  const x = whole.width * scale <= free ? whole.x + whole.width / 2 : startOf(height / scale / 2);
  return centerOn(x + (width - free) / 2 / scale, whole.y + height / scale / 2, scale);
}

// The middle of a box at the top which is part of the flow, so that there is something to see; near the others' mean.
function startOf(depth) {
  const joined = new Set(data.edges.flatMap(([source, target]) => [source, target]));
  const top = data.boxes.filter((box, number) => box[1] <= depth && (joined.size === 0 || joined.has(number)));
  const middles = top.map((box) => box[0] + box[2] / 2);
  const mean = middles.reduce((sum, x) => sum + x, 0) / middles.length;
  return middles.reduce((best, x) => (Math.abs(x - mean) < Math.abs(best - mean) ? x : best), Infinity);
}

function showVertices(numbers) {
  const boxes = numbers.map((number) => data.boxes[number]);
  const left = Math.min(...boxes.map((box) => box[0]));
  const top = Math.min(...boxes.map((box) => box[1]));
  const right = Math.max(...boxes.map((box) => box[0] + box[2]));
  const bottom = Math.max(...boxes.map((box) => box[1] + box[3]));
  const { width, height } = size;
  const scale = Math.min(width / (right - left + 80), height / (bottom - top + 80));
  if (scale >= READABLE || boxes.length > 1) return centerOn((left + right) / 2, (top + bottom) / 2, Math.min(scale, 1));
  return showVertex(numbers[0]);
}

function showVertex(number) {
  const [left, top, width, height] = data.boxes[number];
  centerOn(left + width / 2, top + height / 2, Math.max(view.scale, 0.8));
}

function overviewRoom() {
  return {
    width: Math.min(OVERVIEW.width, size.width * OVERVIEW.share),
    height: Math.min(OVERVIEW.height, size.height - 24),
  };
}

function drawOverview() {
  // A long narrow graph is drawn wider than it is, and a flat one higher, so that both can be seen.
  const room = overviewRoom();
  const even = Math.min(room.width / whole.width, room.height / whole.height, 1);
  shrink.x = Math.min(room.width / whole.width, even * OVERVIEW.stretch, 1);
  shrink.y = Math.min(room.height / whole.height, even * OVERVIEW.stretch, 1);
  const density = devicePixelRatio || 1;
  overview.style.width = `${Math.ceil(whole.width * shrink.x)}px`;
  overview.style.height = `${Math.ceil(whole.height * shrink.y)}px`;
  overview.width = Math.ceil(whole.width * shrink.x * density);
  overview.height = Math.ceil(whole.height * shrink.y * density);
  const pen = overview.getContext("2d");
  pen.scale(shrink.x * density, shrink.y * density);
  pen.translate(-whole.x, -whole.y);
  const fills = new Map();
  data.boxes.forEach(([left, top, width, height], number) => {
    const vertex = vertices[number];
    const look = `${vertex.getAttribute("class")}${vertex.getAttribute("style")}`;
    if (!fills.has(look)) fills.set(look, getComputedStyle(vertex.firstElementChild).stroke);
    pen.globalAlpha = svg.classList.contains("dimmed") && !vertex.classList.contains("hit") ? 0.2 : 1;
    pen.fillStyle = fills.get(look);
    pen.fillRect(left, top, width, Math.max(height, 2 / shrink.y));
  });
  drawHits(pen);
}

// What was found stands on top, and is never too small to be seen.
function drawHits(pen) {
  pen.globalAlpha = 1;
  pen.fillStyle = getComputedStyle(frame).borderTopColor;
  const [wide, high] = [OVERVIEW.hit / shrink.x, OVERVIEW.hit / shrink.y];
  data.boxes.forEach(([left, top, width, height], number) => {
    if (!vertices[number].matches(".hit, .current")) return;
    const least = vertices[number].matches(".current") ? 2 : 1;
    const [x, y] = [Math.max(width, least * wide), Math.max(height, least * high)];
    pen.fillRect(left + (width - x) / 2, top + (height - y) / 2, x, y);
  });
}

function jumpTo(event) {
  if (event.buttons !== 1) return;
  const corner = overview.getBoundingClientRect();
  centerOn(
    whole.x + (event.clientX - corner.left) / shrink.x, whole.y + (event.clientY - corner.top) / shrink.y, view.scale,
  );
}

const STEP = 80;
const KEYS = {
  ArrowLeft: () => pan(STEP, 0),
  ArrowRight: () => pan(-STEP, 0),
  ArrowUp: () => pan(0, STEP),
  ArrowDown: () => pan(0, -STEP),
  PageUp: () => pan(0, size.height * 0.9),
  PageDown: () => pan(0, -size.height * 0.9),
  Home: showStart,
  "+": () => zoom(1.25),
  "=": () => zoom(1.25),
  "-": () => zoom(0.8),
  0: showWhole,
};

function watchView() {
  pane.addEventListener("wheel", (event) => {
    event.preventDefault();
    const corner = pane.getBoundingClientRect();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    zoom(Math.exp(-clamp(pixels, -240, 240) / 480), event.clientX - corner.left, event.clientY - corner.top);
  }, { passive: false });
  pane.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  overview.parentElement.addEventListener("pointerdown", (event) => {
    event.stopPropagation();
    overview.parentElement.setPointerCapture(event.pointerId);
    jumpTo(event);
  });
  overview.parentElement.addEventListener("pointermove", jumpTo);
  byId("closer").addEventListener("click", () => zoom(1.25));
  byId("farther").addEventListener("click", () => zoom(0.8));
  byId("whole").addEventListener("click", showWhole);
  byId("start").addEventListener("click", showStart);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawOverview);
  addEventListener("resize", () => { measure(); drawOverview(); show(); });
  addEventListener("beforeprint", () => svg.classList.remove("far"));
  addEventListener("afterprint", show);
}
