// Components shared by all pages: headings, loading and error states, search fields, selects, badges, and links to
// nodes, pods and claims.
import { NARROW, html, cx, setTitle, useEffect, useMedia, useRef, useState } from "./ui.js";
import { links, replaceQuery } from "./router.js";
import { retry } from "./store.js";
import { Icon } from "./icons.js";
import { plural } from "./format.js";

/** Page heading; it gets the focus on navigation, so that screen readers announce it. */
export function Head({ title, tab = title, children }) {
  const element = useRef(null);
  useEffect(() => setTitle(tab), [tab]);
  return html`<div class="page-head">
    <h1 id="page-title" tabindex="-1" ref=${element}>${title}</h1>
    ${children}
  </div>`;
}

/** Loading state, error, or `children(data)`. An error is shown above data loaded earlier. */
export function Loadable({ of, children, what = "data" }) {
  const { data, error } = of;
  if (!data && error) {
    return html`<div class="notice is-error" role="alert">
      <${Icon} name="warn" /><span>${error}</span><button type="button" onClick=${retry}>Retry</button>
    </div>`;
  }
  if (!data) return html`<p class="loading" role="status">Loading ${what} ...</p>`;
  return html`${error &&
    html`<div class="notice is-warning" role="status"><${Icon} name="warn" /><span>${error} The data below may be out of date.</span></div>`}
  ${children(data)}`;
}

/** Text of an empty list; `well` marks it as the desired state. */
export function EmptyState({ well = false, children }) {
  return html`<p class=${cx("empty", well && "all-well")}>${well && html`<${Icon} name="ok" /> `}${children}</p>`;
}

/** Search field stored in the URL and debounced; the `/` key focuses it. */
export function Search({ label, value, name = "q", placeholder = "" }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  const sent = useRef(value);
  useEffect(() => {
    // The URL changed by other means than typing here (the back button).
    if (value !== sent.current) {
      sent.current = value;
      setText(value);
    }
  }, [value]);
  // Text typed just before leaving the page must not reach the next page.
  useEffect(() => () => clearTimeout(timer.current), []);
  const send = (next) => {
    sent.current = next;
    replaceQuery({ [name]: next, offset: "" });
  };
  const type = (event) => {
    const next = event.currentTarget.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => send(next), 150);
  };
  return html`<label class="field search">
    <span>${label}</span>
    <input type="search" data-search="yes" autocomplete="off" spellcheck=${false} value=${text} placeholder=${placeholder} onInput=${type} />
  </label>`;
}

/** Select stored in the URL. */
export function Choice({ label, name, value, options, initial = "" }) {
  return html`<label class="field">
    <span>${label}</span>
    <select value=${value} onChange=${(e) => replaceQuery({ [name]: e.currentTarget.value === initial ? "" : e.currentTarget.value, offset: "" })}>
      ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
    </select>
  </label>`;
}

export function Badge({ tone = "", children }) {
  return html`<span class=${cx("badge", tone && `tone-${tone}`)}>${children}</span>`;
}

/** Content of a cell without a value; narrow screens leave out the cell. */
export function None() {
  return html`<span class="muted none">-</span>`;
}

/**
 * Cards, all of them on a wide screen. On a narrow one the first `most` and those that are `important`; a button shows
 * the others.
 */
export function Cards({ items, most, noun, many, cls, draw, important = () => false }) {
  const narrow = useMedia(NARROW);
  const [all, setAll] = useState(false);
  const few = narrow ? items.filter((item, i) => i < most || important(item)) : items;
  const folded = few.length < items.length;
  return html`<div class=${cls}>${(all ? items : few).map(draw)}</div>
    ${folded && html`<p class="more"><button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${plural(items.length, noun, many)}`}</button></p>`}`;
}

export function NodeLink({ name }) {
  return name ? html`<a href=${links.node(name)}>${name}</a>` : html`<${None} />`;
}

export function PodLink({ namespace, name }) {
  return html`<a href=${links.pod(namespace, name)}><span class="ns">${namespace}/</span>${name}</a>`;
}

export function ClaimLink({ namespace, name }) {
  return html`<a href=${links.claim(namespace, name)}><span class="ns">${namespace}/</span>${name}</a>`;
}

/** Split "namespace/name". */
export function split(text) {
  const cut = String(text).indexOf("/");
  return cut < 0 ? ["", String(text)] : [text.slice(0, cut), text.slice(cut + 1)];
}

/** Link to a claim or pod given as "namespace/name" or as an object. */
export function Ref({ kind, of }) {
  const [namespace, name] = typeof of === "string" ? split(of) : [of.namespace || "", of.name || of.pod || of.claim || ""];
  if (!namespace) return html`<span>${name}</span>`;
  return kind === "claim" ? html`<${ClaimLink} namespace=${namespace} name=${name} />` : html`<${PodLink} namespace=${namespace} name=${name} />`;
}

/** Comma-separated list of the first items and the number of others. */
export function InlineList({ items, most = 4, draw = (item) => item }) {
  if (!items || !items.length) return html`<${None} />`;
  const rest = items.length - most;
  return html`${items.slice(0, most).map((item, i) => html`${i > 0 && ", "}${draw(item)}`)}${rest > 0 && html`<span class="muted"> +${rest} more</span>`}`;
}
