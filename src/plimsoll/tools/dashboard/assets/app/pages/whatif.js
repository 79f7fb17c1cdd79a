// Owns: the what-if box: YAML to add, names to remove, whose rules; and the answer before and after, side by
// side. What was typed is kept while other pages are looked at. Nothing is sent to the cluster.
import { html, cx, useState } from "../ui.js";
import { ask } from "../store.js";
import { Badge, Head, NodeLink, Ref } from "../pieces.js";
import { Table } from "../table.js";
import { byName, count, plural } from "../format.js";
import { Icon } from "../marks.js";

const PROFILES = [
  ["kube-1.36-default", "stock 1.36, default gates (two books)"],
  ["kube-1.36", "stock 1.36, node-allocatable gate on"],
  ["kube-1.37", "stock 1.37, node-allocatable gate on"],
];
const EXAMPLE = `apiVersion: v1
kind: Pod
metadata: {name: trial, namespace: default}
spec:
  containers:
  - name: main
    image: app
    resources: {requests: {cpu: "2", memory: 1Gi}}
`;
// Outside the component: typing survives a look at another page.
const kept = { add: "", remove: "", as: [], result: null };

export function Whatif() {
  const [form, setForm] = useState(kept);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const change = (part) => {
    Object.assign(kept, part);
    setForm({ ...kept });
  };
  const run = async (event) => {
    if (event) event.preventDefault();
    if (busy) return;
    setError("");
    setBusy(true);
    const remove = kept.remove.split(/[\n,]/).map((one) => one.trim()).filter(Boolean);
    try {
      const result = await ask("api/whatif", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ add: kept.add, remove, as: kept.as }),
      });
      change({ result });
    } catch (problem) {
      change({ result: null });
      setError(problem.message);
    }
    setBusy(false);
  };
  const toggle = (key) => change({ as: form.as.includes(key) ? form.as.filter((one) => one !== key) : PROFILES.map(([one]) => one).filter((one) => one === key || form.as.includes(one)) });
  const soon = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(event);
  };
  return html`<${Head} title="What if" />
    <p class="lead">Scheduled in memory only; the cluster is not touched.</p>
    <form class="whatif-form card" onSubmit=${run} onKeyDown=${soon}>
      <div class="whatif-fields">
        <label class="field grow"><span>Add or change (YAML)</span>
          <textarea rows="12" spellcheck=${false} value=${form.add} placeholder="Pods, nodes, slices, claims, classes ..." onInput=${(e) => change({ add: e.currentTarget.value })} aria-invalid=${error ? "true" : undefined} aria-describedby=${error ? "whatif-error" : undefined}></textarea>
        </label>
        <div class="whatif-side">
          <label class="field"><span>Remove (one a line)</span>
            <textarea rows="5" spellcheck=${false} value=${form.remove} placeholder=${"Pod/default/name\nNode/name"} onInput=${(e) => change({ remove: e.currentTarget.value })}></textarea>
          </label>
          <fieldset class="checks column">
            <legend>Compare with</legend>
            ${PROFILES.map(([key, text]) => html`<label><input type="checkbox" checked=${form.as.includes(key)} onChange=${() => toggle(key)} />${text}</label>`)}
          </fieldset>
        </div>
      </div>
      <div class="buttons">
        <button type="submit" class="primary" disabled=${busy}>${busy ? "Scheduling ..." : "Run"}</button>
        ${!form.add && html`<button type="button" onClick=${() => change({ add: EXAMPLE })}>Put in an example</button>`}
        ${(form.add || form.remove || form.result) && html`<button type="button" onClick=${() => (setError(""), change({ add: "", remove: "", result: null }))}>Clear</button>`}
        <span class="muted small">Ctrl+Enter runs</span>
      </div>
      <div role="alert" id="whatif-error">${error && html`<div class="notice is-error"><${Icon} name="warn" /><span>${error}</span></div>`}</div>
    </form>
    <div aria-live="polite">${form.result && html`<${Result} of=${form.result} />`}</div>`;
}

/** One place or one reason. */
function Fate({ of }) {
  if (!of || of.exists === false) return html`<span class="muted">not there</span>`;
  if (of.node) return html`<span class="placed"><${Icon} name="ok" /> <${NodeLink} name=${of.node} /></span>`;
  return html`<span class="unplaced"><${Badge} tone="warn">pending<//> <span class="why">${of.why}</span></span>`;
}

/** Whether two fates are the same as far as people care: the node, or that there is none. */
function same(one, other) {
  const said = (fate) => (!fate || fate.exists === false ? "gone" : fate.node || "pending");
  return said(one) === said(other);
}

