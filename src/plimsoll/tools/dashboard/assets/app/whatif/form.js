// Form of a what-if. Common fields are visible; nodes, taints and policy are collapsed until they are set.
import { html, cx, useEffect, useState } from "../ui.js";
import { useApi } from "../store.js";
import { Icon } from "../icons.js";
import { Picker } from "./picker.js";
import { EXAMPLE, isEmpty, POLICIES, PROFILES, ADVANCED, withNode } from "./request.js";

const SUGGESTED = 20;

/** Text field. */
function Text({ label, value, change, rows = 0, placeholder = "", cls = "", ...more }) {
  const onInput = (event) => change(event.currentTarget.value);
  return html`<label class=${cx("field", cls)}><span>${label}</span>
    ${rows
      ? html`<textarea rows=${rows} spellcheck=${false} value=${value} placeholder=${placeholder} onInput=${onInput} ...${more}></textarea>`
      : html`<input type="text" autocomplete="off" spellcheck=${false} value=${value} placeholder=${placeholder} onInput=${onInput} ...${more} />`}
  </label>`;
}

function Count({ label, value, change, most, placeholder }) {
  return html`<label class="field count-field"><span>${label}</span>
    <input type="number" min="1" max=${most} step="1" inputmode="numeric" value=${value} placeholder=${placeholder} onInput=${(event) => change(event.currentTarget.value)} />
  </label>`;
}

/** Field for node names with completion. */
function Nodes({ id, label, value, change, many = false }) {
  const [focused, setFocused] = useState(false);
  const nodes = useApi(focused ? "api/nodes" : "", { kinds: ["Node"] });
  const cut = many ? value.lastIndexOf(",") + 1 : 0;
  const head = cut ? `${value.slice(0, cut)} ` : "";
  const typed = value.slice(cut).trim().toLowerCase();
  const offered = nodes.data ? nodes.data.names.filter((name) => name.toLowerCase().includes(typed)).slice(0, SUGGESTED) : [];
  return html`<label class="field"><span>${label}</span>
    <input type="text" autocomplete="off" spellcheck=${false} list=${id} value=${value} placeholder=${many ? "node, node" : "node"} onFocus=${() => setFocused(true)} onInput=${(event) => change(event.currentTarget.value)} />
    <datalist id=${id}>${offered.map((name) => html`<option value=${head + name}></option>`)}</datalist>
  </label>`;
}

function Check({ checked, change, children }) {
  return html`<label><input type="checkbox" checked=${checked} onChange=${() => change(!checked)} />${children}</label>`;
}

/** Nodes, taints, policy and scheduling options. */
function Advanced({ form, set }) {
  const changed = ADVANCED.filter((key) => form[key] !== "").length + (form.preempt ? 0 : 1) + (form.exhaustive ? 1 : 0);
  const [open, setOpen] = useState(changed > 0);
  useEffect(() => {
    if (changed > 0) setOpen(true);
  }, [changed]);
  return html`<details class="advanced" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Nodes, taints, policy and more${changed > 0 && html` <span class="muted">(${changed} set)</span>`}</summary>
    <div class="advanced-fields">
      <${Nodes} id="nodes-drain" label="Drain nodes" many=${true} value=${form.drain} change=${set("drain")} />
      <${Nodes} id="nodes-cordon" label="Cordon nodes" many=${true} value=${form.cordon} change=${set("cordon")} />
      <div class="pair">
        <${Count} label="Add nodes" most=${1000} placeholder="0" value=${form.addNodes} change=${set("addNodes")} />
        <${Nodes} id="nodes-like" label="like node" value=${form.like} change=${set("like")} />
      </div>
      <label class="field"><span>Accounting policy</span>
        <select value=${form.policy} onChange=${(event) => set("policy")(event.currentTarget.value)}>
          <option value="">as set on devices and classes</option>
          ${POLICIES.map((one) => html`<option value=${one} selected=${form.policy === one}>${one} for all</option>`)}
        </select>
      </label>
      <${Text} cls="double" label="Taint nodes (one per line; KEY:EFFECT- removes a taint)" rows=${2} placeholder="NODE KEY=VALUE:NoSchedule" value=${form.taints} change=${set("taints")} />
      <${Text} cls="double" label="Taint devices (one per line)" rows=${2} placeholder="driver=D,pool=P,device=V:KEY=VALUE:NoExecute" value=${form.taintDevices} change=${set("taintDevices")} />
      <fieldset class="checks column wide">
        <legend>Scheduling</legend>
        <${Check} checked=${form.preempt} change=${set("preempt")}>allow preemption of lower-priority pods<//>
        <${Check} checked=${form.exhaustive} change=${set("exhaustive")}>exhaustive search: prove whether all pending pods can be scheduled (small numbers of pods only)<//>
      </fieldset>
    </div>
  </details>`;
}

export function Form({ form, change, run, clear, busy, error, done }) {
  const set = (key) => (value) => change({ [key]: value });
  const toggle = (key) => change({ as: PROFILES.map(([one]) => one).filter((one) => (one === key) !== form.as.includes(one)) });
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(event);
  };
  const [copied, setCopied] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      setCopied("link copied");
    } catch (_) {
      setCopied("copy the address of this page");
    }
  };
  const compose = (yaml, pods) => {
    const only = !form.add.trim();
    change({ add: only ? yaml : `${form.add.trimEnd()}\n---\n${yaml}`, ...(Number(pods) > 1 || !only ? { replicas: Number(pods) > 1 ? pods : form.replicas } : {}) });
  };
  const setNode = (node, action) => change(withNode(form, node, action));
  return html`<form class="whatif-form card" onSubmit=${run} onKeyDown=${onKeyDown} novalidate>
    <${Picker} add=${compose} setNode=${setNode} />
    <div class="whatif-fields">
      <${Text} label="Add or change (YAML): pods, workloads, nodes, ResourceSlices, claims, classes" rows=${11} placeholder="apiVersion: v1 ..." value=${form.add} change=${set("add")} aria-invalid=${error && form.add ? "true" : undefined} aria-describedby=${error ? "whatif-error" : undefined} />
      <div class="whatif-side">
        <${Count} label="Replicas of each pod and workload" most=${5000} placeholder="as written" value=${form.replicas} change=${set("replicas")} />
        <${Text} label="Remove (one per line)" rows=${4} placeholder=${"Pod/default/name\nNode/name"} value=${form.remove} change=${set("remove")} />
        <fieldset class="checks column">
          <legend>Compare with</legend>
          ${PROFILES.map(([key, text]) => html`<${Check} checked=${form.as.includes(key)} change=${() => toggle(key)}>${text}<//>`)}
        </fieldset>
      </div>
    </div>
    <${Advanced} form=${form} set=${set} />
    <div class="buttons">
      <button type="submit" class="primary" disabled=${busy}>${busy ? "Scheduling ..." : "Run"}</button>
      ${!form.add && html`<button type="button" onClick=${() => change({ add: EXAMPLE })}>Insert an example</button>`}
      ${(!isEmpty(form) || done) && html`<button type="button" onClick=${clear}>Clear</button>`}
      ${done && !isEmpty(form) && html`<button type="button" onClick=${copy}>Copy link</button><span role="status" class="muted small">${copied}</span>`}
      <span class="muted small">Ctrl+Enter runs${done && done.revision ? `; this result is of revision ${done.revision}` : ""}</span>
    </div>
    <div role="alert" id="whatif-error">${error && html`<div class="notice is-error"><${Icon} name="warn" /><span>${error}</span></div>`}</div>
  </form>`;
}
