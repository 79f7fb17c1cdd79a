// Result of a what-if: verdict, totals, placement and charges of pods, predictions of other schedulers, evicted
// pods, changed nodes and fragmentation.
import { html, cx } from "../ui.js";
import { Badge, InlineList, NodeLink, None, Ref } from "../components.js";
import { PagedList, Table } from "../table.js";
import { byName, count, groupBy, plural, shorten } from "../format.js";
import { NotCounted } from "../summary.js";
import { Icon } from "../icons.js";
import { ChangedNodes, EvictedPods, Fragmentation, MoreCapacity } from "./sections.js";

/** Rows of a page of a table. */
const ROWS = 15;
/** More pods than this are grouped by workload. */
const FEW = 12;
const GROUPS = 20;

/** Node name; hypothetical nodes have no page to link to. */
function NodeName({ name, added }) {
  return added.has(name) ? html`<span>${name} <${Badge} tone="info">new<//></span>` : html`<${NodeLink} name=${name} />`;
}

/** The node of a pod, or the reason why it is pending. */
function Placement({ of, added, evicted }) {
  if (!of || of.exists === false) return html`<span class="muted nowrap">${evicted ? "evicted" : "does not exist"}</span>`;
  if (of.node) return html`<span class="placed"><${Icon} name="ok" /> <${NodeName} name=${of.node} added=${added} /></span>`;
  return html`<span class="unplaced"><${Badge} tone="warn">pending<//> <span class="why">${of.why}</span></span>`;
}

/** Return the name of driver/pool/device, with its pool unless that is the node. */
function deviceName(text, node) {
  const [, pool, ...device] = text.split("/");
  return pool === node ? device.join("/") : `${device.join("/")} (${pool})`;
}

/** Charges of a pod and its allocated devices. */
function Charges({ of }) {
  const charges = Object.entries((of && of.charges) || {}).filter(([name]) => name !== "pods");
  const devices = (of && of.devices) || [];
  if (!charges.length && !devices.length) return html`<${None} />`;
  return html`${charges.length > 0 && html`<span class="block">${charges.map(([name, text], i) => html`${i > 0 && ", "}<span title=${text}>${name} <b>${shorten(name, text)}</b></span>`)}</span>`}
    ${devices.length > 0 && html`<span class="under"><${InlineList} items=${devices} most=${3} draw=${(text) => html`<span title=${text}>${deviceName(text, of.node)}</span>`} /></span>`}`;
}

/** Return whether two placements are on the same node, both pending, or both absent. */
function isSame(one, other) {
  const key = (placement) => (!placement || placement.exists === false ? "absent" : placement.node || "pending");
  return key(one) === key(other);
}

function Sums({ title, of, about }) {
  if (!of) return null;
  const free = Object.entries(of.free || {}).filter(([name, text]) => text !== "0" || (of.line || {})[name] !== "0");
  return html`<div class="sums card"><h3>${title}</h3>${about && html`<p class="muted small">${about}</p>`}
    <dl class="numbers"><div><dt>scheduled</dt><dd>${count(of.placed)}</dd></div><div><dt>pending</dt><dd class=${cx(of.pending > 0 && "warn-text")}>${count(of.pending)}</dd></div></dl>
    ${(of.pastTheLine || []).length > 0 &&
    html`<ul class="plain past-list">${of.pastTheLine.slice(0, 5).map((one) => html`<li>${one.node} <b class="past-text">${one.resource} ${shorten(one.resource, one.by)} past its line</b></li>`)}${of.pastTheLine.length > 5 && html`<li class="muted">+${count(of.pastTheLine.length - 5)} more</li>`}</ul>`}
    ${free.length > 0 && html`<dl class="facts">${free.map(([name, text]) => html`<div><dt>${name} free</dt><dd title=${text} class=${cx(text.startsWith("-") && "past-text")}>${shorten(name, text)}</dd></div>`)}</dl>`}
  </div>`;
}

/** Side effects on pods that were not asked about, with the words of the command line. */
const SIDE_EFFECTS = [
  ["preempted", "preempted"],
  ["newlyPending", "pending that would be scheduled without the change"],
  ["newlyScheduled", "scheduled that would be pending without the change"],
  ["stillPending", "pending before and after"],
];

/** Name pods by workload, with the labels of the groups: "training/finetune-* (13), training/notebook-* (11)". */
function byWorkload(pods, groups = []) {
  const labels = new Map(groups.flatMap((one) => one.pods.map((pod) => [pod, one.label.replace(/ \([0-9,]+\)$/, "")])));
  const found = groupBy(pods, (pod) => labels.get(pod) || pod);
  const texts = [...found].map(([label, list]) => (list.length === 1 ? list[0] : `${label} (${count(list.length)})`));
  return `${texts.slice(0, FEW).join(", ")}${texts.length > FEW ? ` and ${count(texts.length - FEW)} more` : ""}`;
}

