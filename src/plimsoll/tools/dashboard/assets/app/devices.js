// Table of devices: state, holders, consumed capacity as a stacked bar, and the counters of partitions.
import { html, cx } from "./ui.js";
import { ClaimLink, InlineList, NodeLink } from "./components.js";
import { Table } from "./table.js";
import { quantity, sizeOf } from "./format.js";

const TONES = { free: "good", taken: "", partly: "info", shared: "info", blocked: "warn", tainted: "warn", stale: "bad" };
const SHADES = 6;
const FEW_COUNTERS = 3;

export function State({ of }) {
  return html`<span class=${cx("badge", TONES[of] && `tone-${TONES[of]}`)}>${of}</span>`;
}

/** Bar of one capacity of a shared device, with one part per holder. */
export function Share({ name, capacity, holders = [] }) {
  const total = sizeOf(capacity.whole);
  const used = sizeOf(capacity.used);
  const parts = holders.filter((one) => one.consumed && one.consumed[name]);
  const label = `${name}: ${quantity(capacity.used)} of ${quantity(capacity.whole)} used${parts.map((one) => `, ${one.namespace}/${one.claim} ${quantity(one.consumed[name])}`).join("")}`;
  const width = (size) => ({ width: `${total > 0 ? Math.min(100, (100 * size) / total).toFixed(2) : 0}%` });
  return html`<div class="share" role="img" aria-label=${label} title=${label}>
    <span class="share-name">${name}</span>
    <span class="share-track" aria-hidden="true">
      ${parts.length
        ? parts.map((one, i) => html`<span class=${`share-part shade-${i % SHADES}`} style=${width(sizeOf(one.consumed[name]))}></span>`)
        : used > 0 && html`<span class="share-part shade-0" style=${width(used)}></span>`}
    </span>
    <span class="share-text">${quantity(capacity.used)}<span class="of"> of ${quantity(capacity.whole)}</span></span>
  </div>`;
}

/** Bar of a counter of a pool, with the remaining amount. */
export function Counter({ of }) {
  const total = sizeOf(of.whole);
  const left = sizeOf(of.left);
  const name = of.set ? `${of.set}/${of.counter}` : of.counter;
  const label = `${name}: ${quantity(of.left)} of ${quantity(of.whole)} left`;
  return html`<div class="share" role="img" aria-label=${label} title=${label}>
    <span class="share-name">${name}</span>
    <span class="share-track" aria-hidden="true">
      <span class="share-part shade-3" style=${{ width: `${total > 0 ? Math.max(0, Math.min(100, 100 - (100 * left) / total)).toFixed(2) : 0}%` }}></span>
    </span>
    <span class=${cx("share-text", left < 0 && "past-text")}>${quantity(of.left)}<span class="of"> of ${quantity(of.whole)} left</span></span>
  </div>`;
}

function Holders({ of }) {
  if (!of.length) return html`<span class="muted">-</span>`;
  return html`<ul class="plain">
    ${of.map(
      (one) => html`<li key=${one.shareID || `${one.namespace}/${one.claim}/${one.request}`}>
        <${ClaimLink} namespace=${one.namespace} name=${one.claim} />
        ${one.adminAccess && html` <span class="badge">admin access</span>`}
        ${Object.entries(one.consumed || {}).map(([name, text]) => html` <span class="muted">${name} ${quantity(text)}</span>`)}
      </li>`,
    )}
  </ul>`;
}

/** Capacity of a device (bars if it is shared or in use, else sizes), and the counters a partition consumes. */
function Capacity({ of }) {
  const capacity = Object.entries(of.capacity || {});
  const counters = of.counters || [];
  if (!capacity.length && !counters.length) return html`<span class="muted">-</span>`;
  const bars = of.shareable || capacity.some(([, one]) => sizeOf(one.used) > 0);
  return html`${bars
    ? capacity.map(([name, one]) => html`<${Share} key=${name} name=${name} capacity=${one} holders=${of.holders} />`)
    : html`<span class="sizes">${capacity.map(([name, one], i) => html`${i > 0 && ", "}<span class="muted">${name}</span> ${quantity(one.whole)}`)}</span>`}
  ${counters.length > 0 &&
  html`<div class="draws" title=${counters.map((one) => `${one.set}/${one.counter} ${quantity(one.draws)}`).join(", ")}>
    <span class="muted">partition, consumes</span> <${InlineList} items=${counters} most=${FEW_COUNTERS} draw=${(one) => html`<span>${one.counter} ${quantity(one.draws)}</span>`} />
  </div>`}`;
}

/** Reason why a device cannot be allocated: the first one, and the number of others. */
function Reason({ of }) {
  const parts = String(of).split(/, (?=\S+: needs )/);
  return html`<span class="under" title=${of}>${parts[0]}${parts.length > 1 && html` +${parts.length - 1} more`}</span>`;
}

export function DeviceTable({ label, rows, node = true, empty }) {
  const columns = [
    { title: "Device", value: (r) => `${r.driver} ${r.pool} ${r.device}`, cell: (r) => html`<span class="device-name">${r.device}</span><span class="under">${r.driver} / ${r.pool}</span>` },
    { title: "State", value: (r) => r.state, cell: (r) => html`<${State} of=${r.state} />${r.why && html`<${Reason} of=${r.why} />`}` },
    { title: "Held by", cls: "name-cell", cell: (r) => html`<${Holders} of=${r.holders || []} />` },
    { title: "Capacity and counters", cls: "wide-cell", cell: (r) => html`<${Capacity} of=${r} />` },
  ];
  if (node) columns.splice(2, 0, { title: "Node", value: (r) => r.node || "", cell: (r) => (r.node ? html`<${NodeLink} name=${r.node} />` : html`<span class="muted">several</span>`) });
  return html`<${Table} label=${label} empty=${empty} rows=${rows} keyOf=${(r) => `${r.driver}/${r.pool}/${r.device}`} columns=${columns} />`;
}
