// Page of one node: facts, devices, ledger, pods with all they hold, and the CPU map.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { links, to } from "../router.js";
import { Badge, ClaimLink, Head, InlineList, Loadable } from "../components.js";
import { LedgerCard, Legend, isPresent } from "../bars.js";
import { NotCounted } from "../summary.js";
import { Table } from "../table.js";
import { Topology } from "../topology.js";
import { PhysicalTable, formatStates } from "../physical.js";
import { PodTable } from "../pods.js";
import { age, count, plural } from "../format.js";

export function Node({ name }) {
  const response = useApi(`api/nodes/${encodeURIComponent(name)}`, { node: name });
  return html`<p class="crumbs"><a href="#/">Nodes</a></p>
    <${Head} title=${name} tab=${`Node ${name}`}>${response.data && html`<${StatusBadges} data=${response.data} /><a class="aside" href=${links.whatif({ drain: [name] })}>What if this node were drained?</a><a href=${to(["history"], { node: name })}>History</a>`}<//>
    <${Loadable} of=${response} what=${`node ${name}`}>${(data) => html`<${Facts} data=${data} /><${NodeDetails} data=${data} />`}<//>`;
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

/** Software, age and location of a node. */
function Facts({ data }) {
  const info = data.nodeInfo || {};
  const facts = [
    ["kubelet", info.kubeletVersion],
    ["age", data.created && age(data.created), data.created],
    ["zone", data.zone],
    ["type", data.instanceType],
    ["runtime", info.containerRuntimeVersion],
    ["OS", info.osImage],
    ["pods", `${count(data.podCount || 0)}${data.podLine ? ` of ${count(data.podLine)}` : ""}`],
  ].filter(([, value]) => value);
  return html`<dl class="facts node-facts">${facts.map(([name, value, title]) => html`<div><dt>${name}</dt><dd title=${title}>${value}</dd></div>`)}</dl>`;
}

const PAGE = 20;
const FEW_DEVICES = 12;

/** Return whether devices come first: pools of the node have partitionable ones or ones with a capacity of their own. */
function isAccelerated(data) {
  if (data.topology) return false;
  return (data.physical || []).some((one) => one.node && (one.counters.length > 0 || (!one.parts[0].shareable && Object.keys(one.parts[0].capacity || {}).length > 0)));
}

/** Format the states of all devices, physical ones counted once. */
function deviceStates(physical) {
  const states = {};
  for (const one of physical) states[one.state] = (states[one.state] || 0) + 1;
  return formatStates(states);
}

function NodeDetails({ data }) {
  const physical = data.physical || [];
  const pods = data.pods || [];
  const unused = (data.claims || []).filter((one) => !one.pods.length);
  const first = isAccelerated(data);
  const devices = html`<section aria-labelledby="node-devices">
      <div class="section-head"><h2 id="node-devices">Devices</h2><span class="muted">${deviceStates(physical)}</span></div>
      <${PhysicalTable} label="Devices of this node" rows=${physical} node=${false} limit=${FEW_DEVICES} empty="No devices found: no ResourceSlice of this node publishes any." />
    </section>`;
  return html`${(data.taints || []).length > 0 &&
    html`<p class="taints">Taints: ${data.taints.map((taint) => html`<code>${typeof taint === "string" ? taint : `${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}`}</code> `)}</p>`}
    <${NotCounted} of=${data.notCounted} />
    ${first && devices}
    <section aria-labelledby="node-ledger">
      <div class="section-head"><h2 id="node-ledger">Ledger</h2><${Legend} uncounted=${(data.rows || []).some((row) => row.uncounted > 0)} /></div>
      <div class="cards">${(data.rows || []).filter(isPresent).map((row) => html`<${LedgerCard} key=${row.resource} resource=${row.resource} row=${row} />`)}</div>
    </section>
    <section aria-labelledby="node-pods">
      <div class="section-head"><h2 id="node-pods">${plural(pods.filter((one) => one.name && !one.standsFor).length, "pod")}</h2></div>
      <${PodTable} label="Pods of this node" rows=${pods} limit=${PAGE} empty="Nothing is charged to this node." />
    </section>
    ${data.topology &&
    html`<section aria-labelledby="node-cpus">
      <div class="section-head"><h2 id="node-cpus">CPU map</h2></div>
      <${Topology} of=${data.topology} />
    </section>`}
    ${!first && devices}
    ${unused.length > 0 &&
    html`<section aria-labelledby="node-claims">
      <div class="section-head"><h2 id="node-claims">Claims without a pod here</h2></div>
      <${Table}
        label="Claims without a pod here"
        rows=${unused}
        limit=${PAGE}
        keyOf=${(row) => `${row.namespace}/${row.name}`}
        columns=${[
          { title: "Claim", value: (r) => `${r.namespace}/${r.name}`, cell: (r) => html`<${ClaimLink} namespace=${r.namespace} name=${r.name} />` },
          { title: "Devices", cls: "name-cell", cell: (r) => html`<${InlineList} items=${r.devices} most=${3} />${r.cpus && html` <span class="muted">CPUs ${r.cpus}</span>`}` },
        ]}
      />
    </section>`}
    <details class="labels">
      <summary>${plural(Object.keys(data.labels || {}).length, "label")}</summary>
      <ul>${Object.entries(data.labels || {}).map(([key, value]) => html`<li><code>${key}=${value}</code></li>`)}</ul>
    </details>`;
}
