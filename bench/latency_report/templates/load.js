"use strict";
{% include "chart.js" %}
const rows = JSON.parse(document.getElementById("data").textContent);
const names = [...new Set(rows.map(row => row.name))];
const ms = value => duration(1e3 * value);

// Places of percentiles: each nine takes as much room, and the slowest request stands at the end.
const PERCENTILES = [[50, "50 %"], [90, "90 %"], [99, "99 %"], [99.9, "99.9 %"], [100, "max"]];
const nines = percent => percent === 100 ? 3.5 : -Math.log10(1 - percent / 100);
const placed = percent => (nines(percent) - nines(50)) / (nines(100) - nines(50));

// A line for each server that has rows, and what it says where the pointer is.
function compared(title, {part, points, places, write, ...more}) {
  const series = names.map((name, at) => ({name, hue: at % 8, dotted: true, points: points(part.filter(row => row.name === name))}));
  const shown = series.filter(one => one.points.length), width = 1 / places.length;
  const hints = places.map(([x, label]) => {
    const told = shown.map(({name, points}) => [name, points.find(([at]) => at === x)?.[1]]).filter(([, value]) => value !== undefined);
    return [x - width / 2, width, `${label}: ${told.map(([name, value]) => `${name} ${write(value)}`).join(", ")}`];
  });
  return plot({title, series: shown, ticks: places, hints, write, height: 180, ...more});
}

for (const [key, axis] of [["concurrency", "callers, each with one request at a time"], ["rate_per_s", "requests per second that were due"]]) {
  const part = rows.filter(row => row[key]).sort((one, other) => one[key] - other[key]);
  const loads = [...new Set(part.map(row => row[key]))];
  const place = load => loads.length > 1 ? loads.indexOf(load) / (loads.length - 1) : 0.5;
  const places = loads.map(load => [place(load), number(load)]);
  const against = (title, field, write) => compared(title, {
    part, places, write, axis, points: those => those.map(row => [place(row[key]), row[field] ?? undefined]),
  });
  if (loads.length) {
    document.getElementById("load").append(
      against("Answers per second", "throughput_per_s", number), against("Latency, p50", "p50_ms", ms), against("Latency, p99", "p99_ms", ms));
  }
  document.getElementById("percentiles").append(...loads.map(load => compared(
    key === "concurrency" ? counted(load, "caller") : `${number(load)} requests/s`, {
      part: part.filter(row => row[key] === load), write: ms, axis: "requests that were answered within the time",
      places: PERCENTILES.map(([percent, label]) => [placed(percent), label]),
      points: those => those.flatMap(row => row.percentiles_ms.map(([percent, value]) => [placed(percent), value])),
    })));
}
