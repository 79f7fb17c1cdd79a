// Devices and pools, filtered and paginated by the server.
import { html } from "../ui.js";
import { useApi } from "../store.js";
import { replaceQuery, to } from "../router.js";
import { Badge, Choice, Head, Loadable, NodeLink, None, Search } from "../components.js";
import { Counter } from "../devices.js";
import { PhysicalTable } from "../physical.js";
import { Pager, Table, usePageSize } from "../table.js";
import { count, plural, shortName, sizeOf } from "../format.js";

const ROWS = 25;
/** Counters of a pool that are shown one by one. */
const FEW_COUNTERS = 4;
const STATES = ["free", "partly", "shared", "taken", "blocked", "tainted", "stale"];
const KINDS = ["ResourceSlice", "ResourceClaim", "DeviceTaintRule", "Node"];

export function Tabs({ current }) {
  const tab = (key, text) => html`<a href=${to([key])} aria-current=${current === key ? "page" : undefined}>${text}</a>`;
  return html`<nav class="tabs" aria-label="Devices or pools">${tab("devices", "Devices")}${tab("pools", "Pools")}</nav>`;
}

export function Devices({ query }) {
  const limit = usePageSize(ROWS);
  const q = query.get("q") || "";
  const state = query.get("state") || "";
  const deviceClass = query.get("class") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const response = useApi(`api/devices?${new URLSearchParams({ q, state, class: deviceClass, group: "physical", offset, limit })}`, { kinds: KINDS });
  const classes = useApi("api/classes", { kinds: KINDS });
  const names = classes.data ? classes.data.classes.map((one) => one.name) : deviceClass ? [deviceClass] : [];
  return html`<${Head} title="Devices"><${Tabs} current="devices" /><//>
    <div class="controls">
      <${Search} label="Search devices" value=${q} placeholder="device, driver, pool, node or claim" />
      <${Choice} label="State" name="state" value=${state} options=${[["", "any"], ...STATES.map((one) => [one, one])]} />
      <${Choice} label="Class" name="class" value=${deviceClass} options=${[["", "any"], ...names.map((one) => [one, one])]} />
      <p class="found" role="status">${response.data ? `${plural(response.data.physical, "device")}${response.data.devices > response.data.physical ? `, ${count(response.data.devices)} with partitions` : ""}` : ""}</p>
    </div>
    <${Loadable} of=${response} what="devices">
      ${(data) => html`<${PhysicalTable} label="Devices" rows=${data.items} empty=${q || state || deviceClass ? "No devices match the filter." : "No devices found: no ResourceSlice publishes any."} />
        <${Pager} total=${data.total} offset=${offset} limit=${limit} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}

export function Pools({ query }) {
  const limit = usePageSize(ROWS);
  const q = query.get("q") || "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const response = useApi(`api/pools?${new URLSearchParams({ q, offset, limit })}`, { kinds: KINDS });
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
            { title: "Devices", num: true, value: (r) => r.devices.all, cell: (r) => html`<b>${count(r.devices.all)}</b>${r.published !== r.devices.all && html`<span class="under">${count(r.published)} with partitions</span>`}` },
            { title: "Free", num: true, value: (r) => states(r).free, cell: (r) => count(states(r).free) },
            { title: "Partly", num: true, value: (r) => states(r).partly, cell: (r) => count(states(r).partly) },
            { title: "Taken", num: true, value: (r) => states(r).taken, cell: (r) => count(states(r).taken) },
            { title: "Unavailable", short: "Unavail.", num: true, value: (r) => states(r).unavailable, cell: (r) => count(states(r).unavailable) },
            { title: "Remaining", cls: "wide-cell", cell: (r) => html`<${Remaining} of=${r} />` },
            { title: "State", value: (r) => r.standing || "", cell: (r) => html`<${PoolState} of=${r} />` },
          ]}
        />
        <${Pager} total=${data.total} offset=${offset} limit=${limit} go=${(next) => replaceQuery({ offset: next || "" })} />`}
    <//>`;
}

/** Numbers of devices by state: partitions exclude each other, so that physical devices are counted. */
const states = (pool) => pool.devices;

/** What is left of shares and of a few counters; of many, how many counter sets are used, and their memory. */
function Remaining({ of }) {
  const shares = Object.entries(of.shares || {}).map(([name, one]) => ({ set: "", counter: shortName(name), ...one }));
  const counters = of.counters || [];
  if (!shares.length && !counters.length) return html`<${None} />`;
  const bars = [...shares, ...(counters.length <= FEW_COUNTERS ? counters : sumOf(counters.filter((one) => one.counter === "memory")))];
  const { unused, partlyUsed, usedUp } = of.counterSets;
  return html`${bars.map((one) => html`<${Counter} key=${`${one.set}/${one.counter}`} of=${one} />`)}
    ${counters.length > FEW_COUNTERS && html`<span class="under">counter sets: ${count(unused)} unused, ${count(partlyUsed)} partly used, ${count(usedUp)} used up</span>`}`;
}

/** Sum of counters of one name, as a list of at most one. */
function sumOf(counters) {
  const sum = (key) => String(counters.reduce((total, one) => total + sizeOf(one[key]), 0));
  return counters.length ? [{ set: "counters", counter: counters[0].counter, whole: sum("whole"), left: sum("left") }] : [];
}

function PoolState({ of }) {
  const complete = !of.standing || of.standing === "complete";
  return html`<${Badge} tone=${complete ? "good" : "bad"}>${of.standing || "complete"}<//>
    ${of.why && html`<span class="under">${of.why}</span>`}
    <details class="rest"><summary>details</summary><span class="under">generation ${of.generation}, ${of.slices} of ${plural(of.expectedSlices, "slice")}</span></details>`;
}
