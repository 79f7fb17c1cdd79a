// Owns: the bar of one node and resource. The line is a mark at the same place in every bar, so that a column
// of bars shows at once which of them cross it; what is past it has a colour, a pattern and words of its own.
import { html, cx } from "./ui.js";
import { amount, percent } from "./format.js";

/** Where the line stands, in percent of the width of a bar. */
const LINE = 84;
const PARTS = ["requests", "claims", "overhead"];

export function used(row) {
  return row.requests + row.claims + row.overhead;
}

/** Whether there is anything to say of a resource: a size of huge pages that nobody has is none. */
export function matters(row) {
  return Boolean(row.line || used(row));
}

/** A bar in words: for screen readers and tooltips. */
export function inWords(resource, row) {
  const say = (key) => (row.text && row.text[key]) || amount(resource, row[key]);
  const parts = PARTS.filter((key) => row[key]).map((key) => `${key} ${say(key)}`);
  const taken = parts.length ? parts.join(", ") : "nothing taken";
  const free = row.line - used(row);
  const end = free < 0 ? `${amount(resource, -free)} PAST THE LINE` : `${amount(resource, free)} free`;
  return `${resource}: ${taken}; ${end}; line ${say("line")}`;
}

/** The bar alone, without words. */
export function Track({ row }) {
  const all = used(row);
  const scale = row.line > 0 ? LINE / row.line : 0;
  const width = (value) => `${Math.min(100, Math.max(0, value * scale)).toFixed(2)}%`;
  const past = all > row.line;
  const end = row.line > 0 ? Math.min(100, all * scale) : 100;
  return html`<span class=${cx("track", past && "is-past")} aria-hidden="true">
    <span class="fill">
      ${PARTS.map((key) => row[key] > 0 && html`<span class=${`seg seg-${key}`} style=${{ width: width(row[key]) }}></span>`)}
    </span>
    ${past && html`<span class="seg-past" style=${{ left: `${LINE}%`, width: `${Math.max(1.5, end - LINE).toFixed(2)}%` }}></span>`}
    ${past && row.line > 0 && all * scale > 100 && html`<span class="beyond">${"»"}</span>`}
    <span class="line-mark" style=${{ left: `${LINE}%` }}></span>
  </span>`;
}

/** A bar with what is left beside it, as one image with a name. */
export function Bar({ resource, row }) {
  const free = row.line - used(row);
  const words = inWords(resource, row);
  return html`<span class=${cx("bar", free < 0 && "is-past")} role="img" aria-label=${words} title=${words}>
    <${Track} row=${row} />
    <span class="bar-text" aria-hidden="true">
      ${free < 0
        ? html`<b class="past-text">${amount(resource, -free)} past</b>`
        : html`<b>${amount(resource, free)}</b> free`}
      <span class="of"> of ${amount(resource, row.line)}</span>
    </span>
  </span>`;
}

/** What the parts of a bar mean. */
export function Legend() {
  return html`<ul class="legend" aria-label="Parts of a bar">
    <li><span class="swatch seg-requests"></span>requests</li>
    <li><span class="swatch seg-claims"></span>claims</li>
    <li><span class="swatch seg-overhead"></span>overhead</li>
    <li><span class="swatch swatch-free"></span>free</li>
    <li><span class="swatch swatch-line"></span>the line</li>
    <li><span class="swatch seg-past"></span>past the line</li>
  </ul>`;
}

/** A row of the ledger in full: bar and all numbers. */
export function LedgerCard({ resource, row }) {
  const free = row.line - used(row);
  const exact = (key) => (row.text && row.text[key]) || "";
  return html`<section class=${cx("card ledger-card", free < 0 && "is-past")} aria-label=${`Ledger of ${resource}`}>
    <header>
      <h3>${resource}</h3>
      <span class="big">
        ${free < 0
          ? html`<b class="past-text">${amount(resource, -free)} past the line</b>`
          : html`<b>${amount(resource, free)}</b> free`}
        <span class="muted" title=${exact("line")}> of ${amount(resource, row.line)}</span>
      </span>
    </header>
    <span role="img" aria-label=${inWords(resource, row)} title=${inWords(resource, row)}><${Track} row=${row} /></span>
    <dl class="numbers">
      ${PARTS.map((key) => html`<div><dt><span class=${`swatch seg-${key}`}></span>${key}</dt><dd title=${exact(key)}>${amount(resource, row[key])}</dd></div>`)}
      <div class="share-of"><dt class="unseen">in all</dt><dd>${percent(used(row), row.line)}<span class="unseen"> taken</span></dd></div>
    </dl>
    ${row.closed > 0 && html`<p class="closed" title=${exact("closed")}>Of the free, ${amount(resource, row.closed)} is on nodes that take no pods.</p>`}
  </section>`;
}
