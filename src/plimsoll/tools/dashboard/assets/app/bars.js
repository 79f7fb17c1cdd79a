// Bars that show how a resource of a node is used. The line (allocatable) has the same position in every bar, so
// that nodes past it stand out in a column; the part past the line has its own color, pattern and text.
import { html, cx } from "./ui.js";
import { amount, percent } from "./format.js";

/** Position of the line, in percent of the width of a bar. */
const LINE = 84;
const PARTS = ["requests", "claims", "overhead"];

export function used(row) {
  return row.requests + row.claims + row.overhead;
}

/** Return whether a node has or uses any of a resource (it may report huge page sizes as 0). */
export function isPresent(row) {
  return Boolean(row.line || used(row) || row.uncounted);
}

/** Return the amount past the line that only shows if uncounted claims are counted; 0 if there is none. */
export function hiddenExcess(row) {
  const free = row.line - used(row);
  return row.uncounted && free >= 0 ? Math.max(0, row.uncounted - free) : 0;
}

/** Describe a bar as text, for screen readers and tooltips. */
export function describeBar(resource, row) {
  const textOf = (key) => (row.text && row.text[key]) || amount(resource, row[key]);
  const parts = PARTS.filter((key) => row[key]).map((key) => `${key} ${textOf(key)}`);
  const usage = parts.length ? parts.join(", ") : "nothing used";
  const free = row.line - used(row);
  const end = free < 0 ? `${amount(resource, -free)} PAST THE LINE` : `${amount(resource, free)} free`;
  const uncounted = row.uncounted > 0 ? `; ${amount(resource, row.uncounted)} not counted` : "";
  return `${resource}: ${usage}; ${end}; line ${textOf("line")}${uncounted}`;
}

/** The bar without text. */
export function Track({ row }) {
  const all = used(row);
  const scale = row.line > 0 ? LINE / row.line : 0;
  const width = (value) => `${Math.min(100, Math.max(0, value * scale)).toFixed(2)}%`;
  const past = all > row.line;
  const end = row.line > 0 ? Math.min(100, all * scale) : 100;
  return html`<span class=${cx("track", past && "is-past")} aria-hidden="true">
    <span class="fill">
      ${[...PARTS, "uncounted"].map((key) => row[key] > 0 && html`<span class=${`seg seg-${key}`} style=${{ width: width(row[key]) }}></span>`)}
    </span>
    ${past && html`<span class="seg-past" style=${{ left: `${LINE}%`, width: `${Math.max(1.5, end - LINE).toFixed(2)}%` }}></span>`}
    ${past && row.line > 0 && all * scale > 100 && html`<span class="beyond">${"»"}</span>`}
    <span class="line-mark" style=${{ left: `${LINE}%` }}></span>
  </span>`;
}

/** A bar with the free amount, exposed to screen readers as one labeled image. */
export function Bar({ resource, row }) {
  const free = row.line - used(row);
  const label = describeBar(resource, row);
  return html`<span class=${cx("bar", free < 0 && "is-past")} role="img" aria-label=${label} title=${label}>
    <${Track} row=${row} />
    <span class="bar-text" aria-hidden="true">
      ${free < 0
        ? html`<b class="past-text">${amount(resource, -free)} past</b>`
        : html`<b>${amount(resource, free)}</b> free`}
      ${row.uncounted > 0 ? html`<span class="past-text">, ${amount(resource, row.uncounted)} not counted</span>` : html`<span class="of"> of ${amount(resource, row.line)}</span>`}
    </span>
  </span>`;
}

/** Legend of the parts of a bar. */
export function Legend({ uncounted = false }) {
  return html`<ul class="legend" aria-label="Parts of a bar">
    <li><span class="swatch seg-requests"></span>requests</li>
    <li><span class="swatch seg-claims"></span>claims</li>
    <li><span class="swatch seg-overhead"></span>overhead</li>
    <li><span class="swatch swatch-free"></span>free</li>
    <li><span class="swatch swatch-line"></span>the line (allocatable)</li>
    <li><span class="swatch seg-past"></span>past the line</li>
    ${uncounted && html`<li><span class="swatch seg-uncounted"></span>not counted</li>`}
  </ul>`;
}

/** Length from which the name of a resource is written smaller, to be in one line with its amount. */
const LONG_NAME = 16;

/** Card of one resource: bar and all numbers. */
export function LedgerCard({ resource, row }) {
  const free = row.line - used(row);
  const exact = (key) => (row.text && row.text[key]) || "";
  return html`<section class=${cx("card ledger-card", resource.length > LONG_NAME && "long-name", (free < 0 || hiddenExcess(row) > 0) && "is-past")} aria-label=${`Ledger of ${resource}`}>
    <header>
      <h3 title=${resource}>${resource}</h3>
      <span class="big">
        ${free < 0
          ? html`<b class="past-text">${amount(resource, -free)} past the line</b>`
          : html`<b>${amount(resource, free)}</b> free`}
      </span>
    </header>
    <span role="img" aria-label=${describeBar(resource, row)} title=${describeBar(resource, row)}><${Track} row=${row} /></span>
    <dl class="numbers">
      ${PARTS.map((key) => html`<div><dt><span class=${`swatch seg-${key}`}></span>${key}</dt><dd title=${exact(key)}>${amount(resource, row[key])}</dd></div>`)}
      ${row.uncounted > 0 && html`<div class="past-text"><dt><span class="swatch seg-uncounted"></span>not counted</dt><dd title=${exact("uncounted")}>${amount(resource, row.uncounted)}</dd></div>`}
      <div class="share-of"><dt class="unseen">total</dt><dd title=${exact("line")}>${percent(used(row), row.line)}<span class="unseen"> used</span> of ${amount(resource, row.line)}</dd></div>
    </dl>
    ${hiddenExcess(row) > 0 && html`<p class="closed past-text">${amount(resource, hiddenExcess(row))} past the line with claims that are not counted.</p>`}
    ${row.closed > 0 && html`<p class="closed" title=${exact("closed")}>${amount(resource, row.closed)} of the free amount is on unschedulable nodes.</p>`}
  </section>`;
}
