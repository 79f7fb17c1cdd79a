// Claims, filtered and paginated by the server: devices, charges and the pods they are reserved for.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery } from "../router.js";
import { Badge, Choice, ClaimLink, Head, InlineList, Loadable, NodeLink, Ref, Search } from "../components.js";
import { Pager, Table } from "../table.js";
import { plural, quantity, shorten } from "../format.js";

const LIMIT = 25;
/** States as kubectl get prints them. */
const STATES = ["pending", "allocated", "allocated,reserved", "deleted", "deleted,allocated", "deleted,allocated,reserved"];
const toneOf = (state) => (state === "pending" || state.startsWith("deleted") ? "warn" : "");

/** One allocated device of a claim and the consumed capacity. */
function AllocatedDevice({ of }) {
  const parts = [of.cpus && `CPUs ${of.cpus}`, of.adminAccess && "admin access", ...Object.entries(of.consumed || {}).map(([name, text]) => `${name} ${quantity(text)}`)].filter(Boolean);
  return html`<span class="block">${of.device}${parts.length > 0 && html` <span class="muted">${parts.join(", ")}</span>`}</span>`;
}

/** The first devices of a claim. */
function Devices({ of }) {
  if (!of.length) return html`<span class="muted">-</span>`;
  const rest = of.length - 3;
  return html`${of.slice(0, 3).map((one) => html`<${AllocatedDevice} of=${one} />`)}${rest > 0 && html`<span class="muted">+${rest} more</span>`}`;
}

/** Charges of a claim to its node. */
function Charges({ of }) {
  if (of.problem) return html`<${Badge} tone="bad">error<//><span class="under">${of.problem}</span>`;
  const uncounted = Object.entries(of.notCounted || {}).map(([resource, text]) => html`<span class="block">${resource} <b>${shorten(resource, text)}</b> <${Badge} tone="warn">not counted<//></span>`);
  if (!of.charges.length) return uncounted.length ? uncounted : html`<span class="muted">nothing</span>`;
  return html`${of.charges.map((one) => html`<span class="block" title=${`${one.amount} by ${one.rule}`}>${one.resource} <b>${shorten(one.resource, one.amount)}</b>${one.rule === "perPod" && html` <span class="muted">per pod</span>`}${one.drawn != null && html` <span class="muted">${one.drawn} drawn</span>`}</span>`)}
    ${!of.booked && html`<span class="under">not charged yet</span>`}`;
}

/** Pods that a claim is reserved for. */
export function Consumers({ of, namespace }) {
  return html`<${InlineList} items=${of} draw=${(pod) => html`<${Ref} kind="pod" of=${pod.includes("/") ? pod : `${namespace}/${pod}`} />`} />`;
}

export function Claims({ query }) {
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const state = query.get("state") || "";
  const response = useApi(`api/claims?${new URLSearchParams({ q, state, offset, limit: LIMIT })}`, { kinds: ["ResourceClaim", "Pod", "ResourceSlice"] });
  return html`<${Head} title="Claims" />
    <div class="controls">
      <${Search} label="Search claims" value=${q} placeholder="name, namespace, node, device or pod" />
      <${Choice} label="State" name="state" value=${state} options=${[["", "any"], ...STATES.map((one) => [one, one])]} />
      <p class="found" role="status">${response.data ? plural(response.data.total, "claim") : ""}</p>
    </div>
    <${Loadable} of=${response} what="claims">
      ${(data) => html`<${Table}
          label="Claims"
          empty=${q || state ? "No claims match the filter." : "No claims found."}
          rows=${data.items}
          keyOf=${(r) => `${r.namespace}/${r.name}`}
          columns=${[
            { title: "Claim", value: (r) => `${r.namespace}/${r.name}`, cell: (r) => html`<${ClaimLink} namespace=${r.namespace} name=${r.name} />` },
            { title: "State", value: (r) => r.state, cell: (r) => html`<${Badge} tone=${toneOf(r.state)}>${r.state}<//>` },
            { title: "Node", value: (r) => r.node || "", cell: (r) => html`<${NodeLink} name=${r.node} />` },
            { title: "Devices", cell: (r) => html`<${Devices} of=${r.devices} />` },
            { title: "Charges", cell: (r) => html`<${Charges} of=${r} />` },
            { title: "Pods", cell: (r) => html`<${Consumers} of=${r.reservedFor || []} namespace=${r.namespace} />` },
          ]}
        />
        <${Pager} total=${data.total} offset=${offset} limit=${LIMIT} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}
