// Owns: what each namespace asks for and holds: the ledger's totals, so that a quota can be compared with them.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { to } from "../router.js";
import { Answer, Head, Search } from "../pieces.js";
import { Table } from "../table.js";
import { count, plural } from "../format.js";

export function Namespaces({ query }) {
  const q = (query.get("q") || "").toLowerCase();
  const answer = useApi("api/namespaces", { kinds: ["Pod", "ResourceClaim", "ResourceSlice"] });
  return html`<${Head} title="Namespaces" />
    <div class="controls"><${Search} label="Find a namespace" value=${query.get("q") || ""} /></div>
    <${Answer} of=${answer} what="The list of namespaces">
      ${(data) => {
        const all = data.items;
        const rows = all.filter((row) => !q || nameOf(row).toLowerCase().includes(q));
        const shown = rows.slice(0, 500);
        return html`<${Table}
            label="Namespaces"
            empty="No namespace is like that."
            rows=${shown}
            keyOf=${nameOf}
            columns=${[
              { title: "Namespace", value: nameOf, cell: (r) => html`<a href=${to(["claims"], { q: nameOf(r) })}>${nameOf(r)}</a>` },
              { title: "Pods", num: true, value: (r) => r.pods, cell: (r) => count(r.pods) },
              { title: "Pending", num: true, value: (r) => r.pending, cell: (r) => (r.pending ? html`<a href=${to(["pending"], { q: `${nameOf(r)}/` })}>${count(r.pending)}</a>` : "0") },
              { title: "Claims", num: true, value: (r) => r.claims, cell: (r) => html`${count(r.claims)}${r.claims !== r.allocatedClaims && html`<span class="under">${count(r.allocatedClaims)} allocated</span>`}` },
              { title: "Requests + claims + overhead = charged", cls: "wide-cell", cell: (r) => html`<${Sums} of=${r.resources || []} />` },
              { title: "Devices by class", cell: (r) => html`<${Classes} of=${r} />` },
            ]}
          />
          ${rows.length > shown.length && html`<p class="muted">The first ${count(shown.length)} of ${count(rows.length)}; search for the others.</p>`}`;
      }}
    <//>`;
}

function nameOf(row) {
  return row.namespace || "";
}

/** Resource by resource: how a total came about. */
function Sums({ of }) {
  const told = of.filter((one) => one.total !== "0");
  if (!told.length) return html`<span class="muted">nothing</span>`;
  return html`<dl class="sums-list">${told.map((one) => html`<div><dt>${one.resource}</dt><dd>${one.requests} + ${one.claims} + ${one.overhead} = <b>${one.total}</b></dd></div>`)}</dl>`;
}

function Classes({ of }) {
  const classes = Object.entries(of.devices || {});
  if (!classes.length) return html`<span class="muted">-</span>`;
  return html`${classes.map(([name, number]) => html`<span class="block">${name} <b>${count(number)}</b>${(of.shares || {})[name] > 0 && html` <span class="muted">in ${plural(of.shares[name], "share")}</span>`}</span>`)}`;
}
