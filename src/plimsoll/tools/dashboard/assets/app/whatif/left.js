// Owns: the rest of a what-if's answer: who has to go, nodes whose books change, room for more, and the pieces in
// which what is free is left.
import { html, cx } from "../ui.js";
import { Badge, NodeLink, Ref } from "../pieces.js";
import { Table } from "../table.js";
import { count, plural, shorten } from "../format.js";

const SHOWN_NODES = 50;

/** Pods that would have to go. */
export function Gone({ of }) {
  if (!of || !of.length) return null;
  const back = (one) => (!one.comesBack ? "no" : one.hasController === false ? "counted as waiting; it has no controller to make it again" : "yes, made again by its controller");
  return html`<div class="section-head"><h2>Pods that would have to go</h2><span class="muted">${count(of.length)}</span></div>
    <${Table}
      label="Pods that would have to go"
      rows=${of}
      keyOf=${(r) => r.pod}
      columns=${[
        { title: "Pod", value: (r) => r.pod, cell: (r) => html`<${Ref} kind="pod" of=${r.pod} />` },
        { title: "From", value: (r) => r.node, cell: (r) => html`<${NodeLink} name=${r.node} />` },
        { title: "Because", value: (r) => r.because, cell: (r) => `${r.because}${r.by ? ` (${r.by})` : ""}${r.afterSeconds ? `, after ${count(r.afterSeconds)} s` : ""}` },
        { title: "Comes back", value: back, cell: back },
      ]}
    />`;
}

/** Nodes whose books differ: what is free of each resource that changed. */
export function Changes({ of }) {
  if (!of || !of.length) return null;
  const differences = (row) => {
    const before = row.freeBefore || {};
    const after = row.freeAfter || {};
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => before[name] !== after[name]);
  };
  const amount = (room, name) => (room ? shorten(name, room[name] ?? "0") : "-");
  return html`<div class="section-head"><h2>Nodes that change</h2><span class="muted">${count(of.length)}</span></div>
    <${Table}
      label="Nodes that change"
      rows=${of.slice(0, SHOWN_NODES)}
      keyOf=${(r) => r.node}
      columns=${[
        { title: "Node", value: (r) => r.node, cell: (r) => html`${r.freeBefore ? html`<${NodeLink} name=${r.node} />` : r.node}${!r.freeBefore && html` <${Badge} tone="info">new<//>`}${!r.freeAfter && html` <${Badge} tone="warn">gone<//>`}` },
        {
          title: "Free before and after",
          cell: (r) => html`<dl class="sums-list">${differences(r).map((name) => html`<div><dt>${name}</dt><dd>${amount(r.freeBefore, name)} ${"→"} <b class=${cx(amount(r.freeAfter, name).startsWith("-") && r.freeAfter && "past-text")}>${amount(r.freeAfter, name)}</b></dd></div>`)}</dl>`,
        },
      ]}
    />
    ${of.length > SHOWN_NODES && html`<p class="muted">The first ${SHOWN_NODES} of ${count(of.length)}.</p>`}`;
}

/** How many more pods of a kind would fit. */
export function More({ of }) {
  if (!of || !of.length) return null;
  return html`<div class="section-head"><h2>Room for more</h2></div>
    <ul class="plain">${of.map((one) => html`<li>like ${one.like}: <b>${count(one.fit)}${one.orMore ? " or more" : ""}</b></li>`)}</ul>`;
}

/** Texts of resources, numbers of devices. */
function amounts(of) {
  return Object.entries(of || {}).map(([name, amount]) => (typeof amount === "number" ? `${count(amount)} of ${name}` : `${name} ${shorten(name, amount)}`)).join(", ");
}

/** What is free where it is of no use, in words. */
function stranded(of, nodes, things) {
  if (!of || !of[nodes]) return "none";
  return `${amounts(of[things]) || "nothing"} on ${plural(of[nodes], "node")}`;
}

/** [what, before, after] for everything that can be told of pieces. */
function pieces(of) {
  const where = (one) => (one.node ? ` on ${one.node}` : one.nodes ? ` on ${plural(one.nodes, "node")}` : "");
  const none = (one) => !one.mostOnOneNode || one.mostOnOneNode === "0";
  const piece = (one) => (one ? `${one.mostOnOneNode == null ? "unknown" : shorten(one.resource || "", one.mostOnOneNode)}${none(one) ? "" : where(one)}` : "-");
  const rows = [];
  for (const [key, what] of [["largest", "largest free piece of"], ["largestClaim", "most devices for one claim of class"]]) {
    const [before, after] = [of.before[key] || [], of.after[key] || []].map((list) => new Map(list.map((one) => [one.resource || one.deviceClass, one])));
    for (const name of new Set([...before.keys(), ...after.keys()])) rows.push([`${what} ${name}`, piece(before.get(name)), piece(after.get(name))]);
  }
  for (const [key, what] of [["freeDevices", "devices that can be had"], ["mostDevicesOnOneNode", "most of them on one node"]]) {
    const names = new Set([...Object.keys(of.before[key] || {}), ...Object.keys(of.after[key] || {})]);
    for (const name of names) rows.push([`${what}: ${name}`, count((of.before[key] || {})[name] ?? 0), count((of.after[key] || {})[name] ?? 0)]);
  }
  for (const [nodes, things, what] of [
    ["nodesWithoutFreeDevices", "resources", "stranded: free on nodes whose devices are all taken"],
    ["nodesWithoutRoom", "devices", "stranded: free devices on nodes without capacity for a pod"],
  ]) {
    rows.push([what, stranded(of.before.stranded, nodes, things), stranded(of.after.stranded, nodes, things)]);
  }
  return rows;
}

/** The largest piece of each resource that is free on one node, free devices, and what is stranded. */
export function Fragments({ of }) {
  if (!of || !of.before || !of.after) return null;
  const changed = pieces(of).filter(([what, before, after]) => before !== after || (what.startsWith("stranded") && after !== "none"));
  return html`<div class="section-head"><h2>Fragmentation</h2></div>
    <${Table}
      label="Fragmentation"
      rows=${changed}
      keyOf=${(r) => r[0]}
      empty="What is left comes in the same pieces as before."
      columns=${[
        { title: "Piece", cell: (r) => r[0] },
        { title: "Before", cell: (r) => r[1] },
        { title: "After", cell: (r) => (r[1] === r[2] ? html`<span class="muted">as before</span>` : html`<b>${r[2]}</b>`) },
      ]}
    />`;
}
