// Owns: pending pods with one line of why each, and the page that explains one pod or claim as a tree.
import { html, useState } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery } from "../router.js";
import { Answer, Badge, Head, NodeLink, Search } from "../pieces.js";
import { Pager } from "../table.js";
import { Branch, Group } from "../tree.js";
import { Icon } from "../marks.js";
import { count } from "../format.js";

const LIMIT = 50;

export function Pending({ query }) {
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const answer = useApi(`api/pods?${new URLSearchParams({ state: "pending", q, offset, limit: LIMIT })}`);
  return html`<${Head} title="Pending pods" />
    <div class="controls">
      <${Search} label="Find a pod" value=${q} placeholder="name or namespace" />
      <p class="found" role="status">${answer.data ? `${count(answer.data.total)} pending` : ""}</p>
    </div>
    <${Answer} of=${answer} what="The list of pending pods">
      ${(data) =>
        data.items.length === 0
          ? html`<p class="empty">${q ? "No pending pod is like that." : "Nothing is pending."}</p>`
          : html`<ul class="pending-list" aria-label="Pending pods" onKeyDown=${listKeys}>
                ${data.items.map((pod) => html`<${PendingPod} key=${`${pod.namespace}/${pod.name}`} pod=${pod} />`)}
              </ul>
              <${Pager} total=${data.total} offset=${offset} limit=${LIMIT} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}

function listKeys(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const own = event.target.closest(".pending-pod");
  if (!step || !own || !event.target.matches(".pending-pod > details > summary")) return;
  const all = [...event.currentTarget.querySelectorAll(".pending-pod > details > summary")];
  const next = all[all.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function PendingPod({ pod }) {
  const [open, setOpen] = useState(false);
  return html`<li class="pending-pod card">
    <details onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary><span class="pod-name"><span class="ns">${pod.namespace}/</span>${pod.name}</span><span class="why">${pod.why}</span></summary>
      ${open && html`<${Explained} kind="pod" namespace=${pod.namespace} name=${pod.name} inside=${true} />`}
    </details>
  </li>`;
}

function Explained({ kind, namespace, name, inside = false }) {
  const answer = useApi(`api/explain/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  return html`<${Answer} of=${answer} what="The reason">${(data) => html`<${Explanation} of=${data} inside=${inside} />`}<//>
    ${inside && html`<p class="small"><a href=${`#/explain/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`}>This explanation on a page of its own</a></p>`}`;
}

const GOOD = new Set(["placed", "allocated", "fits"]);
const FEW_GROUPS = 12;
/** Groups with something to learn; a cordoned node explains itself. */
const TELLING = new Set(["NodeResourcesFit", "DynamicResources"]);

/** An explanation: the verdict, the nearest fix, then the trees. */
export function Explanation({ of, inside }) {
  const groups = of.groups || [];
  const [all, setAll] = useState(false);
  const shown = all ? groups : groups.slice(0, FEW_GROUPS);
  const opened = Math.max(0, groups.findIndex((group) => TELLING.has(group.rule)));
  const fixes = (of.fixes || []).map((fix) => (typeof fix === "string" ? fix : fix.text)).filter(Boolean);
  if (!fixes.length && of.fix) fixes.push(of.fix);
  return html`<div class="explanation">
    ${!inside && html`<p class="verdict"><${Badge} tone=${GOOD.has(of.verdict) ? "good" : "warn"}>${of.verdict}<//> <span>${of.summary}</span>${of.node && html` <span class="on-node">Node <${NodeLink} name=${of.node} /></span>`}</p>`}
    ${fixes.length > 0 &&
    html`<div class="fix"><p><b>Nearest fix</b> <span>${fixes[0]}</span></p>${fixes.slice(1).map((fix) => html`<p><b>or</b> <span>${fix}</span></p>`)}</div>`}
    ${(of.notes || []).map((note) => html`<p class="notice is-warning"><${Icon} name="warn" /><span>${note}</span></p>`)}
    ${of.preemption && html`<p class="preemption"><b>Preemption</b> ${of.preemption}</p>`}
    ${groups.length > 0 &&
    html`<div class="groups" role="group" aria-label="Why, by node">
      ${!inside && html`<h2>Why, by node</h2>`}
      ${shown.map((group, i) => html`<${Group} key=${`${group.rule} ${group.reason}`} of=${group} open=${i === opened} />`)}
      ${groups.length > FEW_GROUPS && html`<button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${count(groups.length)} groups`}</button>`}
    </div>`}
    ${(of.sections || []).map(
      (section) => html`<details class="group" key=${section.title} open=${!groups.length}>
        <summary><span class="reason group-count">${section.title}</span></summary>
        <div class="group-body"><ul class="tree">${section.children.map((one, i) => html`<${Branch} key=${`${one.rule}${i}`} of=${one} open=${true} />`)}</ul></div>
      </details>`,
    )}
  </div>`;
}

/** The page of one pod or claim. */
export function Explain({ kind, namespace, name }) {
  const what = kind === "claim" ? "Claim" : "Pod";
  return html`<p class="crumbs">${kind === "claim" ? html`<a href="#/claims">Claims</a>` : html`<a href="#/pending">Pending pods</a>`}</p>
    <${Head} title=${html`<span class="kind">${what}</span> <span class="ns">${namespace}/</span>${name}`} tab=${`${what} ${namespace}/${name}`} />
    <${Explained} key=${`${kind} ${namespace}/${name}`} kind=${kind} namespace=${namespace} name=${name} />`;
}
