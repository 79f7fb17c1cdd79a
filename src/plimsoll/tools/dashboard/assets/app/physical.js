// Physical devices: one row each, with a strip that shows which part of the device each claim holds.
import { html, cx } from "./ui.js";
import { ClaimLink, NodeLink, None } from "./components.js";
import { Counter, Share, State } from "./devices.js";
import { Table } from "./table.js";
import { byName, count, plural, quantity, shortName } from "./format.js";

const SHADES = 6;
const FEW_HOLDERS = 4;
const FEW_COUNTERS = 3;
const UNITS = { partitions: "partition", cpus: "CPU", whole: "device" };
const ORDER = ["taken", "partly", "shared", "free", "blocked", "tainted", "stale"];

/** Format states: "2 taken, 5 free". */
export function formatStates(states) {
  return ORDER.filter((state) => states[state]).map((state) => `${count(states[state])} ${state}`).join(", ");
}

const claimsOf = (part) => part.holders.map((one) => `${one.namespace}/${one.claim}`).join(", ");

/** Strip of a device: a segment for each part in use, as wide as its share of the device. */
function Strip({ of }) {
  const held = of.parts.filter((part) => part.holders.length);
  if (of.kind === "cpus") {
    const parts = [...of.parts].sort((a, b) => byName(a.device, b.device));
    return html`<span class="strip cells" role="img" aria-label=${`${of.device}: ${formatStates(of.states)}`}>
      ${parts.map((part) => html`<span class=${`cell state-${part.holders.length ? "taken" : part.state === "free" ? "free" : "unavailable"}`} title=${`${part.device} ${claimsOf(part) || part.state}`}></span>`)}
    </span>`;
  }
  const label = `${of.device}: ${held.map((part) => `${part.device} ${claimsOf(part)}`).join("; ") || "nothing in use"}`;
  const broken = !held.length && of.state !== "free";
  return html`<span class=${cx("strip", broken && "state-unavailable")} role="img" aria-label=${label} title=${label}>
    ${held.map((part, i) => html`<span class=${`strip-part shade-${i % SHADES}`} style=${{ width: `${part.share / 10}%` }}></span>`)}
  </span>`;
}

function partName(part, of) {
  return part.device.startsWith(`${of.device}-`) ? part.device.slice(of.device.length + 1) : part.device;
}

/** Claims that hold a device, with the part of each. */
function Holders({ of }) {
  const claims = new Map();
  for (const part of of.parts) {
    for (const one of part.holders) {
      const key = `${one.namespace}/${one.claim}`;
      if (!claims.has(key)) claims.set(key, { ...one, key, parts: [] });
      if (of.parts.length > 1 && part.device !== of.device) claims.get(key).parts.push(partName(part, of));
    }
  }
  if (!claims.size) return html`<${None} />`;
  const rest = claims.size - FEW_HOLDERS;
  return html`<ul class="plain">
    ${[...claims.values()].slice(0, FEW_HOLDERS).map(
      (one) => html`<li key=${one.key}>
        <${ClaimLink} namespace=${one.namespace} name=${one.claim} />
        ${one.parts.length > 0 && html` <span class="muted">${one.parts.length > 2 ? plural(one.parts.length, UNITS[of.kind]) : one.parts.join(", ")}</span>`}
        ${one.adminAccess && html` <span class="badge">admin access</span>`}
      </li>`,
    )}
    ${rest > 0 && html`<li class="muted">+${plural(rest, "claim")}</li>`}
  </ul>`;
}

/** All parts of a device with their states, folded. */
function Parts({ of }) {
  if (of.parts.length === 1) return null;
  return html`<details class="rest"><summary>${plural(of.parts.length, UNITS[of.kind])}: ${formatStates(of.states)}</summary>
    <ul class="part-list">${of.parts.map((part) => html`<li key=${part.device}>${part.device} <${State} of=${part.state} />${part.why && html` <span class="muted">${part.why}</span>`}</li>`)}</ul>
  </details>`;
}

/** Format what is left of the memory, or of the few counters that there are. */
function formatCounters(counters) {
  const memory = counters.filter((one) => one.counter === "memory");
  const shown = counters.length > FEW_COUNTERS && memory.length ? memory : counters.slice(0, FEW_COUNTERS);
  const rest = counters.length - shown.length;
  const texts = shown.map((one) => `${shortName(one.counter)} ${quantity(one.left, one.counter)} of ${quantity(one.whole, one.counter)}`);
  return `${texts.join(", ")}${rest ? ` and ${plural(rest, "other counter")}` : ""}`;
}

/** Bars of the capacities that claims share; else a strip and what is left of the counters. */
function Use({ of }) {
  const only = of.parts.length === 1 ? of.parts[0] : null;
  const shared = only && only.shareable ? Object.entries(only.capacity || {}) : [];
  if (shared.length) return html`${shared.map(([name, one]) => html`<${Share} key=${name} name=${name} capacity=${one} holders=${only.holders} />`)}`;
  return html`<${Strip} of=${of} />
    ${of.kind === "partitions" && of.state === "partly" && of.fits.length > 0 && html`<span class="under">still fits: ${of.fits.map((one) => `${one.type} ${count(one.devices)}`).join(" or ")}</span>`}
    ${of.counters.length > 0 && html`<details class="rest"><summary>${formatCounters(of.counters)} left</summary>${of.counters.map((one) => html`<${Counter} key=${one.counter} of=${one} />`)}</details>`}
    <${Parts} of=${of} />`;
}

export function PhysicalTable({ label, rows, node = true, empty, limit = 0 }) {
  const why = (r) => [...new Set(r.parts.filter((part) => part.why && (part.state !== "blocked" || r.parts.length === 1)).map((part) => part.why))].slice(0, 2).join("; ");
  const columns = [
    { title: "Device", value: (r) => `${r.driver} ${r.pool} ${r.device}`, cell: (r) => html`<span class="device-name">${r.device}</span>${r.product && html`<span class="under">${r.product}${r.memory ? `, ${quantity(r.memory, "memory")}` : ""}</span>`}<span class="under">${r.driver}${r.pool !== r.node ? ` / ${r.pool}` : ""}</span>` },
    { title: "State", value: (r) => r.state, cell: (r) => html`<${State} of=${r.state} />${why(r) && html`<span class="under">${why(r)}</span>`}` },
    { title: "In use", cls: "wide-cell", cell: (r) => html`<${Use} of=${r} />` },
    { title: "Held by", cls: "name-cell", cell: (r) => html`<${Holders} of=${r} />` },
  ];
  if (node) columns.splice(1, 0, { title: "Node", value: (r) => r.node || "", cell: (r) => (r.node ? html`<${NodeLink} name=${r.node} />` : html`<span class="muted">several</span>`) });
  return html`<${Table} label=${label} empty=${empty} rows=${rows} keyOf=${(r) => `${r.driver}/${r.pool}/${r.device}`} columns=${columns} limit=${limit} />`;
}
