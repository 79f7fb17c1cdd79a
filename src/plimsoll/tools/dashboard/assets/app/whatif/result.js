// Owns: the answer to a what-if: the verdict first, then who goes where and at what cost, who has to go, what
// other schedulers would do, and in which pieces the rest is left.
import { html, cx, useState } from "../ui.js";
import { Badge, NodeLink, Ref, Several } from "../pieces.js";
import { Table } from "../table.js";
import { byName, count, plural, shorten } from "../format.js";
import { Icon } from "../marks.js";
import { Changes, Fragments, Gone, More } from "./left.js";

const SHOWN = 100;

/** A node that is only thought up has no page. */
function Place({ name, fresh }) {
  return fresh.has(name) ? html`<span>${name} <${Badge} tone="info">new<//></span>` : html`<${NodeLink} name=${name} />`;
}

/** One place or one reason. */
function Fate({ of, fresh }) {
  if (!of || of.exists === false) return html`<span class="muted nowrap">not there</span>`;
  if (of.node) return html`<span class="placed"><${Icon} name="ok" /> <${Place} name=${of.node} fresh=${fresh} /></span>`;
  return html`<span class="unplaced"><${Badge} tone="warn">pending<//> <span class="why">${of.why}</span></span>`;
}

/** What a pod takes of its node, and the devices it is given. */
function Cost({ of }) {
  const charges = Object.entries((of && of.charges) || {}).filter(([name]) => name !== "pods");
  const devices = (of && of.devices) || [];
  if (!charges.length && !devices.length) return html`<span class="muted">-</span>`;
  return html`${charges.length > 0 && html`<span class="block">${charges.map(([name, text], i) => html`${i > 0 && ", "}<span title=${text}>${name} <b>${shorten(name, text)}</b></span>`)}</span>`}
    ${devices.length > 0 && html`<span class="under"><${Several} items=${devices} most=${3} /></span>`}`;
}

/** Whether two fates are the same as far as people care: the node, or that there is none. */
function same(one, other) {
  const said = (fate) => (!fate || fate.exists === false ? "gone" : fate.node || "pending");
  return said(one) === said(other);
}

function Sums({ title, of, about }) {
  if (!of) return null;
  const free = Object.entries(of.free || {}).filter(([name, text]) => text !== "0" || (of.line || {})[name] !== "0");
  return html`<div class="sums card"><h3>${title}</h3>${about && html`<p class="muted small">${about}</p>`}
    <dl class="numbers"><div><dt>placed</dt><dd>${count(of.placed)}</dd></div><div><dt>pending</dt><dd class=${cx(of.pending > 0 && "warn-text")}>${count(of.pending)}</dd></div></dl>
    ${(of.pastTheLine || []).length > 0 &&
    html`<ul class="plain past-list">${of.pastTheLine.slice(0, 5).map((one) => html`<li>${one.node} <b class="past-text">${one.resource} ${shorten(one.resource, one.by)} past its line</b></li>`)}${of.pastTheLine.length > 5 && html`<li class="muted">+${count(of.pastTheLine.length - 5)} more</li>`}</ul>`}
    ${free.length > 0 && html`<dl class="facts">${free.map(([name, text]) => html`<div><dt>${name} free</dt><dd title=${text} class=${cx(text.startsWith("-") && "past-text")}>${shorten(name, text)}</dd></div>`)}</dl>`}
  </div>`;
}

/** The answer in a sentence, and what was asked. */
function Verdict({ of, about }) {
  const waiting = of.after ? of.after.pending : 0;
  const before = of.before ? of.before.pending : 0;
  const mine = about && (of.pods || []).find((row) => row.pod === about);
  const added = (of.pods || []).filter((row) => row.before && row.before.exists === false).length;
  const changes = [...(of.changes || []), ...(added ? [`${plural(added, "pod")} added`] : [])];
  const more = before && waiting !== before ? `, ${count(before)} as things are` : "";
  return html`<div class=${cx("notice answer", of.allPlaced ? "is-good" : "is-warning")}>
    <${Icon} name=${of.allPlaced ? "ok" : "warn"} />
    <div>
      <b>${of.allPlaced ? "Every pod has a node." : `${plural(waiting, "pod")} would wait${more}.`}</b>
      ${mine && html` ${about} ${mine.after.node ? html`would go to <${NodeLink} name=${mine.after.node} />.` : "would still wait."}`}
      <p class="small">${changes.length ? `Asked: ${changes.join("; ")}.` : "Nothing was changed: this is what scheduling everything that waits would do."}</p>
    </div>
  </div>`;
}

const everybody = (of) => (of.pods === 1 ? "the waiting pod" : `all ${count(of.pods)} waiting pods`);
const PROOFS = {
  "placed all": ["good", (of) => `A placement of ${everybody(of)} exists; the scheduler places ${count(of.scheduler)} one by one.`],
  impossible: ["bad", (of) => `No placement of ${everybody(of)} exists: everything was tried. ${of.settled ? "At most" : "At least"} ${count(of.most)} can be placed; the scheduler places ${count(of.scheduler)} one by one.`],
  "gave up": ["warn", (of) => `Not known: given up after ${plural(of.steps, "step")}. The scheduler places ${count(of.scheduler)} of ${count(of.pods)} one by one.`],
};

