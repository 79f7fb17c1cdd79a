// Owns: the first page: what is past its line and what is pending, the totals, and one bar per node and resource.
import { html, cx, useMedia, useMemo } from "../ui.js";
import { useApi } from "../store.js";
import { to, replaceQuery } from "../router.js";
import { Answer, Badge, Choice, Head, PodLink, Search } from "../pieces.js";
import { Bar, LedgerCard, Legend } from "../bars.js";
import { Windowed } from "../windowed.js";
import { byName, count, plural } from "../format.js";
import { Icon } from "../marks.js";

const ROW = 38;
/** On a phone the name stands above its bars. */
const NARROW = "(max-width: 640px)";
const NARROW_NAME = 34;
const NARROW_BAR = 24;
const SHOWN_AT_FIRST = ["cpu", "memory"];
const FULL = 0.9;

/** What every row is sorted and filtered by, computed once per answer. */
export function digest(nodes) {
  const rows = nodes.names.map((name, i) => {
    let past = 0;
    let fullest = 0;
    let claims = false;
    const free = {};
    for (const resource of nodes.resources) {
      const column = nodes.columns[resource];
      const line = column.line[i];
      const taken = column.requests[i] + column.claims[i] + column.overhead[i];
      if (taken > line) past += 1;
      if (column.claims[i]) claims = true;
      free[resource] = line - taken;
      const share = line > 0 ? taken / line : taken > 0 ? 2 : 0;
      if (share > fullest) fullest = share;
    }
    let devices = 0;
    let taken = 0;
    for (const one of Object.values(nodes.devices || {})) {
      devices += one.all[i];
      taken += one.taken[i];
    }
    const down = nodes.ready[i] === false || nodes.unschedulable[i] === true;
    return { i, name, past, fullest, claims, free, devices, taken, down, pods: nodes.pods[i] };
  });
  return rows;
}

const FILTERS = {
  "": ["All nodes", () => true],
  past: ["Past the line", (row) => row.past > 0],
  full: ["Nearly full (90% or more)", (row) => row.fullest >= FULL],
  claims: ["With claims", (row) => row.claims],
  devices: ["With free devices", (row) => row.devices > row.taken],
  down: ["Not ready or cordoned", (row) => row.down],
};

function sorts(resources) {
  const free = resources.map((resource) => [`free:${resource}`, `Least free ${resource}`]);
  return [["", "Past the line, then fullest"], ["name", "Name"], ...free, ["devices", "Most free devices"], ["pods", "Most pods"]];
}

export function arrange(rows, { q, show, sort }) {
  const wanted = q.trim().toLowerCase();
  const [, keep] = FILTERS[show] || FILTERS[""];
  const found = rows.filter((row) => keep(row) && (!wanted || row.name.toLowerCase().includes(wanted)));
  const name = (a, b) => byName(a.name, b.name);
  if (sort === "name") found.sort(name);
  else if (sort === "pods") found.sort((a, b) => b.pods - a.pods || name(a, b));
  else if (sort === "devices") found.sort((a, b) => b.devices - b.taken - (a.devices - a.taken) || name(a, b));
  else if (sort.startsWith("free:")) {
    const resource = sort.slice(5);
    found.sort((a, b) => (a.free[resource] ?? Infinity) - (b.free[resource] ?? Infinity) || name(a, b));
  } else found.sort((a, b) => b.past - a.past || b.fullest - a.fullest || name(a, b));
  return found;
}

export function Overview({ query }) {
  const overview = useApi("api/overview");
  const nodes = useApi("api/nodes", { kinds: ["Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceClass"] });
  return html`<${Head} title="Cluster ledger" tab="Overview" />
    <${Answer} of=${overview} what="The cluster">${(data) => html`<${Glance} data=${data} /><${Totals} data=${data} />`}<//>
    <${Answer} of=${nodes} what="The list of nodes">${(data) => html`<${Nodes} data=${data} query=${query} />`}<//>`;
}

