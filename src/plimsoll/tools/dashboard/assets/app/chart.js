// Charts of series over time as SVG: stacked areas with the allocatable line, or single lines. A chart has a text
// label with its last values, and its numbers can be listed as a table.
import { html, cx, useMedia } from "./ui.js";

/** Width of a chart in units of its text, on wide and on narrow screens. */
const WIDTHS = [640, 380];
const HEIGHT = 150;
const LEFT = 58;
const BOTTOM = 20;
const TOP = 8;

/** Return round steps of an axis from 0 to at least `most`; `binary` steps are 1, 2, 4, ... Ki, Mi, Gi. */
export function ticks(most, { wanted = 4, binary = false } = {}) {
  if (!(most > 0)) return [0, 1];
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = binary ? 2 ** Math.ceil(Math.log2(rough)) : [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let value = 0; value < most + step * 0.999; value += step) found.push(value);
  return found;
}

/** Format a time as the tick of an axis: the date if the range is longer than two days. */
function timeText(seconds, range) {
  const date = new Date(seconds * 1000);
  const pad = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return range > 2 * 86400 ? day : `${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

/**
 * `areas`: [{name, values}] stacked from below; `lines`: [{name, values}]. Values that are null are gaps. `format`
 * formats a value; `binary`: the values are bytes.
 */
export function Chart({ title, times, areas = [], lines = [], format, binary = false }) {
  const width = WIDTHS[Number(useMedia("(max-width: 600px)"))];
  const stacked = [];
  const base = times.map(() => 0);
  for (const area of areas) {
    const from = [...base];
    area.values.forEach((value, i) => {
      base[i] += value || 0;
    });
    stacked.push({ ...area, from, to: [...base] });
  }
  const most = Math.max(0, ...base, ...lines.flatMap((line) => line.values.map((value) => value || 0)));
  const axis = ticks(most, { binary });
  const top = axis[axis.length - 1];
  const [first, last] = [times[0], times[times.length - 1]];
  const x = (time) => LEFT + ((time - first) / Math.max(1, last - first)) * (width - LEFT - 6);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const point = (time, value) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
  const path = (values) => {
    let pen = "M";
    return times
      .map((time, i) => {
        if (values[i] == null) {
          pen = "M";
          return "";
        }
        const text = `${pen}${point(time, values[i])}`;
        pen = "L";
        return text;
      })
      .join("");
  };
  const closed = (area) => `M${times.map((time, i) => point(time, area.to[i])).join("L")}L${times.map((time, i) => point(time, area.from[i])).reverse().join("L")}Z`;
  const latest = [...areas, ...lines].map((one) => `${one.label || one.name} ${one.values[one.values.length - 1] == null ? "unknown" : format(one.values[one.values.length - 1])}`);
  const range = last - first;
  return html`<figure class="card chart">
    <figcaption><h3>${title}</h3><span class="muted">${latest.join(", ")}</span></figcaption>
    <svg viewBox=${`0 0 ${width} ${HEIGHT}`} role="img" aria-label=${`${title} over time; now ${latest.join(", ")}`}>
      <defs>
        <pattern id=${`stripes-${title}`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="pattern-ground" width="6" height="6" /><rect class="pattern-stripe" width="2" height="6" /></pattern>
      </defs>
      ${axis.map((value) => html`<line class="grid" x1=${LEFT} x2=${width - 6} y1=${y(value)} y2=${y(value)} /><text x=${LEFT - 6} y=${y(value) + 4} text-anchor="end">${format(value)}</text>`)}
      ${stacked.map((area) => html`<path class=${`area area-${area.name}`} d=${closed(area)} fill=${area.name === "claims" ? `url(#stripes-${title})` : undefined} />`)}
      ${lines.map((line) => html`<path class=${cx("line", `line-${line.name}`)} d=${path(line.values)} />`)}
      ${[0, 0.5, 1].map((part) => html`<text x=${LEFT + part * (width - LEFT - 6)} y=${HEIGHT - 5} text-anchor=${part === 0 ? "start" : part === 1 ? "end" : "middle"}>${timeText(first + part * range, range)}</text>`)}
    </svg>
  </figure>`;
}
