// What can still be allocated: one card per device class, with the numbers of `top classes`, and the devices of each driver.
import { html, cx } from "./ui.js";
import { useApi } from "./store.js";
import { to } from "./router.js";
import { Cards } from "./components.js";
import { Counter } from "./devices.js";
import { count, plural, quantity, shortName, sizeOf } from "./format.js";

/** Classes listed on a narrow screen. */
const FEW = 4;
const STATES = [
  ["taken", "taken"],
  ["partly", "partly"],
  ["unavailable", "unavailable"],
  ["free", "free"],
];

/** Stacked bar of device states; each state has its own pattern and is named in the label. */
export function StateBar({ of, label }) {
  const text = `${label}: ${STATES.filter(([key]) => of[key] > 0).map(([key, name]) => `${count(of[key])} ${name}`).join(", ") || "no devices"}`;
  return html`<span class="state-bar" role="img" aria-label=${text} title=${text}>
    ${STATES.map(([key]) => of[key] > 0 && html`<span class=${`state-part state-${key}`} style=${{ width: `${((100 * of[key]) / of.all).toFixed(2)}%` }}></span>`)}
  </span>`;
}

/** Card of a class: devices that can still be allocated, and what is left of the capacities that claims share. */
function ClassCard({ row, uncounted }) {
  const free = `${count(row.free)}${row.unknownNodes ? "+" : ""}`;
  const first = isShared(row) ? row.capacity[0] : null;
  const exclusive = row.partitions.length > 0;
  const excluded = excludedOf(row);
  const kept = excluded.reduce((sum, [, number]) => sum + number, 0);
  const all = exclusive ? row.held + row.free + kept : row.devices; // partitions that others exclude are not unavailable
  const unavailable = Math.max(0, all - row.held - row.free);
  return html`<article class=${cx("card class-card", uncounted > 0 && "is-past")} aria-label=${`Class ${row.name}`}>
    <header>
      <h3><a href=${to(["devices"], { class: row.name })} title=${row.name}>${row.name}</a></h3>
      <span class="big">${first
        ? html`<b>${quantity(first.left, first.name)}</b> <span class="muted">of ${quantity(first.whole, first.name)} ${shortName(first.name)} left</span>`
        : html`<b>${free}</b> <span class="muted">of ${count(row.devices)} free</span>`}</span>
    </header>
    ${first
      ? html`<span class="state-bar" role="img" aria-label=${`${row.name}: ${quantity(first.left, first.name)} of ${quantity(first.whole, first.name)} ${shortName(first.name)} left`}><span class="state-part state-taken" style=${{ width: `${usedPercent(first)}%` }}></span></span>`
      : html`<${StateBar} label=${row.name} of=${{ all: Math.max(1, all), taken: row.held, partly: 0, unavailable, free: Math.min(row.free, all - row.held) }} />`}
    <p class="small muted">${first ? `at most ${quantity(first.mostOnOneDevice, first.name)} on one of ${plural(row.devices, "device")}` : row.free ? `at most ${count(row.mostOnOneNode)} on one node, ${plural(row.nodes.length, "node")}` : "none on any node"}${row.held > 0 && !first ? `; ${count(row.held)} in use` : ""}${exclusive ? "; partitions exclude each other" : ""}</p>
    ${row.capacity.filter((one) => one !== first).map((one) => html`<${Counter} key=${one.name} of=${{ set: "", counter: shortName(one.name), whole: one.whole, left: one.left }} />`)}
    ${row.partitions.length > 0 && html`<ul class="parts" aria-label="Partitions">${row.partitions.map((one) => html`<li><b>${count(one.free)}</b> ${one.type || "other devices"}</li>`)}</ul>`}
    ${excluded.length > 0 && html`<p class="small muted">not counted: ${excluded.map(([reason, number]) => `${count(number)} ${reason}`).join(", ")}</p>`}
    ${uncounted > 0 && html`<p class="small past-text">${plural(uncounted, "claim")} not counted</p>`}
    ${row.problem && html`<p class="small past-text">${row.problem}</p>`}
  </article>`;
}

/** Return what keeps devices from being free although no claim has them, each with their number. */
function excludedOf(row) {
  const onNodes = Object.entries(row.leftOut).map(([reason, of]) => [reason, of.devices]);
  return [...onNodes, ...Object.entries(row.deviceTaints).map(([taint, number]) => [`with taint ${taint}`, number])];
}

/** Return whether capacity says more than a number of devices: claims share those that are in use. */
function isShared(row) {
  return row.capacity.length > 0 && (row.free === 0 || row.free + row.held > row.devices);
}

function usedPercent(one) {
  const total = sizeOf(one.whole);
  return total > 0 ? Math.min(100, Math.max(0, 100 - (100 * sizeOf(one.left)) / total)).toFixed(2) : "0";
}

/** Return the number of claims that are not counted, by class. */
function uncountedByClass(notCounted) {
  const found = {};
  for (const key of new Set(((notCounted && notCounted.claims) || []).map((one) => `${one.deviceClass || ""} ${one.namespace}/${one.name}`))) {
    const name = key.slice(0, key.indexOf(" "));
    found[name] = (found[name] || 0) + 1;
  }
  return found;
}

/** Cards by class beside the devices of each driver. */
export function Availability({ data }) {
  const found = useApi(data.counts.devices ? "api/classes" : "", { kinds: ["Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceClass"] });
  if (!data.counts.devices) return null;
  // Placeholders keep the layout stable until the classes are loaded.
  const rows = found.data ? found.data.classes : Array.from({ length: data.counts.classes || 0 }, () => null);
  const uncounted = uncountedByClass(data.notCounted);
  return html`<div class="availability">
    ${rows.length > 0 &&
    html`<section aria-labelledby="classes-head">
      <div class="section-head"><h2 id="classes-head">Still available, by device class</h2></div>
      <${Cards} cls="class-cards" items=${rows} most=${FEW} important=${(row) => row && (uncounted[row.name] > 0 || row.problem)} noun="class" many="classes" draw=${(row, i) => (row ? html`<${ClassCard} key=${row.name} row=${row} uncounted=${uncounted[row.name] || 0} />` : html`<article key=${i} class="card class-card muted" aria-busy="true">...</article>`)} />
    </section>`}
    <section aria-labelledby="drivers-head">
      <div class="section-head"><h2 id="drivers-head">Devices by driver</h2><${StateLegend} /></div>
      <ul class="card drivers">
        ${data.drivers.map(
          (one) => html`<li key=${one.driver}>
            <a href=${to(["devices"], { q: `${one.driver}/` })} title=${one.driver}>${one.driver}</a>
            <${StateBar} label=${one.driver} of=${one} />
            <span><b>${count(one.free)}</b> free${one.partly > 0 && html`, <b>${count(one.partly)}</b> partly`}<span class="of"> of ${count(one.all)}</span></span>
          </li>`,
        )}
      </ul>
    </section>
  </div>`;
}

/** Legend of state bars. */
export function StateLegend() {
  return html`<ul class="legend" aria-label="States of devices">${STATES.map(([key, text]) => html`<li><span class=${`swatch state-${key}`}></span>${text}</li>`)}</ul>`;
}