/** Answer about the pods that were asked about, side effects, and the changes of the request. */
function Verdict({ of, about }) {
  const verdict = of.verdict || { text: "", allScheduled: of.allPlaced };
  const effects = SIDE_EFFECTS.map(([key, label]) => [(of.sideEffects || {})[key] || [], label]).filter(([pods]) => pods.length);
  const row = about && (of.pods || []).find((one) => one.pod === about);
  const added = (of.pods || []).filter((row) => row.before && row.before.exists === false).length;
  const changes = [...(of.changes || []), ...(added ? [`${plural(added, "pod")} added`] : [])];
  return html`<div class=${cx("notice verdict-notice", verdict.allScheduled ? "is-good" : "is-warning")}>
    <${Icon} name=${verdict.allScheduled ? "ok" : "warn"} />
    <div>
      <b>${verdict.text.charAt(0).toUpperCase()}${verdict.text.slice(1)}.</b>
      ${row && html` ${about} ${row.after.node ? html`would be scheduled to <${NodeLink} name=${row.after.node} />.` : "would still be pending."}`}
      ${effects.length > 0 && html`<p class="small">Side effects: ${effects.map(([pods, label]) => `${plural(pods.length, "pod")} ${label} (${byWorkload(pods, of.groups)})`).join("; ")}.</p>`}
      <p class="small">${changes.length ? `Changes: ${changes.join("; ")}.` : "No changes: the result of scheduling all pending pods."}</p>
    </div>
  </div>`;
}

const pendingPods = (of) => (of.pods === 1 ? "the pending pod" : `all ${count(of.pods)} pending pods`);
const PROOFS = {
  "placed all": ["good", (of) => `A placement of ${pendingPods(of)} exists; the scheduler places ${count(of.scheduler)} one by one.`],
  impossible: ["bad", (of) => `No placement of ${pendingPods(of)} exists (search completed). ${of.settled ? "At most" : "At least"} ${count(of.most)} can be scheduled; the scheduler places ${count(of.scheduler)} one by one.`],
  "gave up": ["warn", (of) => `Undecided after ${plural(of.steps, "step")}. The scheduler places ${count(of.scheduler)} of ${count(of.pods)} one by one.`],
};

/** Result of the exhaustive search. */
function Proof({ of }) {
  if (!of) return null;
  const [tone, describe] = PROOFS[of.verdict] || ["", () => ""];
  return html`<div class="section-head"><h2>Exhaustive search</h2></div>
    <p class="proof"><${Badge} tone=${tone}>${of.verdict}<//> <span>${describe(of)}</span></p>
    ${of.why && html`<p class="muted">${of.why}</p>`}
    ${(of.placement || []).length > 0 &&
    html`<details class="labels"><summary>Placement found</summary>
      <${Table} label="Placement found" rows=${of.placement} limit=${ROWS} keyOf=${(r) => r.pod} columns=${[
        { title: "Pod", value: (r) => r.pod, cell: (r) => html`<${Ref} kind="pod" of=${r.pod} />` },
        { title: "Node", value: (r) => r.node, cell: (r) => html`<${NodeLink} name=${r.node} />` },
        { title: "Devices", cell: (r) => html`<${InlineList} items=${r.devices} />` },
      ]} /></details>`}`;
}

/** Pods by workload, as the command line groups them; the pods of a group are listed when it is expanded. */
function Groups({ label, of, detail }) {
  return html`<${Table} label=${label} rows=${of} limit=${GROUPS} keyOf=${(r) => `${r.label} ${r.pods[0]}`} columns=${[
    { title: "Pods", value: (r) => r.label, cell: (r) => (r.pods.length === 1 ? r.label : html`<details class="rest"><summary>${r.label}</summary><${PagedList} cls="plain small" items=${r.pods} limit=${ROWS} draw=${(pod) => html`<li key=${pod}>${pod}${detail.has(pod) && html` <span class="muted">${detail.get(pod)}</span>`}</li>`} /></details>`) },
    { title: "Before", value: (r) => r.before, cell: (r) => r.before },
    { title: "After", value: (r) => r.after, cell: (r) => (r.before === r.after ? html`<span class="muted">unchanged</span>` : html`<b>${r.after}</b>`) },
  ]} />`;
}

/** Return pod -> its node after the change and the devices it gets. */
function details(of) {
  return new Map((of.pods || []).map((row) => [row.pod, [row.after.node || "pending", ...(row.after.devices || []).map((one) => deviceName(one, row.after.node))].join(", ")]));
}

