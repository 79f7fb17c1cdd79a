// All pods, filtered and paginated by the server.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery } from "../router.js";
import { Choice, Head, Loadable, Search } from "../components.js";
import { Pager, usePageSize } from "../table.js";
import { PodTable } from "../pods.js";
import { plural } from "../format.js";

const ROWS = 25;

export function Pods({ query }) {
  const limit = usePageSize(ROWS);
  const q = query.get("q") || "";
  const state = query.get("state") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const response = useApi(`api/pods?${new URLSearchParams({ q, state, offset, limit })}`, { kinds: ["Pod", "ResourceClaim", "Node"] });
  return html`<${Head} title="Pods" />
    <div class="controls">
      <${Search} label="Search pods" value=${q} placeholder="name, namespace or node" />
      <${Choice} label="State" name="state" value=${state} options=${[["", "any"], ["running", "with a node"], ["pending", "pending"]]} />
      <p class="found" role="status">${response.data ? plural(response.data.total, "pod") : ""}</p>
    </div>
    <${Loadable} of=${response} what="pods">
      ${(data) => html`<${PodTable} label="Pods" rows=${data.items} node=${true} empty=${q || state ? "No pods match the filter." : "No pods found."} />
        <${Pager} total=${data.total} offset=${offset} limit=${limit} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}
