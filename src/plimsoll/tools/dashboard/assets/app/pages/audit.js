// Audit findings by severity and check, with evidence and fixes.
import { NARROW, html, useMedia, useState } from "../ui.js";
import { useApi } from "../store.js";
import { links } from "../router.js";
import { Badge, Choice, EmptyState, Head, Loadable, Search } from "../components.js";
import { Pager, usePageSize } from "../table.js";
import { byName, count, groupBy, plural } from "../format.js";

const ORDER = ["error", "warning", "info"];
const TITLES = { error: "Errors", warning: "Warnings", info: "Info" };
const TONES = { error: "bad", warning: "warn", info: "info" };
/** Findings of a check, on wide and on narrow screens, and of each of its pages; lines of evidence. */
const FEW = 4;
const FEW_NARROW = 2;
const PAGE = 20;
const EVIDENCE = 4;

/** Subject such as `Node/n1`, with a link if it has a page. */
function Subject({ of }) {
  const [kind, ...rest] = String(of).split("/");
  const href =
    kind === "Node" && rest.length === 1
      ? links.node(rest[0])
      : kind === "Pod" && rest.length === 2
        ? links.pod(...rest)
        : kind === "ResourceClaim" && rest.length === 2
          ? links.claim(...rest)
          : "";
  return href ? html`<a href=${href}>${of}</a>` : html`<span>${of}</span>`;
}

export function Audit({ query }) {
  const response = useApi("api/audit");
  return html`<${Head} title="Audit" />
    <${Loadable} of=${response} what="the audit">${(data) => html`<${Findings} data=${data} query=${query} />`}<//>`;
}

function Findings({ data, query }) {
  const q = query.get("q") || "";
  const only = query.get("severity") || "";
  const search = q.toLowerCase();
  const all = data.findings || [];
  const skipped = data.skipped || [];
  const totals = Object.fromEntries(ORDER.map((key) => [key, all.filter((one) => one.severity === key).length]));
  const shown = all.filter((one) => (!only || one.severity === only) && (!search || `${one.id} ${one.name} ${one.subject} ${one.message}`.toLowerCase().includes(search)));
  return html`<div class="controls">
      <${Search} label="Search" value=${q} placeholder="check, subject or message" />
      <${Choice} label="Severity" name="severity" value=${only} options=${[["", `any (${count(all.length)})`], ...ORDER.map((key) => [key, `${key} (${count(totals[key])})`])]} />
      <p class="found" role="status">${plural(shown.length, "finding")}</p>
    </div>
    ${all.length === 0 && html`<${EmptyState} well=${!skipped.length}>${skipped.length ? "No findings, but some checks were skipped." : "No findings."}<//>`}
    ${all.length > 0 && shown.length === 0 && html`<p class="empty">No findings match the filter.</p>`}
    ${ORDER.map((severity) => {
      const matching = shown.filter((one) => one.severity === severity);
      if (!matching.length) return null;
      const checks = groupBy(matching, (one) => one.id);
      return html`<section key=${severity} aria-labelledby=${`audit-${severity}`}>
        <div class="section-head"><h2 id=${`audit-${severity}`}>${TITLES[severity]} <span class="muted">${count(matching.length)}</span></h2></div>
        ${[...checks].sort((a, b) => byName(a[0], b[0])).map(([id, findings]) => html`<${Check} key=${id} severity=${severity} findings=${findings} title=${(data.titles || {})[id]} />`)}
      </section>`;
    })}
    ${skipped.length > 0 &&
    html`<details class="labels"><summary>${plural(skipped.length, "check")} skipped</summary>
      <ul>${skipped.map((one) => html`<li>${typeof one === "string" ? one : `${one.id} ${one.name}: ${one.why}`}</li>`)}</ul></details>`}`;
}

/** Lines of evidence: the first ones, the others folded; on narrow screens all are folded. */
function Evidence({ of }) {
  const shown = useMedia(NARROW) ? 0 : EVIDENCE;
  const rest = of.slice(shown);
  const lines = (list) => html`<ul class="evidence">${list.map((line) => html`<li>${line}</li>`)}</ul>`;
  return html`${shown > 0 && of.length > 0 && lines(of.slice(0, shown))}
    ${rest.length > 0 && html`<details class="rest"><summary>${shown ? `and ${count(rest.length)} more` : plural(rest.length, "detail")}</summary>${lines(rest)}</details>`}`;
}

/** Findings of one check. Those with the same fix are listed together, and their fix once; an untried one is a hint. */
function Check({ severity, findings, title }) {
  const [all, setAll] = useState(false);
  const [offset, setOffset] = useState(0);
  const few = useMedia(NARROW) ? FEW_NARROW : FEW;
  const page = usePageSize(PAGE);
  const first = findings[0];
  const groups = groupBy(findings, (one) => one.fix);
  const ordered = [...groups.values()].flat();
  const from = all && offset < ordered.length ? offset : 0;
  const shown = groupBy(ordered.slice(from, from + (all ? page : few)), (one) => one.fix);
  return html`<article class=${`card check check-${severity}`} aria-label=${`${first.id} ${first.name}`}>
    <header><${Badge} tone=${TONES[severity]}>${severity}<//> <code>${first.id}</code> <h3>${first.name}</h3> <span class="muted">${count(findings.length)}</span>${title && html`<p class="check-title">${title}</p>`}</header>
    ${[...shown].map(
      ([fix, list]) => html`<ul class="findings" key=${fix}>
          ${list.map((one) => html`<li key=${`${one.subject} ${one.key || ""} ${one.message}`}>
            <p class="finding"><b class="subject"><${Subject} of=${one.subject} /></b> <span>${one.message}</span></p>
            <${Evidence} of=${one.evidence || []} />
          </li>`)}
        </ul>
        ${fix && html`<p class="fix"><b>${list[0].proven ? "Fix" : "Hint"}</b> ${groups.size > 1 && html`<span class="muted">for ${count(groups.get(fix).length)} of ${count(findings.length)}:</span> `}<span>${fix}</span></p>`}`,
    )}
    ${all && html`<${Pager} total=${ordered.length} offset=${from} limit=${page} go=${setOffset} />`}
    ${findings.length > few && html`<p class="more"><button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${count(findings.length)}`}</button></p>`}
  </article>`;
}
