// Owns: small pieces that every page is made of: head of a page, states of waiting and failing, search boxes,
// choices, links to nodes, pods and claims, badges.
import { html, cx, setTitle, useEffect, useRef, useState } from "./ui.js";
import { links, replaceQuery } from "./router.js";
import { retry } from "./store.js";
import { Icon } from "./marks.js";

/** The heading of a page; takes the focus when one gets there by a link, so that it is read out. */
export function Head({ title, tab = title, children }) {
  const element = useRef(null);
  useEffect(() => setTitle(tab), [tab]);
  return html`<div class="page-head">
    <h1 id="page-title" tabindex="-1" ref=${element}>${title}</h1>
    ${children}
  </div>`;
}

/** Waiting, failed, or `children(data)`. An error beside older data is told above it. */
export function Answer({ of, children, what = "This" }) {
  const { data, error } = of;
  if (!data && error) {
    return html`<div class="notice is-error" role="alert">
      <${Icon} name="warn" /><span>${error}</span><button type="button" onClick=${retry}>Try again</button>
    </div>`;
  }
  if (!data) return html`<p class="waiting" role="status">${what} is being read ...</p>`;
  return html`${error &&
    html`<div class="notice is-warning" role="status"><${Icon} name="warn" /><span>${error} What follows is the last answer.</span></div>`}
  ${children(data)}`;
}

/** Nothing to show; `well` says that this is as it should be. */
export function Nothing({ well = false, children }) {
  return html`<p class=${cx("empty", well && "all-well")}>${well && html`<${Icon} name="ok" /> `}${children}</p>`;
}

/** A search box whose text is in the address; waits for a pause in typing. `/` brings one here. */
export function Search({ label, value, name = "q", placeholder = "" }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  const sent = useRef(value);
  useEffect(() => {
    // The address changed by other means than typing here (the back button).
    if (value !== sent.current) {
      sent.current = value;
      setText(value);
    }
  }, [value]);
  // What is typed just before one leaves belongs to the page that was left.
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

/** One of several, kept in the address. */
export function Choice({ label, name, value, options, usual = "" }) {
  return html`<label class="field">
    <span>${label}</span>
    <select value=${value} onChange=${(e) => replaceQuery({ [name]: e.currentTarget.value === usual ? "" : e.currentTarget.value, offset: "" })}>
      ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
    </select>
  </label>`;
}

export function Badge({ tone = "", children }) {
  return html`<span class=${cx("badge", tone && `tone-${tone}`)}>${children}</span>`;
}

export function NodeLink({ name }) {
  return name ? html`<a href=${links.node(name)}>${name}</a>` : html`<span class="muted">-</span>`;
}

export function PodLink({ namespace, name }) {
  return html`<a href=${links.pod(namespace, name)}><span class="ns">${namespace}/</span>${name}</a>`;
}

export function ClaimLink({ namespace, name }) {
  return html`<a href=${links.claim(namespace, name)}><span class="ns">${namespace}/</span>${name}</a>`;
}

/** "ns/name" in two. */
export function split(text) {
  const cut = String(text).indexOf("/");
  return cut < 0 ? ["", String(text)] : [text.slice(0, cut), text.slice(cut + 1)];
}

/** A claim or pod given as text "ns/name", or as an object. */
export function Ref({ kind, of }) {
  const [namespace, name] = typeof of === "string" ? split(of) : [of.namespace || "", of.name || of.pod || of.claim || ""];
  if (!namespace) return html`<span>${name}</span>`;
  return kind === "claim" ? html`<${ClaimLink} namespace=${namespace} name=${name} />` : html`<${PodLink} namespace=${namespace} name=${name} />`;
}

/** Several things with commas, the first few of them. */
export function Several({ items, most = 4, draw = (item) => item }) {
  if (!items || !items.length) return html`<span class="muted">-</span>`;
  const rest = items.length - most;
  return html`${items.slice(0, most).map((item, i) => html`${i > 0 && ", "}${draw(item)}`)}${rest > 0 && html`<span class="muted"> +${rest} more</span>`}`;
}
