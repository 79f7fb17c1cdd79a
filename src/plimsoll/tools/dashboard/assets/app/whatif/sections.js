// Sections of a what-if result: evicted pods, changed nodes, capacity for more pods, and fragmentation.
import { NARROW, html, cx, useMedia } from "../ui.js";
import { Badge, NodeLink, None, Ref } from "../components.js";
import { Table } from "../table.js";
import { count, plural, shorten } from "../format.js";

/** Rows of a page of a table. */
const ROWS = 15;

/** Section of the result; on narrow screens its content is folded. */
function Folded({ title, number, children }) {
  const narrow = useMedia(NARROW);
  const text = html`<h2>${title}</h2>${number != null && html`<span class="muted">${count(number)}</span>`}`;
  if (!narrow) return html`<div class="section-head">${text}</div>${children}`;
  return html`<details class="folded"><summary class="section-head">${text}</summary>${children}</details>`;
}

/** Pods that would be evicted; `then` maps a pod to the node that it is scheduled to afterwards, null if pending. */
export function EvictedPods({ of, then }) {
  if (!of || !of.length) return null;
  const recreated = (one) => (!one.comesBack ? "no" : one.hasController === false ? "counted as pending; without a controller it must be recreated manually" : "yes, by its controller");
  return html`<${Folded} title="Pods that would be evicted" number=${of.length}><${Table}
      label="Pods that would be evicted"
      rows=${of}
      limit=${ROWS}
      keyOf=${(r) => r.pod}
      columns=${[
        { title: "Pod", value: (r) => r.pod, cell: (r) => html`<${Ref} kind="pod" of=${r.pod} />` },
        { title: "From", value: (r) => r.node, cell: (r) => html`<${NodeLink} name=${r.node} />` },
        { title: "Reason", value: (r) => r.because, cell: (r) => `${r.because}${r.by && r.by !== r.node ? ` (${r.by})` : ""}${r.afterSeconds ? `, after ${count(r.afterSeconds)} s` : ""}` },
        { title: "Recreated", value: recreated, cell: recreated },
        { title: "Then", value: (r) => (then.has(r.pod) ? then.get(r.pod) || "pending" : ""), cell: (r) => (!r.comesBack || !then.has(r.pod) ? html`<${None} />` : then.get(r.pod) || html`<span class="warn-text">pending</span>`) },
      ]}
    /><//>`;
}

/** Nodes whose free resources change. */
export function ChangedNodes({ of }) {
  if (!of || !of.length) return null;
  const differences = (row) => {
    const before = row.freeBefore || {};
    const after = row.freeAfter || {};
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => before[name] !== after[name]);
  };
  const amount = (free, name) => (free ? shorten(name, free[name] ?? "0") : "-");
  return html`<${Folded} title="Changed nodes" number=${of.length}><${Table}
      label="Changed nodes"
      rows=${of}
      limit=${ROWS}
      keyOf=${(r) => r.node}
      columns=${[
        { title: "Node", value: (r) => r.node, cell: (r) => html`${r.freeBefore ? html`<${NodeLink} name=${r.node} />` : r.node}${!r.freeBefore && html` <${Badge} tone="info">new<//>`}${!r.freeAfter && html` <${Badge} tone="warn">removed<//>`}` },
        {
          title: "Free before and after",
          short: "Free",
          cell: (r) => html`<dl class="sums-list changes">${differences(r).map((name) => html`<div><dt>${name}</dt><dd>${amount(r.freeBefore, name)} ${"→"} <b class=${cx(amount(r.freeAfter, name).startsWith("-") && r.freeAfter && "past-text")}>${amount(r.freeAfter, name)}</b></dd></div>`)}</dl>`,
        },
      ]}
    /><//>`;
}

/** Number of additional pods of each kind that fit. */
export function MoreCapacity({ of }) {
  if (!of || !of.length) return null;
  return html`<div class="section-head"><h2>Remaining capacity</h2></div>
    <ul class="plain">${of.map((one) => html`<li>capacity for ${one.orMore ? "at least " : ""}<b>${count(one.fit)}</b> more like ${one.like}</li>`)}</ul>`;
}

/** Format amounts of resources and numbers of devices. */
function amounts(of) {
  return Object.entries(of || {}).map(([name, amount]) => (typeof amount === "number" ? `${count(amount)} of ${name}` : `${name} ${shorten(name, amount)}`)).join(", ");
}

/** Format stranded resources or devices. */
function stranded(of, nodes, things) {
  if (!of || !of[nodes]) return "none";
  return `${amounts(of[things]) || "nothing"} on ${plural(of[nodes], "node")}`;
}

/** Return the rows [measure, before, after]. */
function fragmentationRows(of) {
  const where = (one) => (one.node ? ` on ${one.node}` : one.nodes ? ` on ${plural(one.nodes, "node")}` : "");
  const none = (one) => !one.mostOnOneNode || one.mostOnOneNode === "0";
  const piece = (one) => (one ? `${one.mostOnOneNode == null ? "unknown" : shorten(one.resource || "", one.mostOnOneNode)}${none(one) ? "" : where(one)}` : "-");
  const rows = [];
  for (const [key, what] of [["largest", "most on one node:"], ["largestClaim", "largest claim of exclusive devices:"]]) {
    const [before, after] = [of.before[key] || [], of.after[key] || []].map((list) => new Map(list.map((one) => [one.resource || one.deviceClass, one])));
    for (const name of new Set([...before.keys(), ...after.keys()])) rows.push([`${what} ${name}`, piece(before.get(name)), piece(after.get(name))]);
  }
  for (const [key, what] of [["freeDevices", "free devices"], ["mostDevicesOnOneNode", "most free devices on one node"]]) {
    const names = new Set([...Object.keys(of.before[key] || {}), ...Object.keys(of.after[key] || {})]);
    for (const name of names) rows.push([`${what}: ${name}`, count((of.before[key] || {})[name] ?? 0), count((of.after[key] || {})[name] ?? 0)]);
  }
  for (const [nodes, things, what] of [
    ["nodesWithoutFreeDevices", "resources", "stranded: free on nodes without free devices"],
    ["nodesWithoutRoom", "devices", "stranded: free devices on nodes without capacity for another pod"],
  ]) {
    rows.push([what, stranded(of.before.stranded, nodes, things), stranded(of.after.stranded, nodes, things)]);
  }
  return rows;
}

/** Largest free amounts on one node, free devices, and stranded resources. */
export function Fragmentation({ of }) {
  if (!of || !of.before || !of.after) return null;
  const changed = fragmentationRows(of).filter(([measure, before, after]) => before !== after || (measure.startsWith("stranded") && after !== "none"));
  return html`<${Folded} title="Fragmentation"><${Table}
      label="Fragmentation"
      rows=${changed}
      limit=${ROWS}
      keyOf=${(r) => r[0]}
      empty="Fragmentation does not change."
      columns=${[
        { title: "Measure", cell: (r) => r[0] },
        { title: "Before", cell: (r) => r[1] },
        { title: "After", cell: (r) => (r[1] === r[2] ? html`<span class="muted">unchanged</span>` : html`<b>${r[2]}</b>`) },
      ]}
    /><//>`;
}
