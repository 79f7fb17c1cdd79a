// Pending pods with a one-line reason each, and the page that explains one pod or claim.
import { html, useState } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery } from "../router.js";
import { EmptyState, Head, Loadable, Search } from "../components.js";
import { Pager, usePageSize } from "../table.js";
import { Explanation } from "../explanation.js";
import { age, plural } from "../format.js";
import { Icon } from "../icons.js";

const ROWS = 25;

export function Pending({ query }) {
  const limit = usePageSize(ROWS);
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const response = useApi(`api/pods?${new URLSearchParams({ state: "pending", q, offset, limit })}`);
  // Fixes take longer than reasons: they are added when they arrive.
  const fixed = useApi(response.data && response.data.items.length ? `api/pods?${new URLSearchParams({ state: "pending", fixes: "true", q, offset, limit })}` : "");
  const fixes = new Map(((fixed.data && fixed.data.items) || []).map((pod) => [`${pod.namespace}/${pod.name}`, pod.fix]));
  return html`<${Head} title="Pending pods" />
    <div class="controls">
      <${Search} label="Search pods" value=${q} placeholder="name or namespace" />
      <p class="found" role="status">${response.data ? `${plural(response.data.total, "pod")} pending` : ""}</p>
    </div>
    <${Loadable} of=${response} what="pending pods">
      ${(data) =>
        data.items.length === 0
          ? html`<${EmptyState} well=${!q}>${q ? "No pending pods match the filter." : "No pods are pending."}<//>`
          : html`<ul class="pending-list" aria-label="Pending pods" onKeyDown=${listKeys}>
                ${data.items.map((pod) => html`<${PendingPod} key=${`${pod.namespace}/${pod.name}`} pod=${pod} fix=${fixes.get(`${pod.namespace}/${pod.name}`)} looking=${!fixed.data && !fixed.error} />`)}
              </ul>
              <${Pager} total=${data.total} offset=${offset} limit=${limit} go=${(next) => replaceQuery({ offset: next || "" })} />`}
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

function PendingPod({ pod, fix, looking }) {
  const [open, setOpen] = useState(false);
  return html`<li class="pending-pod card">
    <details onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span class="pod-name"><span class="ns">${pod.namespace}/</span>${pod.name}</span>
        <span class="pod-age"><span title=${pod.created || ""}>${age(pod.created)}</span>${pod.priority !== 0 && html`, <span title=${pod.priorityClass || ""}>priority ${pod.priority}</span>`}</span>
        <span class="why">${pod.why}</span>
        <span class="nearest">${fix ? html`<b>${fix.proven ? "Fix" : "Hint"}</b> ${fix.text}${fix.proven && html` <span class="proven"><${Icon} name="ok" /> simulated</span>`}` : looking ? html`<span class="muted">looking for a fix ...</span>` : ""}</span>
      </summary>
      ${open && html`<${Explained} kind="pod" namespace=${pod.namespace} name=${pod.name} inside=${true} />`}
    </details>
  </li>`;
}

function Explained({ kind, namespace, name, inside = false }) {
  const response = useApi(`api/explain/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  return html`<${Loadable} of=${response} what="the explanation">${(data) => html`<${Explanation} of=${data} kind=${kind} inside=${inside} />`}<//>
    ${inside && html`<p class="small"><a href=${`#/explain/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`}>Open on its own page</a></p>`}`;
}

/** Page of one pod or claim. */
export function Explain({ kind, namespace, name }) {
  const what = kind === "claim" ? "Claim" : "Pod";
  return html`<p class="crumbs">${kind === "claim" ? html`<a href="#/claims">Claims</a>` : html`<a href="#/pending">Pending pods</a>`}</p>
    <${Head} title=${html`<span class="kind">${what}</span> <span class="ns">${namespace}/</span>${name}`} tab=${`${what} ${namespace}/${name}`} />
    <${Explained} key=${`${kind} ${namespace}/${name}`} kind=${kind} namespace=${namespace} name=${name} />`;
}
