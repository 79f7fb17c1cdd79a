// Requests, claims and devices of each namespace, as the ledger charges them; comparable with a ResourceQuota.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery, to } from "../router.js";
import { Head, Loadable, None, Search } from "../components.js";
import { Pager, Table, usePageSize } from "../table.js";
import { count, plural, shorten } from "../format.js";

const ROWS = 50;

export function Namespaces({ query }) {
  const limit = usePageSize(ROWS);
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const response = useApi(`api/namespaces?${new URLSearchParams({ q, offset, limit })}`, { kinds: ["Pod", "ResourceClaim", "ResourceSlice"] });
  return html`<${Head} title="Namespaces" />
    <div class="controls">
      <${Search} label="Search namespaces" value=${q} placeholder="name" />
      <p class="found" role="status">${response.data ? plural(response.data.total, "namespace") : ""}</p>
    </div>
    <${Loadable} of=${response} what="namespaces">
      ${(data) => html`<${Table}
          label="Namespaces"
          empty=${q ? "No namespaces match the filter." : "No pods or claims found."}
          rows=${data.items}
          keyOf=${nameOf}
          columns=${[
            { title: "Namespace", value: nameOf, cell: (r) => html`<a href=${to(["claims"], { q: `${nameOf(r)}/` })}>${nameOf(r)}</a>` },
            { title: "Scheduled pods", short: "Scheduled", num: true, value: (r) => r.pods, cell: (r) => count(r.pods) },
            { title: "Pending pods", short: "Pending", num: true, value: (r) => r.pending, cell: (r) => (r.pending ? html`<a href=${to(["pending"], { q: `${nameOf(r)}/` })}>${count(r.pending)}</a>` : "0") },
            { title: "Claims", num: true, cls: "whole-row", value: (r) => r.claims, cell: (r) => html`${count(r.claims)}${r.claims !== r.allocatedClaims && html`<span class="under">${count(r.allocatedClaims)} allocated</span>`}` },
            { title: "Requests + claims + overhead = charged (share)", short: "Charged", cls: "wide-cell", cell: (r) => html`<${Sums} of=${r.resources || []} />` },
            { title: "Devices by class", short: "Devices", value: (r) => Object.values(r.devices || {}).reduce((a, b) => a + b, 0), cell: (r) => html`<${Classes} of=${r} />` },
          ]}
        />
        <${Pager} total=${data.total} offset=${offset} limit=${limit} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}

function nameOf(row) {
  return row.namespace || "";
}

/** Total of each resource, its parts, and its share of what all nodes have. */
function Sums({ of }) {
  const present = of.filter((one) => one.total !== "0");
  if (!present.length) return html`<span class="muted">nothing</span>`;
  return html`<dl class="sums-list">${present.map((one) => html`<div><dt>${one.resource}</dt><dd title=${`${one.requests} + ${one.claims} + ${one.overhead} = ${one.total}`}>${["requests", "claims", "overhead"].map((key) => shorten(one.resource, one[key])).join(" + ")} = <b>${shorten(one.resource, one.total)}</b> <span class="muted">(${one.share})</span></dd></div>`)}</dl>`;
}

function Classes({ of }) {
  const classes = Object.entries(of.devices || {});
  if (!classes.length) return html`<${None} />`;
  return html`${classes.map(([name, number]) => html`<span class="block">${name} <b>${count(number)}</b>${(of.shares || {})[name] > 0 && html` <span class="muted">in ${plural(of.shares[name], "share")}</span>`}</span>`)}`;
}