function number(value) {
  if (Array.isArray(value)) return count(value.length);
  if (typeof value === "number") return count(value);
  return value == null ? "-" : String(value);
}

function Sums({ title, of, about }) {
  if (!of) return null;
  return html`<div class="sums card"><h3>${title}</h3>${about && html`<p class="muted small">${about}</p>`}
    <dl class="numbers"><div><dt>placed</dt><dd>${number(of.placed)}</dd></div><div><dt>pending</dt><dd class=${cx(Number(number(of.pending)) > 0 && "warn-text")}>${number(of.pending)}</dd></div></dl>
    ${(of.pastTheLine || []).length > 0 &&
    html`<ul class="plain past-list">${of.pastTheLine.slice(0, 5).map((one) => html`<li><${NodeLink} name=${one.node} /> <b class="past-text">${one.resource} ${one.by} past its line</b></li>`)}${of.pastTheLine.length > 5 && html`<li class="muted">+${count(of.pastTheLine.length - 5)} more</li>`}</ul>`}
    ${of.free && typeof of.free === "object" && html`<dl class="facts">${Object.entries(of.free).map(([key, value]) => html`<div><dt>${key} free</dt><dd>${typeof value === "object" ? value.text || "" : String(value)}</dd></div>`)}</dl>`}
  </div>`;
}

function Result({ of }) {
  const pods = of.pods || [];
  const others = Object.entries(of.as || {});
  const theirs = others.map(([name, one]) => [name, new Map((one.pods || []).map((row) => [row.pod, row]))]);
  const differs = new Set(others.flatMap(([, one]) => one.differs || []));
  const told = new Set(pods.map((row) => row.pod));
  // Pods that nothing happened to here, but that another scheduler would have left waiting, or placed.
  const more = theirs.flatMap(([, fates]) => [...fates.values()]).filter((row) => !told.has(row.pod) && told.add(row.pod));
  const unmoved = more.map((row) => ({ pod: row.pod, before: { node: row.ours, why: "" }, after: { node: row.ours, why: "" } }));
  const rows = [...pods, ...unmoved].map((row) => ({
    ...row,
    theirs: theirs.map(([, fates]) => fates.get(row.pod)),
    moved: !same(row.before, row.after),
    differs: differs.has(row.pod),
  }));
  rows.sort((a, b) => b.differs - a.differs || b.moved - a.moved || byName(a.pod, b.pod));
  const differing = rows.filter((row) => row.differs).length;
  const columns = [
    { title: "Pod", value: (r) => r.pod, cell: (r) => html`<${Ref} kind="pod" of=${r.pod} />` },
    { title: "Before", cell: (r) => html`<${Fate} of=${r.before} />` },
    { title: theirs.length ? "After, by Plimsoll's ledger" : "After", cell: (r) => (r.moved ? html`<${Fate} of=${r.after} />` : html`<span class="muted">as before</span>`) },
    ...theirs.map(([name], i) => ({ title: `After, as ${name}`, cell: (r) => (same(r.theirs[i], r.after) ? html`<span class="muted">the same</span>` : html`<${Fate} of=${r.theirs[i]} />`) })),
  ];
  return html`<section aria-labelledby="whatif-result" class="whatif-result">
    <div class="section-head"><h2 id="whatif-result">Before and after</h2></div>
    <div class="cards sums-row"><${Sums} title="Before" of=${of.before} /><${Sums} title="After" of=${of.after} />
      ${others.map(([name, one]) => html`<${Sums} key=${name} title=${`After, as ${name}`} of=${one} about=${one.about} />`)}</div>
    ${theirs.length > 0 && html`<p class="side-note">${differing ? html`<b>${plural(differing, "pod")}</b> would be placed by one and wait by the other.` : "All agree which pods are placed."}</p>`}
    <${Table} label="Pods before and after" rows=${rows} keyOf=${(r) => r.pod} rowClass=${(r) => (r.differs ? "is-different" : undefined)} columns=${columns} empty="No pod would be placed otherwise than now." />
    <${Gone} of=${of.evicted} />
    <${Changes} of=${of.nodes} />
    <${More} of=${of.more} />
    <${Fragments} of=${of.fragmentation} />
    ${(of.passedBy || []).length > 0 && html`<details class="labels"><summary>${plural(of.passedBy.length, "object")} passed by</summary><ul>${of.passedBy.map((one) => html`<li>${one}</li>`)}</ul></details>`}
  </section>`;
}

