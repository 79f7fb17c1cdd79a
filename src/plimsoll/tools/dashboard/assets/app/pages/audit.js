// Audit findings by severity and check, with evidence and fixes.
import { html, useState } from "../ui.js";
import { useApi } from "../store.js";
import { links } from "../router.js";
import { Badge, Choice, EmptyState, Head, Loadable, Search } from "../components.js";
import { count, plural } from "../format.js";

const ORDER = ["error", "warning", "info"];
const TITLES = { error: "Errors", warning: "Warnings", info: "Info" };
const TONES = { error: "bad", warning: "warn", info: "info" };
const FEW = 5;

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
      const checks = new Map();
      for (const one of matching) checks.set(one.id, [...(checks.get(one.id) || []), one]);
      return html`<section key=${severity} aria-labelledby=${`audit-${severity}`}>
        <div class="section-head"><h2 id=${`audit-${severity}`}>${TITLES[severity]} <span class="muted">${count(matching.length)}</span></h2></div>
        ${[...checks.values()].map((findings) => html`<${Check} key=${findings[0].id} severity=${severity} findings=${findings} />`)}
      </section>`;
    })}
    ${skipped.length > 0 &&
    html`<details class="labels"><summary>${plural(skipped.length, "check")} skipped</summary>
      <ul>${skipped.map((one) => html`<li>${typeof one === "string" ? one : `${one.id} ${one.name}: ${one.why}`}</li>`)}</ul></details>`}`;
}

function Check({ severity, findings }) {
  const [all, setAll] = useState(false);
  const first = findings[0];
  const shown = all ? findings : findings.slice(0, FEW);
  const sameFix = findings.every((one) => one.fix === first.fix) ? first.fix : "";
  return html`<article class=${`card check check-${severity}`} aria-label=${`${first.id} ${first.name}`}>
    <header><${Badge} tone=${TONES[severity]}>${severity}<//> <code>${first.id}</code> <h3>${first.name}</h3> <span class="muted">${count(findings.length)}</span></header>
    <ul class="findings">
      ${shown.map(
        (one) => html`<li key=${`${one.subject} ${one.key || ""} ${one.message}`}>
          <p class="finding"><b class="subject"><${Subject} of=${one.subject} /></b> <span>${one.message}</span></p>
          ${(one.evidence || []).length > 0 && html`<ul class="evidence">${one.evidence.map((line) => html`<li>${line}</li>`)}</ul>`}
          ${!sameFix && one.fix && html`<p class="fix"><b>Fix</b> <span>${one.fix}</span></p>`}
        </li>`,
      )}
    </ul>
    ${findings.length > FEW && html`<button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${count(findings.length)}`}</button>`}
    ${sameFix && html`<p class="fix"><b>Fix</b> <span>${sameFix}</span></p>`}
  </article>`;
}
