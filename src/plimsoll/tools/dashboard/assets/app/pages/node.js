// Owns: the page of one node: its ledger, who holds what, the CPU map, devices, pods and claims.
import { html, useState } from "../ui.js";
import { useApi } from "../store.js";
import { Answer, Badge, ClaimLink, Head, PodLink, Several } from "../pieces.js";
import { LedgerCard, Legend } from "../bars.js";
import { Table } from "../table.js";
import { Topology } from "../topology.js";
import { DeviceTable } from "../devices.js";
import { plural } from "../format.js";

export function Node({ name }) {
  const answer = useApi(`api/nodes/${encodeURIComponent(name)}`, { node: name });
  return html`<p class="crumbs"><a href="#/">Nodes</a></p>
    <${Head} title=${name} tab=${`Node ${name}`}>${answer.data && html`<${Signs} data=${answer.data} />`}<//>
    <${Answer} of=${answer} what=${`Node ${name}`}>${(data) => html`<${Loaded} data=${data} />`}<//>`;
}

function conditionsOf(data) {
  const bad = [];
  for (const one of data.conditions || []) {
    const good = one.type === "Ready" ? "True" : "False";
    if (one.status !== good) bad.push(one);
  }
  return bad;
}

/** What is out of order with the node itself. */
function Signs({ data }) {
  return html`${data.unschedulable && html`<${Badge} tone="warn">cordoned<//>`}
    ${conditionsOf(data).map((one) => html`<${Badge} tone="bad">${one.type === "Ready" ? "not ready" : one.type}<//>`)}`;
}

function Loaded({ data }) {
  const [resource, setResource] = useState("");
  const holders = (data.holders || []).filter((row) => !resource || row.resource === resource);
  const resources = [...new Set((data.holders || []).map((row) => row.resource))];
  return html`${(data.taints || []).length > 0 &&
    html`<p class="taints">Taints: ${data.taints.map((taint) => html`<code>${typeof taint === "string" ? taint : `${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}`}</code> `)}</p>`}
    <section aria-labelledby="node-ledger">
      <div class="section-head"><h2 id="node-ledger">Ledger</h2><${Legend} /></div>
      <div class="cards">${(data.rows || []).map((row) => html`<${LedgerCard} key=${row.resource} resource=${row.resource} row=${row} />`)}</div>
    </section>
    <section aria-labelledby="node-holders">
      <div class="section-head">
        <h2 id="node-holders">Who holds what</h2>
        ${resources.length > 1 &&
        html`<label class="field inline"><span>Resource</span>
          <select value=${resource} onChange=${(e) => setResource(e.currentTarget.value)}>
            <option value="">all</option>${resources.map((one) => html`<option value=${one}>${one}</option>`)}
          </select></label>`}
      </div>
      <${Table}
        label="Who holds what"
        empty="Nothing is held."
        rows=${holders}
        keyOf=${(row) => `${row.resource} ${row.namespace}/${row.pod}/${row.claim}/${row.rule}`}
        columns=${[
          { title: "Pod", value: (r) => `${r.namespace}/${r.pod || ""}`, cell: (r) => (r.pod ? html`<${PodLink} namespace=${r.namespace} name=${r.pod} />` : html`<span class="muted">no pod</span>`) },
          { title: "Resource", value: (r) => r.resource, cell: (r) => r.resource },
          { title: "Amount", num: true, value: (r) => r.amount, cell: (r) => r.text },
          { title: "By", value: (r) => r.rule, cell: (r) => html`<span class=${`by by-${r.claim ? "claim" : r.rule === "overhead" ? "overhead" : "request"}`}>${r.rule}</span>` },
          { title: "Claim", value: (r) => r.claim || "", cell: (r) => (r.claim ? html`<${ClaimLink} namespace=${r.namespace} name=${r.claim} />` : html`<span class="muted">-</span>`) },
          { title: "Devices", cell: (r) => html`<${Several} items=${r.devices} most=${3} />` },
        ]}
      />
    </section>
    ${data.topology &&
    html`<section aria-labelledby="node-cpus">
      <div class="section-head"><h2 id="node-cpus">CPU map</h2></div>
      <${Topology} of=${data.topology} />
    </section>`}
    <section aria-labelledby="node-devices">
      <div class="section-head"><h2 id="node-devices">Devices</h2></div>
      <${DeviceTable} label="Devices of this node" rows=${data.devices || []} node=${false} empty="No driver has published devices here." />
    </section>
    <div class="halves">
      <section aria-labelledby="node-pods">
        <div class="section-head"><h2 id="node-pods">${plural((data.pods || []).length, "pod")}</h2></div>
        <${Table}
          label="Pods"
          empty="No pods."
          rows=${data.pods || []}
          keyOf=${(row) => `${row.namespace}/${row.name}`}
          columns=${[
            { title: "Pod", value: (r) => `${r.namespace}/${r.name}`, cell: (r) => html`<${PodLink} namespace=${r.namespace} name=${r.name} />` },
            { title: "Phase", value: (r) => r.phase, cell: (r) => r.phase },
          ]}
        />
      </section>
      <section aria-labelledby="node-claims">
        <div class="section-head"><h2 id="node-claims">${plural((data.claims || []).length, "claim")}</h2></div>
        <${Table}
          label="Claims"
          empty="No claims."
          rows=${data.claims || []}
          keyOf=${(row) => `${row.namespace}/${row.name}`}
          columns=${[
            { title: "Claim", value: (r) => `${r.namespace}/${r.name}`, cell: (r) => html`<${ClaimLink} namespace=${r.namespace} name=${r.name} />` },
            { title: "Devices", cell: (r) => html`<${Several} items=${r.devices} most=${3} />${r.cpus && html` <span class="muted">CPUs ${r.cpus}</span>`}` },
            { title: "Pods", cell: (r) => html`<${Several} items=${r.pods} draw=${(pod) => html`<${PodLink} namespace=${r.namespace} name=${pod} />`} />` },
          ]}
        />
      </section>
    </div>
    <details class="labels">
      <summary>${plural(Object.keys(data.labels || {}).length, "label")}</summary>
      <ul>${Object.entries(data.labels || {}).map(([key, value]) => html`<li><code>${key}=${value}</code></li>`)}</ul>
    </details>`;
}
