// Devices and pools, filtered and paginated by the server.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery, to } from "../router.js";
import { Badge, Choice, Head, Loadable, NodeLink, Search } from "../components.js";
import { Counter, DeviceTable } from "../devices.js";
import { Pager, Table } from "../table.js";
import { count, plural, sizeOf } from "../format.js";

const LIMIT = 50;
const STATES = ["free", "partly", "shared", "taken", "blocked", "tainted", "stale"];
const KINDS = ["ResourceSlice", "ResourceClaim", "DeviceTaintRule", "Node"];

export function Tabs({ current }) {
  const tab = (key, text) => html`<a href=${to([key])} aria-current=${current === key ? "page" : undefined}>${text}</a>`;
  return html`<nav class="tabs" aria-label="Devices or pools">${tab("devices", "Devices")}${tab("pools", "Pools")}</nav>`;
}

export function Devices({ query }) {
  const q = query.get("q") || "";
  const state = query.get("state") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const response = useApi(`api/devices?${new URLSearchParams({ q, state, offset, limit: LIMIT })}`, { kinds: KINDS });
  return html`<${Head} title="Devices"><${Tabs} current="devices" /><//>
    <div class="controls">
      <${Search} label="Search devices" value=${q} placeholder="device, driver, pool, node or claim" />
      <${Choice} label="State" name="state" value=${state} options=${[["", "any"], ...STATES.map((one) => [one, one])]} />
      <p class="found" role="status">${response.data ? plural(response.data.total, "device") : ""}</p>
    </div>
    <${Loadable} of=${response} what="devices">
      ${(data) => html`<${DeviceTable} label="Devices" rows=${data.items} empty=${q || state ? "No devices match the filter." : "No devices found: no ResourceSlice publishes any."} />
        <${Pager} total=${data.total} offset=${offset} limit=${LIMIT} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}

export function Pools({ query }) {
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const response = useApi(`api/pools?${new URLSearchParams({ q, offset, limit: LIMIT })}`, { kinds: KINDS });
  return html`<${Head} title="Pools"><${Tabs} current="pools" /><//>
    <div class="controls">
      <${Search} label="Search pools" value=${q} placeholder="pool, driver, node or state" />
      <p class="found" role="status">${response.data ? plural(response.data.total, "pool") : ""}</p>
    </div>
    <${Loadable} of=${response} what="pools">
      ${(data) => html`<${Table}
          label="Pools"
          empty=${q ? "No pools match the filter." : "No pools found: there are no ResourceSlices."}
          rows=${data.items}
          keyOf=${(r) => `${r.driver}/${r.pool}`}
          columns=${[
            { title: "Pool", value: (r) => r.pool, cell: (r) => html`<a href=${to(["devices"], { q: `${r.driver}/${r.pool}/` })}>${r.pool}</a><span class="under">${r.driver}</span>` },
            { title: "Node", value: (r) => r.node || "", cell: (r) => (r.node ? html`<${NodeLink} name=${r.node} />` : html`<span class="muted">several</span>`) },
            { title: "Devices", num: true, value: (r) => r.devices.all, cell: (r) => count(r.devices.all) },
            { title: "Free", num: true, value: (r) => r.devices.free, cell: (r) => html`<b>${count(r.devices.free)}</b>` },
            { title: "Partly", num: true, value: (r) => r.devices.partly, cell: (r) => count(r.devices.partly) },
            { title: "Taken", num: true, value: (r) => r.devices.taken, cell: (r) => count(r.devices.taken) },
            { title: "Unavailable", num: true, value: (r) => r.devices.unavailable, cell: (r) => count(r.devices.unavailable) },
            { title: "Remaining counters and shares", cls: "wide-cell", cell: (r) => html`<${Remaining} of=${r} />` },
            { title: "Generation", num: true, value: (r) => r.generation, cell: (r) => r.generation },
            { title: "State", value: (r) => r.standing || "", cell: (r) => html`<${PoolState} of=${r} />` },
          ]}
        />
        <${Pager} total=${data.total} offset=${offset} limit=${LIMIT} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}

const FEW_COUNTERS = 4;

/** Return the used share of a counter; the fullest are shown first. */
function usedShare(one) {
  const total = sizeOf(one.whole);
  return total > 0 ? 1 - sizeOf(one.left) / total : 0;
}

function Remaining({ of }) {
  const shares = Object.entries(of.shares || {}).map(([name, one]) => ({ set: "", counter: name, ...one }));
  const all = [...shares, ...(of.counters || [])].sort((a, b) => usedShare(b) - usedShare(a) || sizeOf(b.whole) - sizeOf(a.whole));
  if (!all.length) return html`<span class="muted">-</span>`;
  const draw = (one) => html`<${Counter} key=${`${one.set}/${one.counter}`} of=${one} />`;
  const rest = all.slice(FEW_COUNTERS);
  return html`${all.slice(0, FEW_COUNTERS).map(draw)}${rest.length > 0 && html`<details class="rest"><summary>${plural(rest.length, "more counter")}</summary>${rest.map(draw)}</details>`}`;
}

function PoolState({ of }) {
  const complete = !of.standing || of.standing === "complete";
  return html`<${Badge} tone=${complete ? "good" : "bad"}>${of.standing || "complete"}<//>
    ${!complete && of.expectedSlices ? html`<span class="under">${of.slices} of ${of.expectedSlices} slices</span>` : null}
    ${of.why && html`<span class="under">${of.why}</span>`}`;
}
