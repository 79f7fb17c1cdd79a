// Picker of a what-if: composes the YAML of pods from a class, amounts or a workload of the cluster, and changes of
// nodes.
import { html, useState } from "../ui.js";
import { request, useApi } from "../store.js";
import { count, quantity, shortName } from "../format.js";

const name = (text) => text.toLowerCase().replace(/[^a-z0-9-]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40) || "trial";

/** Return the YAML of a pod with requests and, if a class is given, a claim for devices of it. Values are JSON. */
export function podYaml({ cpu, memory, deviceClass, devices, namespace = "default" }) {
  const called = name(deviceClass ? `trial-${deviceClass}` : "trial");
  const requests = Object.fromEntries(Object.entries({ cpu, memory }).filter(([, text]) => text.trim()).map(([key, text]) => [key, text.trim()]));
  const container = { name: "main", image: "app", resources: { requests, ...(deviceClass && { claims: [{ name: "devices" }] }) } };
  const spec = { containers: [container], ...(deviceClass && { resourceClaims: [{ name: "devices", resourceClaimTemplateName: called }] }) };
  const exactly = { deviceClassName: deviceClass, allocationMode: "ExactCount", count: Math.max(1, Number(devices) || 1) };
  const template = deviceClass
    ? `apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: ${JSON.stringify({ name: called, namespace })}\nspec:\n  spec:\n    devices:\n      requests: ${JSON.stringify([{ name: "devices", exactly }])}\n---\n`
    : "";
  return `${template}apiVersion: v1\nkind: Pod\nmetadata: ${JSON.stringify({ name: called, namespace })}\nspec: ${JSON.stringify(spec, null, 2).replace(/\n/g, "\n  ")}\n`;
}

/** Format what is available of a class: devices, or the capacity that claims share. */
function available(of) {
  const [first] = of.capacity || [];
  return first ? `${quantity(first.left)} ${shortName(first.name)} left` : `${count(of.free)} free`;
}

function Small({ label, value, change, placeholder }) {
  return html`<label class="field small-field"><span>${label}</span><input type="text" autocomplete="off" spellcheck=${false} value=${value} placeholder=${placeholder} onInput=${(event) => change(event.currentTarget.value)} /></label>`;
}

/** What can be done with a node, as in `setNode`. */
const ACTIONS = [["drain", "drain it"], ["cordon", "cordon it"], ["remove", "remove it"], ["like", "add one like it"]];

/** Choice of a node and of what happens to it. */
function NodePicker({ used, setNode }) {
  const [chosen, setChosen] = useState({ node: "", action: "drain" });
  const nodes = useApi(used ? "api/nodes" : "", { kinds: ["Node"] });
  const set = (key) => (event) => setChosen({ ...chosen, [key]: event.currentTarget.value });
  return html`<div class="node-picker">
    <label class="field node-field"><span>Node</span>
      <select value=${chosen.node} onChange=${set("node")}>
        <option value="">choose ...</option>
        ${((nodes.data && nodes.data.names) || []).map((one) => html`<option value=${one} selected=${one === chosen.node}>${one}</option>`)}
      </select>
    </label>
    <label class="field"><span>Change</span>
      <select value=${chosen.action} onChange=${set("action")}>
        ${ACTIONS.map(([key, text]) => html`<option value=${key} selected=${key === chosen.action}>${text}</option>`)}
      </select>
    </label>
    <button type="button" disabled=${!chosen.node} onClick=${() => setNode(chosen.node, chosen.action)}>Change this node</button>
  </div>`;
}

/** `add(yaml, replicas)` receives what was composed; `setNode(node, action)` a change of a node. */
export function Picker({ add, setNode }) {
  const [used, setUsed] = useState(false);
  const [fields, setFields] = useState({ cpu: "", memory: "", deviceClass: "", devices: "1", pods: "1" });
  const [error, setError] = useState("");
  const classes = useApi(used ? "api/classes" : "", { kinds: ["DeviceClass"] });
  const workloads = useApi(used ? "api/workloads" : "", { kinds: ["Namespace"] });
  const set = (key) => (value) => setFields({ ...fields, [key]: value });
  const pick = async (event) => {
    const key = event.currentTarget.value;
    event.currentTarget.value = "";
    if (!key) return;
    setError("");
    try {
      const found = await request(`api/workloads/${key.split("/").map(encodeURIComponent).join("/")}`);
      add(found.yaml, fields.pods);
    } catch (failure) {
      setError(failure.message);
    }
  };
  const names = classes.data ? classes.data.classes : [];
  return html`<fieldset class="picker" onFocusIn=${() => setUsed(true)} onPointerEnter=${() => setUsed(true)}>
    <legend>Compose pods and changes of nodes</legend>
    <${Small} label="Number" value=${fields.pods} change=${set("pods")} />
    <${Small} label="CPU" value=${fields.cpu} change=${set("cpu")} placeholder="2" />
    <${Small} label="Memory" value=${fields.memory} change=${set("memory")} placeholder="4Gi" />
    <label class="field"><span>Device class</span>
      <select value=${fields.deviceClass} onChange=${(event) => set("deviceClass")(event.currentTarget.value)}>
        <option value="">none</option>
        ${names.map((one) => html`<option value=${one.name} selected=${one.name === fields.deviceClass}>${one.name} (${available(one)})</option>`)}
      </select>
    </label>
    ${fields.deviceClass && html`<${Small} label="Devices each" value=${fields.devices} change=${set("devices")} />`}
    <button type="button" onClick=${() => add(podYaml(fields), fields.pods)}>Add these pods</button>
    <label class="field workload-field"><span>or more pods of a workload</span>
      <select onChange=${pick}>
        <option value="">choose ...</option>
        ${((workloads.data && workloads.data.items) || []).map((one) => html`<option value=${`${one.namespace}/${one.kind}/${one.name}`}>${one.namespace}/${one.name} (${one.kind}, ${count(one.pods)})</option>`)}
      </select>
    </label>
    <span role="alert" class="past-text">${error}</span>
    <${NodePicker} used=${used} setNode=${setNode} />
  </fieldset>`;
}
