// First page: the cluster summary and one bar per node and resource.
import { NARROW, html, cx, useMedia, useMemo } from "../ui.js";
import { useApi } from "../store.js";
import { to, replaceQuery } from "../router.js";
import { Badge, Choice, Head, Loadable, Search } from "../components.js";
import { Bar } from "../bars.js";
import { Availability } from "../availability.js";
import { Summary, Totals } from "../summary.js";
import { Pager, usePageSize } from "../table.js";
import { VirtualList } from "../virtual_list.js";
import { byName, count, plural } from "../format.js";

const ROW = 38;
/** On narrow screens the name is above its bars, and the list has pages. */
const NARROW_NAME = 34;
const NARROW_BAR = 24;
const DEFAULT_RESOURCES = ["cpu", "memory"];
const FULL = 0.9;

/** Compute the values that rows are sorted and filtered by, once per response. */
export function computeRows(nodes) {
  const rows = nodes.names.map((name, i) => {
    let past = 0;
    let fullest = 0;
    let claims = false;
    let hidden = 0;
    const free = {};
    for (const resource of nodes.resources) {
      const column = nodes.columns[resource];
      const line = column.line[i];
      const used = column.requests[i] + column.claims[i] + column.overhead[i];
      if (used > line) past += 1;
      else if (used + column.uncounted[i] > line) hidden += 1;
      if (column.claims[i]) claims = true;
      free[resource] = line - used;
      const share = line > 0 ? used / line : used > 0 ? 2 : 0;
      if (share > fullest) fullest = share;
    }
    const devices = { all: 0, free: 0, partly: 0, taken: 0 };
    for (const one of Object.values(nodes.devices || {})) for (const key of Object.keys(devices)) devices[key] += one[key][i];
    const down = nodes.ready[i] === false || nodes.unschedulable[i] === true;
    return { i, name, past, hidden, fullest, claims, free, devices, down, pods: nodes.pods[i] };
  });
  return rows;
}

const FILTERS = {
  "": ["All nodes", () => true],
  past: ["Past the line", (row) => row.past > 0],
  uncounted: ["Past the line with claims not counted", (row) => row.hidden > 0],
  full: ["Nearly full (90% or more)", (row) => row.fullest >= FULL],
  claims: ["With claims", (row) => row.claims],
  devices: ["With available devices", (row) => row.devices.free + row.devices.partly > 0],
  down: ["NotReady or SchedulingDisabled", (row) => row.down],
};

function sorts(resources) {
  const free = resources.map((resource) => [`free:${resource}`, `Least free ${resource}`]);
  return [["", "Past the line, then fullest"], ["name", "Name"], ...free, ["devices", "Most free devices"], ["pods", "Most pods"]];
}

export function filterAndSort(rows, { q, show, sort }) {
  const search = q.trim().toLowerCase();
  const [, keep] = FILTERS[show] || FILTERS[""];
  const found = rows.filter((row) => keep(row) && (!search || row.name.toLowerCase().includes(search)));
  const name = (a, b) => byName(a.name, b.name);
  if (sort === "name") found.sort(name);
  else if (sort === "pods") found.sort((a, b) => b.pods - a.pods || name(a, b));
  else if (sort === "devices") found.sort((a, b) => b.devices.free - a.devices.free || b.devices.partly - a.devices.partly || name(a, b));
  else if (sort.startsWith("free:")) {
    const resource = sort.slice(5);
    found.sort((a, b) => (a.free[resource] ?? Infinity) - (b.free[resource] ?? Infinity) || name(a, b));
  } else found.sort((a, b) => b.past - a.past || b.hidden - a.hidden || b.fullest - a.fullest || name(a, b));
  return found;
}

export function Overview({ query }) {
  const overview = useApi("api/overview");
  const nodes = useApi("api/nodes", { kinds: ["Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceClass"] });
  return html`<${Head} title="Cluster ledger" tab="Overview" />
    <${Loadable} of=${overview} what="the cluster">${(data) => html`<${Summary} data=${data} /><${Totals} data=${data} /><${Availability} data=${data} />`}<//>
    ${(overview.data || overview.error) && html`<${Loadable} of=${nodes} what="nodes">${(data) => html`<${Nodes} data=${data} query=${query} />`}<//>`}`;
}

/** Return the resources that at least one node has or uses. */
function present(data) {
  return data.resources.filter((name) => ["line", "requests", "claims", "overhead", "uncounted"].some((key) => data.columns[name][key].some(Boolean)));
}

