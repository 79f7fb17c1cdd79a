// Owns: what each namespace asks for and holds: the ledger's totals, so that a quota can be compared with them.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { to } from "../router.js";
import { Answer, Head, Search, Several } from "../pieces.js";
import { Table } from "../table.js";
import { count } from "../format.js";
import { charges } from "./claims.js";

export function Namespaces({ query }) {
  const q = (query.get("q") || "").toLowerCase();
  const answer = useApi("api/namespaces", { kinds: ["Pod", "ResourceClaim"] });
  return html`<${Head} title="Namespaces" />
    <div class="controls"><${Search} label="Find a namespace" value=${query.get("q") || ""} /></div>
    <${Answer} of=${answer} what="The list of namespaces">
      ${(data) => {
        const all = data.items || data.namespaces || [];
        const rows = all.filter((row) => !q || nameOf(row).toLowerCase().includes(q));
        const shown = rows.slice(0, 500);
        return html`<${Table}
            label="Namespaces"
            empty="No namespace is like that."
            rows=${shown}
            keyOf=${nameOf}
            columns=${[
              { title: "Namespace", value: nameOf, cell: (r) => html`<a href=${to(["claims"], { q: `${nameOf(r)}/` })}>${nameOf(r)}</a>` },
              { title: "Pods", num: true, value: (r) => sum(r.pods), cell: (r) => count(sum(r.pods)) },
              { title: "By requests", cell: (r) => html`<${Several} items=${charges(r.requests)} />` },
              { title: "By claims", cell: (r) => html`<${Several} items=${charges(r.claims)} />` },
              { title: "Devices by class", cell: (r) => html`<${Several} items=${charges(r.devices)} />` },
            ]}
          />
          ${rows.length > shown.length && html`<p class="muted">The first ${count(shown.length)} of ${count(rows.length)}; search for the others.</p>`}`;
      }}
    <//>`;
}

function nameOf(row) {
  return row.namespace || row.name || "";
}

function sum(value) {
  return Array.isArray(value) ? value.length : typeof value === "number" ? value : 0;
}
