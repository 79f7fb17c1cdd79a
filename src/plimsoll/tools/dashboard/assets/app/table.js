// Sortable tables with keyboard navigation between rows, and the pager of paginated lists.
import { NARROW, html, cx, useMedia, useState } from "./ui.js";
import { byName, count as number } from "./format.js";

/** Rows of a page on a narrow screen, where each of them has several lines. */
const NARROW_ROWS = 8;

/** Return the number of rows of a page that has `wide` of them on a wide screen; 0 is no limit. */
export function usePageSize(wide) {
  const narrow = useMedia(NARROW);
  return narrow ? Math.min(wide, NARROW_ROWS) : wide;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return byName(String(a ?? ""), String(b ?? ""));
}

/** Move the focus between rows (to their first link or button) with the arrow keys, Home and End. */
export function rowKeys(event) {
  const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
  if (step === undefined || event.target.closest("input, textarea, select")) return;
  const row = event.target.closest("tr");
  if (!row) return;
  const rows = [...row.parentElement.children].filter((one) => one.querySelector("a, button, summary"));
  const at = rows.indexOf(row);
  const next = rows[Math.max(0, Math.min(rows.length - 1, step === -Infinity ? 0 : step === Infinity ? rows.length - 1 : at + step))];
  if (!next) return;
  event.preventDefault();
  next.querySelector("a, button, summary").focus();
}

/**
 * `columns`: {title, short, cell(row), value(row) if sortable, num, cls}; `short` is the title on narrow screens. The first
 * column is the row header. With `limit`, long tables have pages.
 */
export function Table({ label, columns, rows, keyOf, empty = "None.", rowClass, limit: wide = 0 }) {
  const limit = usePageSize(wide);
  const [sort, setSort] = useState(null);
  const [offset, setOffset] = useState(0);
  let shown = rows;
  if (sort && columns[sort.column] && columns[sort.column].value) {
    const { value } = columns[sort.column];
    shown = rows
      .map((row, i) => [value(row), i, row])
      .sort((a, b) => (compare(a[0], b[0]) || (a[1] - b[1]) * sort.direction) * sort.direction)
      .map(([, , row]) => row);
  }
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const from = limit && offset < shown.length ? offset : 0;
  if (limit) shown = shown.slice(from, from + limit);
  const toggleSort = (column) => {
    const same = sort && sort.column === column;
    if (same && sort.direction === (columns[column].num ? 1 : -1)) setSort(null);
    else setSort({ column, direction: same ? -sort.direction : columns[column].num ? -1 : 1 });
  };
  const pager = limit > 0 && html`<${Pager} total=${rows.length} offset=${from} limit=${limit} go=${setOffset} />`;
  return html`<div class="scroller" role="region" aria-label=${label} tabindex="0">
    <table role="table">
      <caption class="unseen">${label}</caption>
      <thead>
        <tr>
          ${columns.map((column, i) => {
            const sorted = sort && sort.column === i;
            const order = sorted ? (sort.direction > 0 ? "ascending" : "descending") : undefined;
            return html`<th scope="col" role="columnheader" class=${cx(column.num && "num", !column.value && "unsorted", column.cls)} aria-sort=${order}>
              ${column.value
                ? html`<button type="button" class="head-button" onClick=${() => toggleSort(i)}>
                    ${column.title}<span class="arrow" aria-hidden="true">${sorted ? (sort.direction > 0 ? "▲" : "▼") : "↕"}</span>
                  </button>`
                : column.title}
            </th>`;
          })}
        </tr>
      </thead>
      <tbody onKeyDown=${rowKeys}>
        ${shown.map(
          (row, n) => html`<tr role="row" key=${keyOf ? keyOf(row) : n} class=${rowClass ? rowClass(row) : undefined}>
            ${columns.map((column, i) =>
              i === 0
                ? html`<th scope="row" role="rowheader" class=${cx(column.num && "num", column.cls)}>${column.cell(row)}</th>`
                : html`<td role="cell" data-label=${column.short || column.title} class=${cx(column.num && "num", column.cls)}>${column.cell(row)}</td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>
  ${pager}`;
}

/** List with pages; `draw(item)` renders a list item. */
export function PagedList({ items, limit: wide, cls, draw }) {
  const limit = usePageSize(wide);
  const [offset, setOffset] = useState(0);
  const from = offset < items.length ? offset : 0;
  return html`<ul class=${cls}>${items.slice(from, from + limit).map(draw)}</ul>
    <${Pager} total=${items.length} offset=${from} limit=${limit} go=${setOffset} />`;
}

/** Range of the current page, with buttons for the previous and next one. */
export function Pager({ total, offset, limit, go }) {
  if (total <= limit && !offset) return null;
  const last = Math.min(total, offset + limit);
  return html`<nav class="pager" aria-label="Pages of the list">
    <button type="button" disabled=${offset === 0} onClick=${() => go(Math.max(0, offset - limit))}>Previous</button>
    <span aria-live="polite">${number(Math.min(offset + 1, total))}-${number(last)} of ${number(total)}</span>
    <button type="button" disabled=${last >= total} onClick=${() => go(offset + limit)}>Next</button>
  </nav>`;
}
