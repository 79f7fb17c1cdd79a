// Virtualized lists: only the visible rows and a few around them are rendered. The focused row stays rendered and
// keeps the focus while the list scrolls or changes. Arrow keys, Home, End and Page keys move between rows.
import { html, useEffect, useLayoutEffect, useReducer, useRef } from "./ui.js";

/** Rows rendered above and below the visible ones. */
const OVERSCAN = 12;

function rangeOf(element, count, height) {
  if (!element) return [0, Math.min(count, 40)];
  const top = element.getBoundingClientRect().top;
  const first = Math.floor(-top / height) - OVERSCAN;
  const last = Math.ceil((innerHeight - top) / height) + OVERSCAN;
  return [Math.max(0, Math.min(first, count)), Math.max(0, Math.min(last, count))];
}

/**
 * Rows `0..count-1` of a fixed height. `keyOf(i)` returns the key of a row; `row(i, focus)` renders it and sets the
 * attributes `focus` (tabindex and data-row) on its focusable element.
 */
export function VirtualList({ count, height, keyOf, row }) {
  const box = useRef(null);
  const active = useRef(null);
  const shown = useRef([0, 0]);
  const wanted = useRef(null);
  const rendered = useRef({ row: null, height: 0, all: new Map() });
  const [, redraw] = useReducer((n) => n + 1, 0);
  const draw = (i, key, isActive) => html`<div class="windowed-row" key=${key} role="row" aria-rowindex=${i + 2} style=${{ top: `${i * height}px`, height: `${height}px` }}>
    ${row(i, { tabIndex: isActive ? 0 : -1, "data-row": key })}
  </div>`;

  const range = rangeOf(box.current, count, height);
  shown.current = range;
  const focused = document.activeElement && document.activeElement.dataset.row;

  useEffect(() => {
    let frame = 0;
    const update = () => {
      frame = 0;
      const [first, last] = rangeOf(box.current, count, height);
      // Render only when the visible rows come near the end of the rendered ones.
      const slack = OVERSCAN / 2;
      const [from, till] = shown.current;
      if ((first + slack < from && from > 0) || (last - slack > till && till < count)) redraw();
    };
    const soon = () => {
      if (!frame) frame = requestAnimationFrame(update);
    };
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
    };
  }, [count, height]);

  // The position of the box is known only after it is rendered.
  useLayoutEffect(() => {
    const [first, last] = rangeOf(box.current, count, height);
    const [from, till] = shown.current;
    if (first < from || last > till) redraw();
  });

  useLayoutEffect(() => {
    const name = wanted.current ?? focused;
    wanted.current = null;
    if (name == null || !box.current) return;
    const now = document.activeElement && document.activeElement.dataset.row;
    if (now === name) return;
    for (const element of box.current.querySelectorAll("[data-row]")) {
      if (element.dataset.row === name) element.focus({ preventScroll: true });
    }
  });

  const indexOfActive = () => {
    for (let i = 0; i < count; i += 1) if (keyOf(i) === active.current) return i;
    return -1;
  };

  const onKeyDown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(innerHeight / height) - 4);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count };
    const step = steps[event.key];
    if (step === undefined || !event.target.dataset.row) return;
    event.preventDefault();
    const from = indexOfActive();
    const next = Math.max(0, Math.min(count - 1, from + step));
    active.current = keyOf(next);
    wanted.current = active.current;
    const top = box.current.getBoundingClientRect().top + next * height;
    const head = 150; // The page header and the list header cover the first rows.
    if (top < head) scrollBy(0, top - head);
    else if (top + height > innerHeight - 8) scrollBy(0, top + height - innerHeight + 8);
    redraw();
  };

  const onFocusIn = (event) => {
    const name = event.target.dataset.row;
    if (name === undefined || name === active.current) return;
    active.current = name;
    redraw();
  };

  let at = indexOfActive();
  if (at < 0 && count) {
    active.current = keyOf(range[0] < count ? range[0] : 0);
    at = indexOfActive();
  }
  const drawn = [];
  for (let i = range[0]; i < range[1]; i += 1) drawn.push(i);
  if (at >= 0 && (at < range[0] || at >= range[1])) {
    if (at < range[0]) drawn.unshift(at);
    else drawn.push(at);
  }
  // Rows that stay visible while scrolling are not rendered again.
  const kept = rendered.current.row === row && rendered.current.height === height ? rendered.current.all : new Map();
  const all = new Map();
  for (const i of drawn) {
    const key = keyOf(i);
    const known = kept.get(key);
    all.set(key, known && known.i === i && known.active === (i === at) ? known : { i, active: i === at, element: draw(i, key, i === at) });
  }
  rendered.current = { row, height, all };
  return html`<div
    class="windowed"
    role="rowgroup"
    ref=${box}
    style=${{ height: `${count * height}px` }}
    onKeyDown=${onKeyDown}
    onFocusIn=${onFocusIn}
  >
    ${[...all.values()].map((one) => one.element)}
  </div>`;
}
