// Parts of device tables: state, shares of a capacity as a stacked bar, and counters.
import { html, cx } from "./ui.js";
import { quantity, shortName, sizeOf } from "./format.js";

const TONES = { free: "good", taken: "", partly: "info", shared: "info", blocked: "warn", tainted: "warn", stale: "bad" };
const SHADES = 6;

export function State({ of }) {
  return html`<span class=${cx("badge", TONES[of] && `tone-${TONES[of]}`)}>${of}</span>`;
}

/** Bar of one capacity of a shared device, with one part per holder. */
export function Share({ name, capacity, holders = [] }) {
  const total = sizeOf(capacity.whole);
  const used = sizeOf(capacity.used);
  const parts = holders.filter((one) => one.consumed && one.consumed[name]);
  const label = `${name}: ${quantity(capacity.used, name)} of ${quantity(capacity.whole, name)} used${parts.map((one) => `, ${one.namespace}/${one.claim} ${quantity(one.consumed[name], name)}`).join("")}`;
  const width = (size) => ({ width: `${total > 0 ? Math.min(100, (100 * size) / total).toFixed(2) : 0}%` });
  return html`<div class="share" role="img" aria-label=${label} title=${label}>
    <span class="share-name">${shortName(name)}</span>
    <span class="share-track" aria-hidden="true">
      ${parts.length
        ? parts.map((one, i) => html`<span class=${`share-part shade-${i % SHADES}`} style=${width(sizeOf(one.consumed[name]))}></span>`)
        : used > 0 && html`<span class="share-part shade-0" style=${width(used)}></span>`}
    </span>
    <span class="share-text">${quantity(capacity.used, name)}<span class="of"> of ${quantity(capacity.whole, name)}</span></span>
  </div>`;
}

/** Bar of a counter of a pool, with the remaining amount. */
export function Counter({ of }) {
  const total = sizeOf(of.whole);
  const left = sizeOf(of.left);
  const name = of.set ? `${of.set}/${of.counter}` : of.counter;
  const text = (value) => quantity(value, of.counter);
  const label = `${name}: ${text(of.left)} of ${text(of.whole)} left`;
  return html`<div class="share" role="img" aria-label=${label} title=${label}>
    <span class="share-name">${name}</span>
    <span class="share-track" aria-hidden="true">
      <span class="share-part shade-3" style=${{ width: `${total > 0 ? Math.max(0, Math.min(100, 100 - (100 * left) / total)).toFixed(2) : 0}%` }}></span>
    </span>
    <span class=${cx("share-text", left < 0 && "past-text")}>${text(of.left)}<span class="of"> of ${text(of.whole)} left</span></span>
  </div>`;
}
