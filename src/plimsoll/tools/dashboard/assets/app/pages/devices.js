// Owns: all devices (found and paged by the server) and the pools they belong to.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery, to } from "../router.js";
import { Answer, Badge, Choice, Head, NodeLink, Search } from "../pieces.js";
import { Counter, DeviceTable } from "../devices.js";
import { Pager, Table } from "../table.js";
import { count, plural, sizeOf } from "../format.js";

const LIMIT = 50;
const STATES = ["free", "partly", "shared", "taken", "blocked", "tainted", "stale"];
const KINDS = ["ResourceSlice", "ResourceClaim", "DeviceTaintRule", "Node"];

export function Tabs({ now }) {
  const tab = (key, text) => html`<a href=${to([key])} aria-current=${now === key ? "page" : undefined}>${text}</a>`;
  return html`<nav class="tabs" aria-label="Devices or pools">${tab("devices", "Devices")}${tab("pools", "Pools")}</nav>`;
}

export function Devices({ query }) {
  const q = query.get("q") || "";
  const state = query.get("state") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const answer = useApi(`api/devices?${new URLSearchParams({ q, state, offset, limit: LIMIT })}`, { kinds: KINDS });
  return html`<${Head} title="Devices"><${Tabs} now="devices" /><//>
    <div class="controls">
      <${Search} label="Find a device" value=${q} placeholder="device, driver, pool, node or claim" />
      <${Choice} label="State" name="state" value=${state} options=${[["", "any"], ...STATES.map((one) => [one, one])]} />
      <p class="found" role="status">${answer.data ? plural(answer.data.total, "device") : ""}</p>
    </div>
    <${Answer} of=${answer} what="The list of devices">
      ${(data) => html`<${DeviceTable} label="Devices" rows=${data.items} empty=${q || state ? "No device is like that." : "No driver has published devices."} />
        <${Pager} total=${data.total} offset=${offset} limit=${LIMIT} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}

export function Pools({ query }) {
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const answer = useApi(`api/pools?${new URLSearchParams({ q, offset, limit: LIMIT })}`, { kinds: KINDS });
  return html`<${Head} title="Pools"><${Tabs} now="pools" /><//>
    <div class="controls">
      <${Search} label="Find a pool" value=${q} placeholder="pool, driver, node or state" />
      <p class="found" role="status">${answer.data ? plural(answer.data.total, "pool") : ""}</p>
    </div>
    <${Answer} of=${answer} what="The list of pools">
      ${(data) => html`<${Table}
          label="Pools"
          empty=${q ? "No pool is like that." : "No driver has published devices."}
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
            { title: "Left of counters and shares", cls: "wide-cell", cell: (r) => html`<${Left} of=${r} />` },
            { title: "Generation", num: true, value: (r) => r.generation, cell: (r) => r.generation },
            { title: "State", value: (r) => r.standing || "", cell: (r) => html`<${Standing} of=${r} />` },
          ]}
        />
        <${Pager} total=${data.total} offset=${offset} limit=${LIMIT} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}

const FEW_COUNTERS = 4;

/** How much of a counter is gone; the fullest are told first. */
function gone(one) {
  const whole = sizeOf(one.whole);
  return whole > 0 ? 1 - sizeOf(one.left) / whole : 0;
}

function Left({ of }) {
  const shares = Object.entries(of.shares || {}).map(([name, one]) => ({ set: "", counter: name, ...one }));
  const all = [...shares, ...(of.counters || [])].sort((a, b) => gone(b) - gone(a) || sizeOf(b.whole) - sizeOf(a.whole));
  if (!all.length) return html`<span class="muted">-</span>`;
  const draw = (one) => html`<${Counter} key=${`${one.set}/${one.counter}`} of=${one} />`;
  const rest = all.slice(FEW_COUNTERS);
  return html`${all.slice(0, FEW_COUNTERS).map(draw)}${rest.length > 0 && html`<details class="rest"><summary>${plural(rest.length, "more counter")}</summary>${rest.map(draw)}</details>`}`;
}

function Standing({ of }) {
  const fine = !of.standing || of.standing === "complete";
  return html`<${Badge} tone=${fine ? "good" : "bad"}>${of.standing || "complete"}<//>
    ${!fine && of.expectedSlices ? html`<span class="under">${of.slices} of ${of.expectedSlices} slices</span>` : null}
    ${of.why && html`<span class="under">${of.why}</span>`}`;
}
