// Page of one node: ledger, holders, CPU map, devices, pods and claims.
import { html, useState } from "../ui.js";
import { useApi } from "../store.js";
import { links } from "../router.js";
import { Badge, ClaimLink, Head, InlineList, Loadable, PodLink } from "../components.js";
import { LedgerCard, Legend, isPresent } from "../bars.js";
import { NotCounted } from "../summary.js";
import { Table } from "../table.js";
import { Topology } from "../topology.js";
import { DeviceTable } from "../devices.js";
import { amount, count, plural } from "../format.js";

export function Node({ name }) {
  const response = useApi(`api/nodes/${encodeURIComponent(name)}`, { node: name });
  return html`<p class="crumbs"><a href="#/">Nodes</a></p>
    <${Head} title=${name} tab=${`Node ${name}`}>${response.data && html`<${StatusBadges} data=${response.data} /><a class="aside" href=${links.whatif({ drain: [name] })}>What if this node were drained?</a>`}<//>
    <${Loadable} of=${response} what=${`node ${name}`}>${(data) => html`<${NodeDetails} data=${data} />`}<//>`;
}

/** Return the conditions that indicate a problem: Ready must be True, all others False. */
function badConditions(data) {
  return (data.conditions || []).filter((one) => one.status !== (one.type === "Ready" ? "True" : "False"));
}

/** Badges of a node that is SchedulingDisabled, NotReady, or has bad conditions. */
function StatusBadges({ data }) {
  return html`${data.unschedulable && html`<${Badge} tone="warn">SchedulingDisabled<//>`}
    ${badConditions(data).map((one) => html`<${Badge} tone="bad">${one.type === "Ready" ? "NotReady" : one.type}<//>`)}`;
}

/** Format the number of devices by state: "2 taken, 35 free". */
function formatStates(devices) {
  const counts = new Map();
  for (const one of devices) counts.set(one.state, (counts.get(one.state) || 0) + 1);
  return [...counts].map(([state, number]) => `${count(number)} ${state}`).join(", ");
}

const FEW_DEVICES = 12;

/** Devices, those in use first; long lists are collapsed. */
function Devices({ rows }) {
  const [all, setAll] = useState(false);
  const ordered = [...rows].sort((a, b) => (a.state === "free") - (b.state === "free"));
  return html`<${DeviceTable} label="Devices of this node" rows=${all ? ordered : ordered.slice(0, FEW_DEVICES)} node=${false} empty="No devices found: no ResourceSlice of this node publishes any." />
    ${rows.length > FEW_DEVICES && html`<p class="more"><button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${count(rows.length)} devices`}</button></p>`}`;
}

function NodeDetails({ data }) {
  const [resource, setResource] = useState("");
  const holders = (data.holders || []).filter((row) => !resource || row.resource === resource);
  const resources = [...new Set((data.holders || []).map((row) => row.resource))];
  return html`${(data.taints || []).length > 0 &&
    html`<p class="taints">Taints: ${data.taints.map((taint) => html`<code>${typeof taint === "string" ? taint : `${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}`}</code> `)}</p>`}
    <${NotCounted} of=${data.notCounted} />
    <section aria-labelledby="node-ledger">
      <div class="section-head"><h2 id="node-ledger">Ledger</h2><${Legend} /></div>
      <div class="cards">${(data.rows || []).filter(isPresent).map((row) => html`<${LedgerCard} key=${row.resource} resource=${row.resource} row=${row} />`)}</div>
    </section>
    <section aria-labelledby="node-holders">
      <div class="section-head">
        <h2 id="node-holders">Holders</h2>
        ${resources.length > 1 &&
        html`<label class="field inline"><span>Resource</span>
          <select value=${resource} onChange=${(e) => setResource(e.currentTarget.value)}>
            <option value="">all</option>${resources.map((one) => html`<option value=${one}>${one}</option>`)}
          </select></label>`}
      </div>
      <${Table}
        label="Holders"
        empty="Nothing is charged to this node."
        rows=${holders}
        keyOf=${(row) => `${row.resource} ${row.namespace}/${row.pod}/${row.claim}/${row.rule}`}
        columns=${[
          { title: "Pod", value: (r) => `${r.namespace}/${r.pod || ""}`, cell: (r) => (r.pod ? html`<${PodLink} namespace=${r.namespace} name=${r.pod} />` : html`<span class="muted">no pod</span>`) },
          { title: "Resource", value: (r) => r.resource, cell: (r) => r.resource },
          { title: "Amount", num: true, value: (r) => r.amount, cell: (r) => html`<span title=${r.text}>${amount(r.resource, r.amount)}</span>` },
          { title: "By", value: (r) => r.rule, cell: (r) => html`<span class=${`by by-${r.claim ? "claim" : r.rule === "overhead" ? "overhead" : "request"}`}>${r.rule}</span>` },
          { title: "Claim", value: (r) => r.claim || "", cell: (r) => (r.claim ? html`<${ClaimLink} namespace=${r.namespace} name=${r.claim} />` : html`<span class="muted">-</span>`) },
          { title: "Devices", cell: (r) => html`<${InlineList} items=${r.devices} most=${3} />` },
        ]}
      />
    </section>
    ${data.topology &&
    html`<section aria-labelledby="node-cpus">
      <div class="section-head"><h2 id="node-cpus">CPU map</h2></div>
      <${Topology} of=${data.topology} />
    </section>`}
    <section aria-labelledby="node-devices">
      <div class="section-head"><h2 id="node-devices">Devices</h2><span class="muted">${formatStates(data.devices || [])}</span></div>
      <${Devices} rows=${data.devices || []} />
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
            { title: "Status", value: (r) => r.status, cell: (r) => r.status },
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
            { title: "Devices", cls: "name-cell", cell: (r) => html`<${InlineList} items=${r.devices} most=${3} />${r.cpus && html` <span class="muted">CPUs ${r.cpus}</span>`}` },
            { title: "Pods", cls: "name-cell", cell: (r) => html`<${InlineList} items=${r.pods} draw=${(pod) => html`<${PodLink} namespace=${r.namespace} name=${pod} />`} />` },
          ]}
        />
      </section>
    </div>
    <details class="labels">
      <summary>${plural(Object.keys(data.labels || {}).length, "label")}</summary>
      <ul>${Object.entries(data.labels || {}).map(([key, value]) => html`<li><code>${key}=${value}</code></li>`)}</ul>
    </details>`;
}
