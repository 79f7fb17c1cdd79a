// Owns: the what-if box: YAML to add, names to remove, whose rules; and the answer before and after, side by
// side. What was typed is kept while other pages are looked at. Nothing is sent to the cluster.
import { html, cx, useState } from "../ui.js";
import { ask } from "../store.js";
import { Badge, Head, NodeLink, Ref } from "../pieces.js";
import { Table } from "../table.js";
import { byName, count, plural } from "../format.js";
import { Icon } from "../marks.js";

const PROFILES = [
  ["default", "Plimsoll's ledger"],
  ["kube-1.36", "stock scheduler 1.36"],
  ["kube-1.37", "stock scheduler 1.37"],
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
const kept = { add: "", remove: "", as: ["default"], result: null };

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
            <legend>By whose rules</legend>
            ${PROFILES.map(([key, text]) => html`<label><input type="checkbox" checked=${form.as.includes(key)} onChange=${() => toggle(key)} />${text}</label>`)}
          </fieldset>
        </div>
      </div>
      <div class="buttons">
        <button type="submit" class="primary" disabled=${busy || !form.as.length}>${busy ? "Scheduling ..." : "Run"}</button>
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
    ${of.free && typeof of.free === "object" && html`<dl class="facts">${Object.entries(of.free).map(([key, value]) => html`<div><dt>${key} free</dt><dd>${typeof value === "object" ? value.text || "" : String(value)}</dd></div>`)}</dl>`}
  </div>`;
}

function Result({ of }) {
  const pods = of.pods || [];
  const others = Object.entries(of.as || {});
  const theirs = others.map(([name, one]) => [name, new Map((one.pods || []).map((row) => [row.pod, row]))]);
  const rows = pods.map((row) => {
    const fates = [row.after, ...theirs.map(([, fate]) => fate.get(row.pod))];
    return { ...row, fates, moved: !same(row.before, row.after), differs: fates.some((fate) => !same(fate, row.after)) };
  });
  rows.sort((a, b) => b.differs - a.differs || b.moved - a.moved || byName(a.pod, b.pod));
  const differing = rows.filter((row) => row.differs).length;
  const columns = [
    { title: "Pod", value: (r) => r.pod, cell: (r) => html`<${Ref} kind="pod" of=${r.pod} />` },
    { title: "Before", cell: (r) => html`<${Fate} of=${r.before} />` },
    { title: theirs.length ? "After, by Plimsoll's ledger" : "After", cell: (r) => (r.moved ? html`<${Fate} of=${r.after} />` : html`<span class="muted">as before</span>`) },
    ...theirs.map(([name], i) => ({ title: `After, as ${name}`, cell: (r) => (same(r.fates[i + 1], r.after) ? html`<span class="muted">the same</span>` : html`<${Fate} of=${r.fates[i + 1]} />`) })),
  ];
  return html`<section aria-labelledby="whatif-result" class="whatif-result">
    <div class="section-head"><h2 id="whatif-result">Before and after</h2></div>
    <div class="cards sums-row"><${Sums} title="Before" of=${of.before} /><${Sums} title="After" of=${of.after} />
      ${others.map(([name, one]) => html`<${Sums} key=${name} title=${`After, as ${name}`} of=${one} about=${one.about} />`)}</div>
    ${theirs.length > 0 && html`<p class="side-note">${differing ? html`<b>${plural(differing, "pod")}</b> would fare differently by other rules.` : "All rules agree about every pod."}</p>`}
    <${Table} label="Pods before and after" rows=${rows} keyOf=${(r) => r.pod} rowClass=${(r) => (r.differs ? "is-different" : undefined)} columns=${columns} empty="No pod would be placed otherwise than now." />
    <${Gone} of=${of.evicted} />
    <${Changes} of=${of.nodes} />
    <${Fragments} of=${of.fragmentation} />
    ${(of.passedBy || []).length > 0 && html`<details class="labels"><summary>${plural(of.passedBy.length, "object")} passed by</summary><ul>${of.passedBy.map((one) => html`<li>${one}</li>`)}</ul></details>`}
  </section>`;
}

function words(value) {
  if (value == null) return "";
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) return value.map(words).join("; ");
  if ("before" in value && "after" in value) return `${words(value.before)} -> ${words(value.after)}`;
  return Object.entries(value).map(([key, one]) => `${key} ${words(one)}`).join(", ");
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

function Fragments({ of }) {
  const pairs = Object.entries(of || {});
  if (!pairs.length) return null;
  return html`<div class="section-head"><h2>Fragmentation</h2></div>
    <dl class="facts">${pairs.map(([key, value]) => html`<div><dt>${key}</dt><dd>${words(value)}</dd></div>`)}</dl>`;
}