/** Pods that would have to go. */
function Gone({ of }) {
  if (!of || !of.length) return null;
  return html`<div class="section-head"><h2>Pods that would have to go</h2></div>
    <${Table}
      label="Pods that would have to go"
      rows=${of}
      keyOf=${(r) => r.pod}
      columns=${[
        { title: "Pod", value: (r) => r.pod, cell: (r) => html`<${Ref} kind="pod" of=${r.pod} />` },
        { title: "From", value: (r) => r.node, cell: (r) => html`<${NodeLink} name=${r.node} />` },
        { title: "Because", value: (r) => r.because, cell: (r) => `${r.because}${r.by ? ` (${r.by})` : ""}` },
        { title: "Comes back", cell: (r) => (r.comesBack ? "yes" : "no") },
      ]}
    />`;
}

const SHOWN_NODES = 50;

/** Nodes whose books differ: what is free of each resource that changed. */
function Changes({ of }) {
  if (!of || !of.length) return null;
  const differences = (row) => {
    const before = row.freeBefore || {};
    const after = row.freeAfter || {};
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => before[name] !== after[name]);
  };
  return html`<div class="section-head"><h2>Nodes that change</h2><span class="muted">${count(of.length)}</span></div>
    <${Table}
      label="Nodes that change"
      rows=${of.slice(0, SHOWN_NODES)}
      keyOf=${(r) => r.node}
      columns=${[
        { title: "Node", value: (r) => r.node, cell: (r) => html`<${NodeLink} name=${r.node} />${!r.freeBefore && html` <${Badge} tone="info">new<//>`}${!r.freeAfter && html` <${Badge} tone="warn">gone<//>`}` },
        {
          title: "Free before and after",
          cell: (r) => html`<dl class="sums-list">${differences(r).map((name) => html`<div><dt>${name}</dt><dd>${(r.freeBefore || {})[name] ?? "-"} ${"→"} <b class=${cx(String((r.freeAfter || {})[name]).startsWith("-") && "past-text")}>${(r.freeAfter || {})[name] ?? "-"}</b></dd></div>`)}</dl>`,
        },
      ]}
    />
    ${of.length > SHOWN_NODES && html`<p class="muted">The first ${SHOWN_NODES} of ${count(of.length)}.</p>`}`;
}

/** How many more pods of a kind would fit. */
function More({ of }) {
  if (!of || !of.length) return null;
  return html`<div class="section-head"><h2>Room for more</h2></div>
    <ul class="plain">${of.map((one) => html`<li>like <${Ref} kind="pod" of=${one.like} />: <b>${count(one.fit)}${one.orMore ? " or more" : ""}</b></li>`)}</ul>`;
}

/** The largest piece of each resource that is free on one node, and free devices. */
function Fragments({ of }) {
  if (!of || !of.before || !of.after) return null;
  const where = (one) => (one.node ? ` on ${one.node}` : one.nodes ? ` on ${plural(one.nodes, "node")}` : "");
  const piece = (one) => (one ? `${one.mostOnOneNode ?? "unknown"}${where(one)}` : "-");
  const rows = [];
  for (const [key, what] of [["largest", "largest free piece of"], ["largestClaim", "most devices for one claim of class"]]) {
    const [before, after] = [of.before[key] || [], of.after[key] || []].map((list) => new Map(list.map((one) => [one.resource || one.deviceClass, one])));
    for (const name of new Set([...before.keys(), ...after.keys()])) rows.push([`${what} ${name}`, piece(before.get(name)), piece(after.get(name))]);
  }
  for (const [key, what] of [["freeDevices", "free devices"], ["mostDevicesOnOneNode", "most free devices on one node"]]) {
    const names = new Set([...Object.keys(of.before[key] || {}), ...Object.keys(of.after[key] || {})]);
    for (const name of names) rows.push([`${what}: ${name}`, String((of.before[key] || {})[name] ?? 0), String((of.after[key] || {})[name] ?? 0)]);
  }
  const changed = rows.filter(([, before, after]) => before !== after);
  return html`<div class="section-head"><h2>Fragmentation</h2></div>
    <${Table}
      label="Fragmentation"
      rows=${changed}
      keyOf=${(r) => r[0]}
      empty="Nothing that is left comes in other pieces than before."
      columns=${[
        { title: "Piece", cell: (r) => r[0] },
        { title: "Before", cell: (r) => r[1] },
        { title: "After", cell: (r) => html`<b>${r[2]}</b>` },
      ]}
    />`;
}