function Tile({ href, tone, number, what, note }) {
  return html`<a class=${cx("tile", tone && `tile-${tone}`)} href=${href}>
    ${tone && html`<${Icon} name=${tone === "good" ? "ok" : "warn"} />`}
    <b>${number}</b><span>${what}</span>${note && html`<small>${note}</small>`}
  </a>`;
}

/** What a tired engineer looks for first. */
function Glance({ data }) {
  const { counts } = data;
  const { findings } = data;
  const found = findings ? findings.error + findings.warning : 0;
  const gaps = [...(data.gaps || []), ...(data.troubles || [])];
  const pending = useApi(counts.pending ? "api/pods?state=pending&q=&offset=0&limit=4" : "", { kinds: ["Node", "Pod", "ResourceClaim", "ResourceSlice"] });
  return html`<section class="glance" aria-label="At a glance">
    ${gaps.length > 0 &&
    html`<div class="notice is-warning"><${Icon} name="warn" /><div><b>Not everything could be read;</b> numbers may be too low.
      <ul>${gaps.map((gap) => html`<li>${gap}</li>`)}</ul></div></div>`}
    <div class="tiles">
      ${counts.nodesPast != null &&
      html`<${Tile}
        href=${to([], { show: counts.nodesPast ? "past" : "" })}
        tone=${counts.nodesPast ? "bad" : "good"}
        number=${count(counts.nodesPast)}
        what=${counts.nodesPast === 1 ? "node past its line" : "nodes past their line"}
        note=${`of ${count(counts.nodes)}`}
      />`}
      <${Tile} href="#/pending" tone=${counts.pending ? "warn" : "good"} number=${count(counts.pending)} what=${counts.pending === 1 ? "pod pending" : "pods pending"} note=${`of ${count(counts.pods)}`} />
      <${Tile}
        href="#/audit"
        tone=${!findings ? "" : findings.error ? "bad" : findings.warning ? "warn" : "good"}
        number=${findings ? count(found) : "-"}
        what=${found === 1 ? "audit finding" : "audit findings"}
        note=${findings ? `${plural(findings.error, "error")}, ${plural(findings.warning, "warning")}` : "being looked for"}
      />
      <a class="tile" href="#/devices"><b>${count(counts.devicesTaken)}</b><span>devices taken</span><small>of ${count(counts.devices)}</small></a>
      <a class="tile" href="#/claims"><b>${count(counts.claims)}</b><span>${counts.claims === 1 ? "claim" : "claims"}</span></a>
    </div>
    ${counts.pending > 0 &&
    pending.data &&
    html`<div class="card pending-few">
      <h2>Pending</h2>
      <ul>
        ${pending.data.items.map((pod) => html`<li key=${`${pod.namespace}/${pod.name}`}><${PodLink} namespace=${pod.namespace} name=${pod.name} /> <span class="why">${pod.why}</span></li>`)}
      </ul>
      ${pending.data.total > pending.data.items.length && html`<a href="#/pending">All ${count(pending.data.total)} pending pods</a>`}
    </div>`}
  </section>`;
}

function Totals({ data }) {
  if (!data.resources.length) return html`<p class="empty">No node has told what it has.</p>`;
  return html`<section aria-labelledby="totals">
    <div class="section-head"><h2 id="totals">Whole cluster</h2><${Legend} /></div>
    <div class="cards">${data.resources.map((resource) => html`<${LedgerCard} key=${resource} resource=${resource} row=${data.totals[resource]} />`)}</div>
  </section>`;
}