/** Return the rows of pods: first those that schedulers place differently, then those that move. */
function rowsOf(of, about) {
  const others = Object.entries(of.as || {});
  const theirs = others.map(([, one]) => new Map((one.pods || []).map((row) => [row.pod, row])));
  const differs = new Set(others.flatMap(([, one]) => one.differs || []));
  const listed = new Set((of.pods || []).map((row) => row.pod));
  // Pods that do not move here, but that another scheduler places differently.
  const more = theirs.flatMap((placements) => [...placements.values()]).filter((row) => !listed.has(row.pod) && listed.add(row.pod));
  const unmoved = more.map((row) => ({ pod: row.pod, now: row.ours, before: { node: row.ours, why: "" }, after: { node: row.ours, why: "" } }));
  const rows = [...(of.pods || []), ...unmoved].map((row) => ({
    ...row,
    theirs: theirs.map((placements) => placements.get(row.pod)),
    moved: !isSame(row.before, row.after),
    differs: differs.has(row.pod),
    first: row.pod === about,
  }));
  return rows.sort((a, b) => b.first - a.first || b.differs - a.differs || b.moved - a.moved || byName(a.pod, b.pod));
}

export function Result({ of, about = "" }) {
  const others = Object.entries(of.as || {});
  const rows = rowsOf(of, about);
  const added = new Set((of.nodes || []).filter((one) => !one.freeBefore).map((one) => one.node));
  const evicted = new Set((of.evicted || []).map((one) => one.pod));
  const different = rows.filter((row) => row.differs);
  const differing = different.length;
  const groups = of.groups || [];
  const asked = groups.filter((one) => one.asked);
  const rest = groups.filter((one) => !one.asked);
  const grouped = rows.length > FEW && groups.length > 0;
  const detail = details(of);
  const columns = [
    { title: "Pod", value: (r) => r.pod, cell: (r) => (r.before && r.before.exists === false ? r.pod : html`<${Ref} kind="pod" of=${r.pod} />`) },
    { title: "Before", cell: (r) => html`<${Placement} of=${r.before} added=${added} evicted=${r.now} />` },
    { title: others.length ? "After, as Plimsoll" : "After", cls: others.length ? "stacked" : "", cell: (r) => (r.moved ? html`<${Placement} of=${r.after} added=${added} evicted=${evicted.has(r.pod)} />` : html`<span class="muted nowrap">unchanged</span>`) },
    { title: "Charges", cls: "name-cell", cell: (r) => html`<${Charges} of=${r.after} />` },
    ...others.map(([name], i) => ({ title: `After, as ${name}`, cls: "stacked", cell: (r) => (isSame(r.theirs[i], r.after) ? html`<span class="muted nowrap">the same</span>` : html`<${Placement} of=${r.theirs[i]} added=${added} evicted=${r.now && r.differs} />`) })),
  ];
  return html`<section aria-labelledby="whatif-result" class="whatif-result">
    <div class="section-head"><h2 id="whatif-result">Answer</h2></div>
    <${Verdict} of=${of} about=${about} />
    ${grouped
      ? html`<${Groups} label="Pods before and after" of=${asked} detail=${detail} />
          ${rest.length > 0 && html`<details class="labels side-effects"><summary>Side effects: ${plural(rest.reduce((sum, one) => sum + one.pods.length, 0), "other pod")}</summary><${Groups} label="Side effects" of=${rest} detail=${detail} /></details>`}`
      : html`<${Table} label="Pods before and after" rows=${rows} limit=${ROWS} keyOf=${(r) => r.pod} rowClass=${(r) => (r.differs ? "is-different" : undefined)} columns=${columns} empty="No pods change." />`}
    ${others.length > 0 && html`<p class="side-note">${differing ? html`<b>${plural(differing, "pod differs", "pods differ")}</b>: scheduled by one scheduler and pending with another.` : "The same pods are scheduled."}</p>`}
    ${grouped && differing > 0 && html`<${Table} label="Pods that schedulers place differently" rows=${different} limit=${ROWS} keyOf=${(r) => r.pod} rowClass=${() => "is-different"} columns=${columns} />`}
    <${NotCounted} of=${of.notCounted} />
    <div class="cards sums-row"><${Sums} title="Before" of=${of.before} /><${Sums} title="After" of=${of.after} />
      ${others.map(([name, one]) => html`<${Sums} key=${name} title=${`After, as ${name}`} of=${one} about=${one.about} />`)}</div>
    <${Proof} of=${of.exhaustive} />
    <${EvictedPods} of=${of.evicted} then=${new Map((of.pods || []).map((row) => [row.pod, row.after.node || null]))} />
    <${ChangedNodes} of=${of.nodes} />
    <${MoreCapacity} of=${of.more} />
    <${Fragmentation} of=${of.fragmentation} />
    ${(of.passedBy || []).length > 0 && html`<details class="labels"><summary>${plural(of.passedBy.length, "object")} ignored</summary><${PagedList} items=${of.passedBy} limit=${ROWS} draw=${(one) => html`<li>${one}</li>`} /></details>`}
  </section>`;
}