/** What the search through every placement came to. */
function Proof({ of }) {
  if (!of) return null;
  const [tone, tell] = PROOFS[of.verdict] || ["", () => ""];
  return html`<div class="section-head"><h2>Every placement tried</h2></div>
    <p class="proof"><${Badge} tone=${tone}>${of.verdict}<//> <span>${tell(of)}</span></p>
    ${of.why && html`<p class="muted">${of.why}</p>`}
    ${(of.placement || []).length > 0 &&
    html`<details class="labels"><summary>The placement that was found</summary>
      <${Table} label="The placement that was found" rows=${of.placement} keyOf=${(r) => r.pod} columns=${[
        { title: "Pod", value: (r) => r.pod, cell: (r) => html`<${Ref} kind="pod" of=${r.pod} />` },
        { title: "Node", value: (r) => r.node, cell: (r) => html`<${NodeLink} name=${r.node} />` },
        { title: "Devices", cell: (r) => html`<${Several} items=${r.devices} />` },
      ]} /></details>`}`;
}

/** Everybody whose fate is told, those first about whom schedulers differ, then those who move. */
function rowsOf(of, about) {
  const others = Object.entries(of.as || {});
  const theirs = others.map(([, one]) => new Map((one.pods || []).map((row) => [row.pod, row])));
  const differs = new Set(others.flatMap(([, one]) => one.differs || []));
  const told = new Set((of.pods || []).map((row) => row.pod));
  // Pods that nothing happened to here, but that another scheduler would have left waiting, or placed.
  const more = theirs.flatMap((fates) => [...fates.values()]).filter((row) => !told.has(row.pod) && told.add(row.pod));
  const unmoved = more.map((row) => ({ pod: row.pod, before: { node: row.ours, why: "" }, after: { node: row.ours, why: "" } }));
  const rows = [...(of.pods || []), ...unmoved].map((row) => ({
    ...row,
    theirs: theirs.map((fates) => fates.get(row.pod)),
    moved: !same(row.before, row.after),
    differs: differs.has(row.pod),
    first: row.pod === about,
  }));
  return rows.sort((a, b) => b.first - a.first || b.differs - a.differs || b.moved - a.moved || byName(a.pod, b.pod));
}

export function Result({ of, about = "" }) {
  const [all, setAll] = useState(false);
  const others = Object.entries(of.as || {});
  const rows = rowsOf(of, about);
  const fresh = new Set((of.nodes || []).filter((one) => !one.freeBefore).map((one) => one.node));
  const differing = rows.filter((row) => row.differs).length;
  const columns = [
    { title: "Pod", value: (r) => r.pod, cell: (r) => (r.before && r.before.exists === false ? r.pod : html`<${Ref} kind="pod" of=${r.pod} />`) },
    { title: "Before", cell: (r) => html`<${Fate} of=${r.before} fresh=${fresh} />` },
    { title: others.length ? "After, by Plimsoll's ledger" : "After", cell: (r) => (r.moved ? html`<${Fate} of=${r.after} fresh=${fresh} />` : html`<span class="muted nowrap">as before</span>`) },
    { title: "Charged", cell: (r) => html`<${Cost} of=${r.after} />` },
    ...others.map(([name], i) => ({ title: `After, as ${name}`, cell: (r) => (same(r.theirs[i], r.after) ? html`<span class="muted nowrap">the same</span>` : html`<${Fate} of=${r.theirs[i]} fresh=${fresh} />`) })),
  ];
  return html`<section aria-labelledby="whatif-result" class="whatif-result">
    <div class="section-head"><h2 id="whatif-result">Before and after</h2></div>
    <${Verdict} of=${of} about=${about} />
    <div class="cards sums-row"><${Sums} title="Before" of=${of.before} /><${Sums} title="After" of=${of.after} />
      ${others.map(([name, one]) => html`<${Sums} key=${name} title=${`After, as ${name}`} of=${one} about=${one.about} />`)}</div>
    ${others.length > 0 && html`<p class="side-note">${differing ? html`<b>${plural(differing, "pod")}</b> would be placed by one and wait by the other.` : "All agree which pods are placed."}</p>`}
    <${Table} label="Pods before and after" rows=${all ? rows : rows.slice(0, SHOWN)} keyOf=${(r) => r.pod} rowClass=${(r) => (r.differs ? "is-different" : undefined)} columns=${columns} empty="No pod would be placed otherwise than now." />
    ${rows.length > SHOWN && html`<p class="more"><button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${count(rows.length)} pods`}</button></p>`}
    <${Proof} of=${of.exhaustive} />
    <${Gone} of=${of.evicted} />
    <${Changes} of=${of.nodes} />
    <${More} of=${of.more} />
    <${Fragments} of=${of.fragmentation} />
    ${(of.passedBy || []).length > 0 && html`<details class="labels"><summary>${plural(of.passedBy.length, "object")} passed by</summary><ul>${of.passedBy.map((one) => html`<li>${one}</li>`)}</ul></details>`}
  </section>`;
}
