// Claims, filtered and paginated by the server: devices, charges and the pods they are reserved for.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery } from "../router.js";
import { Badge, Choice, ClaimLink, Head, InlineList, Loadable, NodeLink, None, Ref, Search } from "../components.js";
import { Pager, Table, usePageSize } from "../table.js";
import { plural, quantity, shortName, shorten } from "../format.js";

const ROWS = 25;
/** Devices listed of each claim. */
const FEW = 3;
/** States as kubectl get prints them. */
const STATES = ["pending", "allocated", "allocated,reserved", "deleted", "deleted,allocated", "deleted,allocated,reserved"];
const toneOf = (state) => (state === "pending" || state.startsWith("deleted") ? "warn" : "");

/** Details of an allocated device: pinned CPUs, admin access and the consumed capacity. */
function detailsOf(device) {
  return [device.cpus && `CPUs ${device.cpus}`, device.adminAccess && "admin access", ...Object.entries(device.consumed || {}).map(([name, text]) => `${shortName(name)} ${quantity(text, name)}`)].filter(Boolean).join(", ");
}

/** Name of a device, with its pool unless that is named after the node, as on the command line. */
function DeviceName({ of, node }) {
  const [, pool, ...name] = of.device.split("/");
  return html`<span title=${of.device}>${pool === node ? name.join("/") : [pool, ...name].join("/")}</span>`;
}

/** The first devices of a claim: those without details in a line, the others in a line each. */
function Devices({ of, node }) {
  if (!of.length) return html`<${None} />`;
  const plain = of.filter((one) => !detailsOf(one));
  const detailed = of.filter(detailsOf);
  const rest = detailed.length - FEW;
  return html`${plain.length > 0 && html`<span class="block"><${InlineList} items=${plain} most=${FEW} draw=${(one) => html`<${DeviceName} of=${one} node=${node} />`} /></span>`}
    ${detailed.slice(0, FEW).map((one) => html`<span class="block"><${DeviceName} of=${one} node=${node} /> <span class="muted">${detailsOf(one)}</span></span>`)}
    ${rest > 0 && html`<span class="muted">+${rest} more</span>`}`;
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
  const limit = usePageSize(ROWS);
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const state = query.get("state") || "";
  const response = useApi(`api/claims?${new URLSearchParams({ q, state, offset, limit })}`, { kinds: ["ResourceClaim", "Pod", "ResourceSlice"] });
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
            { title: "Devices", cell: (r) => html`<${Devices} of=${r.devices} node=${r.node} />` },
            { title: "Charges", cell: (r) => html`<${Charges} of=${r} />` },
            { title: "Pods", cell: (r) => html`<${Consumers} of=${r.reservedFor || []} namespace=${r.namespace} />` },
          ]}
        />
        <${Pager} total=${data.total} offset=${offset} limit=${limit} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}