function Nodes({ data, query }) {
  const rows = useMemo(() => computeRows(data), [data]);
  const all = useMemo(() => present(data), [data]);
  const q = query.get("q") || "";
  const show = query.get("show") || "";
  const sort = query.get("sort") || "";
  const found = useMemo(() => filterAndSort(rows, { q, show, sort }), [rows, q, show, sort]);
  const chosen = (query.get("resources") || "").split(",").filter((name) => all.includes(name));
  const defaults = all.filter((name) => DEFAULT_RESOURCES.includes(name));
  const resources = chosen.length ? chosen : defaults.length ? defaults : all.slice(0, 2);
  const counts = useMemo(() => Object.fromEntries(Object.entries(FILTERS).map(([key, [, keep]]) => [key, rows.filter(keep).length])), [rows]);
  const devices = Object.keys(data.devices || {}).length > 0;
  const toggle = (name) => {
    const next = resources.includes(name) ? resources.filter((one) => one !== name) : all.filter((one) => one === name || resources.includes(one));
    replaceQuery({ resources: next.length ? next.join(",") : "" });
  };
  const narrow = useMedia(NARROW);
  const limit = usePageSize(Infinity);
  const offset = narrow ? Math.max(0, Number(query.get("offset")) || 0) : 0;
  const from = offset < found.length ? offset : 0;
  const listed = Math.min(limit, found.length - from);
  const height = narrow ? NARROW_NAME + NARROW_BAR * resources.length + 8 : ROW;
  const grid = narrow ? {} : { gridTemplateColumns: `minmax(9rem, 1.2fr) ${devices ? "minmax(8.5rem, 0.6fr) " : ""}repeat(${resources.length}, minmax(11rem, 2fr))` };
  return html`<section class="nodes" aria-labelledby="nodes-head">
    <div class="section-head"><h2 id="nodes-head">Nodes</h2><span class="muted" role="status">${found.length === rows.length ? plural(rows.length, "node") : `${count(found.length)} of ${plural(rows.length, "node")}`}</span></div>
    <div class="controls">
      <${Search} label="Search nodes" value=${q} placeholder="name" />
      <${Choice} label="Show" name="show" value=${show} options=${Object.entries(FILTERS).map(([key, [text]]) => [key, `${text} (${count(counts[key])})`])} />
      <${Choice} label="Order" name="sort" value=${sort} options=${sorts(resources)} />
      <fieldset class="checks">
        <legend>Resources</legend>
        ${all.map((name) => html`<label><input type="checkbox" checked=${resources.includes(name)} onChange=${() => toggle(name)} />${name}</label>`)}
      </fieldset>
    </div>
    ${found.length === 0
      ? html`<p class="empty">${rows.length ? "No nodes match the filter." : "No nodes found."}</p>`
      : html`<div class=${cx("node-list", resources.some((name) => data.columns[name].uncounted.some(Boolean)) && "has-uncounted")} role="table" aria-label="Ledger of nodes" aria-rowcount=${listed + 1} aria-colcount=${resources.length + 1 + (devices ? 1 : 0)}>
          <div class="node-list-head" role="rowgroup">
            <div class="node-row" role="row" aria-rowindex="1" style=${grid}>
              <span role="columnheader">Node</span>
              ${devices && html`<span role="columnheader">Devices</span>`}
              ${resources.map((name) => html`<span role="columnheader">${name}</span>`)}
            </div>
          </div>
          <${VirtualList}
            count=${listed}
            height=${height}
            keyOf=${(i) => found[from + i].name}
            row=${(i, focus) => html`<${NodeRow} data=${data} row=${found[from + i]} resources=${resources} devices=${devices} grid=${grid} focus=${focus} />`}
          />
        </div>
        <${Pager} total=${found.length} offset=${from} limit=${limit} go=${(next) => replaceQuery({ offset: next || "" })} />`}
  </section>`;
}

function NodeRow({ data, row, resources, devices, grid, focus }) {
  return html`<div class=${cx("node-row", row.past + row.hidden > 0 && "is-past")} role="presentation" style=${grid}>
    <span role="rowheader" class="node-name">
      <a href=${to(["nodes", row.name])} title=${row.name} ...${focus}>${row.name}</a>
      ${data.ready[row.i] === false && html`<${Badge} tone="bad">NotReady<//>`}
      ${data.unschedulable[row.i] && html`<${Badge} tone="warn">SchedulingDisabled<//>`}
    </span>
    ${devices &&
    html`<span role="cell" class="node-devices"><${DeviceCount} of=${row.devices} /></span>`}
    ${resources.map((resource) => {
      const column = data.columns[resource];
      const one = { line: column.line[row.i], requests: column.requests[row.i], claims: column.claims[row.i], overhead: column.overhead[row.i], uncounted: column.uncounted[row.i] };
      return html`<span role="cell" class="bar-cell"><span class="bar-name" aria-hidden="true">${resource}</span>${one.line || one.requests || one.claims || one.overhead || one.uncounted ? html`<${Bar} resource=${resource} row=${one} />` : html`<span class="muted">none</span>`}</span>`;
    })}
  </div>`;
}

/** Number of available devices of a node, free or partly used. */
function DeviceCount({ of }) {
  if (!of.all) return html`<span class="muted">none</span>`;
  const partly = of.partly > 0 && html`<b>${count(of.partly)}</b> partly`;
  const free = (of.free > 0 || !of.partly) && html`<b>${count(of.free)}</b> free`;
  const text = `${count(of.all)} devices: ${count(of.free)} free, ${count(of.partly)} partly, ${count(of.taken)} taken, ${count(of.all - of.free - of.partly - of.taken)} unavailable`;
  return html`<span title=${text}>${free}${free && partly ? ", " : ""}${partly}${!(free && partly) && html`<span class="of"> of ${count(of.all)}</span>`}</span>`;
}
