// Owns: all claims, found and paged by the server: what each has, what it charges, and for whom.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery } from "../router.js";
import { Answer, Badge, ClaimLink, Head, NodeLink, Ref, Search, Several } from "../pieces.js";
import { Pager, Table } from "../table.js";
import { count } from "../format.js";

const LIMIT = 50;
const TONES = { pending: "warn", unallocated: "warn", deleting: "warn", stale: "bad" };

/** {cpu: "4"} or [{resource, text}] as words. */
export function charges(of) {
  if (!of) return [];
  if (Array.isArray(of)) return of.map((one) => (typeof one === "string" ? one : `${one.resource} ${one.text ?? one.amount}`));
  return Object.entries(of).map(([name, one]) => `${name} ${one && typeof one === "object" ? one.text ?? one.amount : one}`);
}

function deviceName(one) {
  return typeof one === "string" ? one : [one.driver, one.pool, one.device].filter(Boolean).join("/");
}

export function Claims({ query }) {
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const answer = useApi(`api/claims?${new URLSearchParams({ q, offset, limit: LIMIT })}`, { kinds: ["ResourceClaim", "Pod", "ResourceSlice"] });
  return html`<${Head} title="Claims" />
    <div class="controls">
      <${Search} label="Find a claim" value=${q} placeholder="name, namespace, node, device or pod" />
      <p class="found" role="status">${answer.data ? `${count(answer.data.total)} found` : ""}</p>
    </div>
    <${Answer} of=${answer} what="The list of claims">
      ${(data) => html`<${Table}
          label="Claims"
          empty="No claim is like that."
          rows=${data.items}
          keyOf=${(r) => `${r.namespace}/${r.name || r.claim}`}
          columns=${[
            { title: "Claim", value: (r) => `${r.namespace}/${r.name || r.claim}`, cell: (r) => html`<${ClaimLink} namespace=${r.namespace} name=${r.name || r.claim} />` },
            { title: "State", value: (r) => r.state, cell: (r) => html`<${Badge} tone=${TONES[r.state] || ""}>${r.state}<//>` },
            { title: "Node", value: (r) => r.node || "", cell: (r) => html`<${NodeLink} name=${r.node} />` },
            { title: "Devices", cell: (r) => html`<${Several} items=${(r.devices || []).map(deviceName)} most=${3} />${r.cpus && html` <span class="muted">CPUs ${r.cpus}</span>`}` },
            { title: "Charges", cell: (r) => html`<${Several} items=${charges(r.charges)} />` },
            { title: "Pods", cell: (r) => html`<${Several} items=${r.pods || r.reservedFor || []} draw=${(pod) => html`<${Ref} kind="pod" of=${typeof pod === "string" && !pod.includes("/") ? { namespace: r.namespace, name: pod } : pod} />`} />` },
          ]}
        />
        <${Pager} total=${data.total} offset=${offset} limit=${LIMIT} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}
