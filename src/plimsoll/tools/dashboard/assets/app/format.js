// Number formatting, with the rules of tools/amounts.py. Amounts are integers (milli-CPUs, bytes, counts) and are
// shortened here; exact quantities come from the server as text and are shown where space allows.

const grouped = new Intl.NumberFormat("en-US");
const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

export function isBytes(resource) {
  return resource === "memory" || resource === "ephemeral-storage" || resource.startsWith("hugepages-");
}

/** Format an amount of a resource: cpu 3500 is 3.5, memory 34359738368 is 32Gi. */
export function amount(resource, units) {
  if (units == null) return "-";
  if (resource === "cpu") return String(Math.round(units) / 1000);
  if (!isBytes(resource)) return String(units);
  const size = Math.abs(units);
  let power = 0;
  while (size >= 1024 ** (power + 1) && power < BINARY.length - 1) power += 1;
  const whole = Math.floor(size / 1024 ** power);
  // Truncated to one decimal, as in the terminal.
  const tenth = whole < 1000 ? Math.floor(((size % 1024 ** power) * 10) / 1024 ** power) : 0;
  return `${units < 0 ? "-" : ""}${whole}${tenth ? `.${tenth}` : ""}${BINARY[power]}`;
}

/** Shorten a Kubernetes quantity: 55400Mi is 54.1Gi, 1500m is 1.5. */
export function shorten(resource, text) {
  if (!isQuantity(text)) return String(text);
  const size = sizeOf(text);
  return amount(resource, resource === "cpu" ? size * 1000 : size);
}

/** Format a quantity of a capacity or counter: memory in one unit, 9850m is 9.85, others stay. */
export function quantity(text, name = "") {
  if (isQuantity(text) && (shortName(name) === "memory" || /[KMGTPE]i$/.test(text))) return amount("memory", Math.floor(sizeOf(text)));
  return /^-?[0-9]+m$/.test(text) ? amount("cpu", Number(text.slice(0, -1))) : String(text);
}

/** Return a capacity name without its domain. */
export function shortName(name) {
  return name.slice(name.lastIndexOf("/") + 1);
}

/** Format a count: 5000 is 5,000. */
export function count(value) {
  return typeof value === "number" ? grouped.format(value) : "-";
}

/** Format a number in as few digits as possible: 45,000,000,000 is 45G. */
export function brief(value) {
  if (typeof value !== "number" || value < 1e6) return count(value);
  const power = Math.min(4, Math.floor(Math.log10(value) / 3) - 1);
  return `${Math.floor(value / 10 ** (3 * power + 2)) / 10}${"kMGTP"[power]}`;
}

/** Format a count with its noun: 1 pod, 2 pods. */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function percent(part, whole) {
  if (part < 0 || (whole <= 0 && part === 0)) return "-";
  if (whole <= 0) return "over";
  return `${Math.floor((100 * part) / whole)}%`;
}

/** Durations below this many seconds are formatted in this unit and, if given, the smaller one (as kubectl does). */
const SCALES = [
  [120, 1, "s", 0, ""],
  [600, 60, "m", 1, "s"],
  [10800, 60, "m", 0, ""],
  [28800, 3600, "h", 60, "m"],
  [172800, 3600, "h", 0, ""],
  [691200, 86400, "d", 3600, "h"],
  [63072000, 86400, "d", 0, ""],
  [252288000, 31536000, "y", 86400, "d"],
];

/** Format a duration in seconds as kubectl does: 5m30s, 4h12m, 3d. */
export function duration(seconds) {
  const whole = Math.trunc(seconds);
  if (whole < -1) return "<invalid>";
  const size = Math.max(0, whole);
  for (const [limit, unit, letter, smaller, small] of SCALES) {
    if (size >= limit) continue;
    const rest = smaller ? Math.floor((size % unit) / smaller) : 0;
    return `${Math.floor(size / unit)}${letter}${rest ? `${rest}${small}` : ""}`;
  }
  return `${Math.floor(size / 31536000)}y`;
}

/** Format the time since a timestamp. */
export function age(timestamp, now = Date.now()) {
  const then = Date.parse(timestamp || "");
  return Number.isNaN(then) ? "<unknown>" : duration((now - then) / 1000);
}

/** Natural order of names: n2 before n10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

/** Group items by a key, in the order of the first item of each. */
export function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

/** Format numbers as ranges: [0,1,2,5] is 0-2,5. */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const out = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) j += 1;
    out.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return out.join(",");
}

const POWERS = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
for (let i = 1; i < BINARY.length; i += 1) POWERS[BINARY[i]] = 1024 ** i;

const QUANTITY = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(n|u|m|k|Ki|Mi|Gi|Ti|Pi|Ei|M|G|T|P|E)?$/;

function isQuantity(text) {
  return QUANTITY.test(String(text));
}

/** Return the approximate value of a quantity, for the width of a bar. */
export function sizeOf(text) {
  const found = QUANTITY.exec(String(text));
  return found ? Number(found[1]) * POWERS[found[2] || ""] : 0;
}