function Nodes({ data, query }) {
  const rows = useMemo(() => digest(data), [data]);
  const q = query.get("q") || "";
  const show = query.get("show") || "";
  const sort = query.get("sort") || "";
  const found = useMemo(() => arrange(rows, { q, show, sort }), [rows, q, show, sort]);
  const chosen = (query.get("resources") || "").split(",").filter((name) => data.resources.includes(name));
  const usual = data.resources.filter((name) => SHOWN_AT_FIRST.includes(name));
  const resources = chosen.length ? chosen : usual.length ? usual : data.resources.slice(0, 2);
  const counts = useMemo(() => Object.fromEntries(Object.entries(FILTERS).map(([key, [, keep]]) => [key, rows.filter(keep).length])), [rows]);
  const devices = Object.keys(data.devices || {}).length > 0;
  const toggle = (name) => {
    const next = resources.includes(name) ? resources.filter((one) => one !== name) : data.resources.filter((one) => one === name || resources.includes(one));
    replaceQuery({ resources: next.length ? next.join(",") : "" });
  };
  const narrow = useMedia(NARROW);
  const height = narrow ? NARROW_NAME + NARROW_BAR * resources.length + 8 : ROW;
  const grid = narrow ? {} : { gridTemplateColumns: `minmax(9rem, 1.2fr) ${devices ? "5.5rem " : ""}repeat(${resources.length}, minmax(11rem, 2fr))` };
  return html`<section class="nodes" aria-labelledby="nodes-head">
    <div class="section-head"><h2 id="nodes-head">Nodes</h2><span class="muted" role="status">${found.length === rows.length ? plural(rows.length, "node") : `${count(found.length)} of ${plural(rows.length, "node")}`}</span></div>
    <div class="controls">
      <${Search} label="Find a node" value=${q} placeholder="name" />
      <${Choice} label="Show" name="show" value=${show} options=${Object.entries(FILTERS).map(([key, [text]]) => [key, `${text} (${count(counts[key])})`])} />
      <${Choice} label="Order" name="sort" value=${sort} options=${sorts(resources)} />
      <fieldset class="checks">
        <legend>Resources</legend>
        ${data.resources.map((name) => html`<label><input type="checkbox" checked=${resources.includes(name)} onChange=${() => toggle(name)} />${name}</label>`)}
      </fieldset>
    </div>
    ${found.length === 0
      ? html`<p class="empty">${rows.length ? "No node is like that." : "There are no nodes."}</p>`
      : html`<div class="node-list" role="table" aria-label="Ledger of nodes" aria-rowcount=${found.length + 1} aria-colcount=${resources.length + 1 + (devices ? 1 : 0)}>
          <div class="node-list-head" role="rowgroup">
            <div class="node-row" role="row" aria-rowindex="1" style=${grid}>
              <span role="columnheader">Node</span>
              ${devices && html`<span role="columnheader">Devices</span>`}
              ${resources.map((name) => html`<span role="columnheader">${name}</span>`)}
            </div>
          </div>
          <${Windowed}
            count=${found.length}
            height=${height}
            keyOf=${(i) => found[i].name}
            row=${(i, focus) => html`<${NodeRow} data=${data} row=${found[i]} resources=${resources} devices=${devices} grid=${grid} focus=${focus} />`}
          />
        </div>`}
  </section>`;
}

function NodeRow({ data, row, resources, devices, grid, focus }) {
  return html`<div class=${cx("node-row", row.past > 0 && "is-past")} role="presentation" style=${grid}>
    <span role="rowheader" class="node-name">
      <a href=${to(["nodes", row.name])} ...${focus}>${row.name}</a>
      ${data.ready[row.i] === false && html`<${Badge} tone="bad">not ready<//>`}
      ${data.unschedulable[row.i] && html`<${Badge} tone="warn">cordoned<//>`}
    </span>
    ${devices &&
    html`<span role="cell" class="node-devices">${row.devices ? html`<b>${row.devices - row.taken}</b> free <span class="of">of ${row.devices}</span>` : html`<span class="muted">none</span>`}</span>`}
    ${resources.map((resource) => {
      const column = data.columns[resource];
      const one = { line: column.line[row.i], requests: column.requests[row.i], claims: column.claims[row.i], overhead: column.overhead[row.i] };
      return html`<span role="cell" class="bar-cell"><span class="bar-name" aria-hidden="true">${resource}</span>${one.line || one.requests || one.claims || one.overhead ? html`<${Bar} resource=${resource} row=${one} />` : html`<span class="muted">none</span>`}</span>`;
    })}
  </div>`;
}
