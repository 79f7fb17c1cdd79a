// Table of pods: one row each, with everything that the pod is charged and holds.
import { html } from "./ui.js";
import { ClaimLink, InlineList, NodeLink, None, PodLink } from "./components.js";
import { links } from "./router.js";
import { Table } from "./table.js";
import { age, amount, quantity, shortName } from "./format.js";

const USUAL = ["cpu", "memory"];
const FEW_DEVICES = 4;
const NAMES = ["requests", "claims", "overhead"];

const total = (row, resource) => (row.amounts[resource] || []).reduce((sum, one) => sum + one, 0);

/** Total of a resource and, unless it is requests only, its parts. */
function Charged({ row, resource }) {
  const parts = row.amounts[resource];
  const drawn = row.drawn[resource];
  if (!parts || (!parts.some(Boolean) && !drawn)) return html`<${None} />`;
  const rules = (row.rules[resource] || []).join(", ");
  const named = NAMES.map((name, i) => [name, parts[i]]).filter(([, value]) => value);
  const mixed = named.length > 1 || (named.length === 1 && named[0][0] !== "requests");
  return html`<b>${amount(resource, total(row, resource))}</b>
    ${mixed && html`<span class="under" title=${rules}>${named.map(([name, value]) => `${name} ${amount(resource, value)}`).join(" + ")}</span>`}
    ${drawn > 0 && html`<span class="under">draws ${amount(resource, drawn)} from its claim</span>`}`;
}

/** One device by name; its driver, pool and claim are in the tooltip. */
function DeviceName({ of, namespace }) {
  const title = `${of.driver}/${of.pool}/${of.device}${of.claim ? ` by claim ${of.claim}` : ""}`;
  return of.claim && namespace ? html`<a href=${links.claim(namespace, of.claim)} title=${title}>${of.device}</a>` : html`<span title=${title}>${of.device}</span>`;
}

/** Devices of a pod by name: whole ones in a line, those with a consumed capacity in a line each. */
export function DeviceNames({ of, namespace }) {
  if (!of.length) return html`<${None} />`;
  const shareOf = (one) => Object.entries(one.consumed || {}).map(([name, text]) => `${shortName(name)} ${quantity(text, name)}`).join(", ");
  const whole = of.filter((one) => !shareOf(one));
  const shared = of.filter(shareOf);
  const rest = shared.length - FEW_DEVICES;
  return html`${whole.length > 0 && html`<span class="block" title=${whole.map((one) => one.device).join(", ")}><${InlineList} items=${whole} most=${FEW_DEVICES} draw=${(one) => html`<${DeviceName} of=${one} namespace=${namespace} />`} /></span>`}
    ${shared.slice(0, FEW_DEVICES).map((one) => html`<span class="block"><${DeviceName} of=${one} namespace=${namespace} /> <span class="muted">${shareOf(one)}</span></span>`)}
    ${rest > 0 && html`<span class="muted" title=${shared.map((one) => one.device).join(", ")}>+${rest} more</span>`}`;
}

function PodName({ of }) {
  const placeholder = of.placeholder && html`<span class="under" title="This pod requests what the claims take, so that every scheduler counts it.">placeholder ${of.placeholder}</span>`;
  if (of.name) return html`<${PodLink} namespace=${of.namespace} name=${of.name} />${of.standsFor ? html`<span class="under">placeholder of ${of.standsFor}, beyond its charge</span>` : placeholder}`;
  return html`<span class="muted">pool of </span><${ClaimLink} namespace=${of.namespace} name=${of.claim} />${placeholder}`;
}

/** `node` adds a column with the node; `limit` splits the table into pages. */
export function PodTable({ label, rows, node = false, empty = "No pods.", limit = 0 }) {
  const others = [...new Set(rows.flatMap((row) => Object.keys(row.amounts)))].filter((name) => name !== "pods" && !USUAL.includes(name) && rows.some((row) => total(row, name)));
  const resource = (name) => ({ title: name === "cpu" ? "CPU" : name === "memory" ? "Memory" : name, num: true, value: (r) => total(r, name), cell: (r) => html`<${Charged} row=${r} resource=${name} />` });
  const priority = { title: "Priority", num: true, value: (r) => r.priority || 0, cell: (r) => html`<span title=${r.priorityClass || ""}>${r.priority == null ? "-" : r.priority}</span>` };
  const columns = [
    { title: "Pod", value: (r) => `${r.namespace}/${r.name || ""}`, cell: (r) => html`<${PodName} of=${r} />` },
    { title: "Status", value: (r) => r.status || "", cell: (r) => html`<span title=${r.why || ""}>${r.status || "-"}</span>` },
    ...USUAL.map(resource),
    ...others.map(resource),
    { title: "Devices", cls: "name-cell", value: (r) => r.devices.length, cell: (r) => html`<${DeviceNames} of=${r.devices} namespace=${r.namespace} />` },
    ...(rows.some((row) => row.priority) ? [priority] : []),
    { title: "Age", num: true, value: (r) => -(Date.parse(r.created || "") || 0), cell: (r) => html`<span title=${r.created || ""}>${r.name ? age(r.created) : "-"}</span>` },
  ];
  if (node) columns.splice(2, 0, { title: "Node", value: (r) => r.node || "", cell: (r) => html`<${NodeLink} name=${r.node} />` });
  return html`<${Table} label=${label} empty=${empty} rows=${rows} keyOf=${(r) => `${r.namespace}/${r.name || ""}/${r.claim || ""}`} columns=${columns} limit=${limit} />`;
}
