// Owns: the cluster at a glance: what cannot be read, what is past its line, what is pending, and the totals.
import { html, cx } from "./ui.js";
import { useApi } from "./store.js";
import { to } from "./router.js";
import { PodLink } from "./pieces.js";
import { LedgerCard, Legend, matters } from "./bars.js";
import { count, plural } from "./format.js";
import { Icon } from "./marks.js";

/** How many pending pods are named here. */
const FEW = 4;

function Tile({ href, tone, number, what, note }) {
  return html`<a class=${cx("tile", tone && `tile-${tone}`)} href=${href}>
    ${tone && html`<${Icon} name=${tone === "good" ? "ok" : "warn"} />`}
    <b>${number}</b><span>${what}</span>${note && html`<small>${note}</small>`}
  </a>`;
}

/** What a tired engineer looks for first. */
export function Glance({ data }) {
  const { counts } = data;
  const { findings } = data;
  const found = findings ? findings.error + findings.warning : 0;
  const gaps = data.gaps || [];
  const troubles = data.troubles || [];
  const pending = useApi(counts.pending ? `api/pods?state=pending&q=&offset=0&limit=${FEW}` : "", { kinds: ["Node", "Pod", "ResourceClaim", "ResourceSlice"] });
  return html`<section class="glance" aria-label="At a glance">
    ${troubles.length > 0 &&
    html`<div class="notice is-error" role="status"><${Icon} name="warn" /><div><b>The cluster cannot be read at the moment;</b> what is shown is what was last known.
      <ul>${troubles.map((one) => html`<li>${one}</li>`)}</ul></div></div>`}
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
      <a class="tile" href="#/devices"><b>${count(counts.devicesFree)}</b><span>${counts.devicesFree === 1 ? "device free" : "devices free"}</span><small>${stateOfDevices(counts)}</small></a>
      <a class="tile" href="#/claims"><b>${count(counts.claims)}</b><span>${counts.claims === 1 ? "claim" : "claims"}</span></a>
    </div>
    ${counts.pending > 0 && html`<${PendingFew} of=${pending.data} number=${counts.pending} />`}
  </section>`;
}

/** The first pods that wait. Their place is kept until they are there: nothing below jumps when they come. */
function PendingFew({ of, number }) {
  const waiting = Array.from({ length: Math.min(FEW, number) }, (_, i) => html`<li key=${i} class="muted">...</li>`);
  return html`<div class="card pending-few">
    <h2>Pending</h2>
    <ul aria-busy=${!of}>
      ${of ? of.items.map((pod) => html`<li key=${`${pod.namespace}/${pod.name}`}><${PodLink} namespace=${pod.namespace} name=${pod.name} /> <span class="why" title=${pod.why}>${pod.why}</span></li>`) : waiting}
    </ul>
    ${number > FEW && html`<a href="#/pending">All ${count(number)} pending pods</a>`}
  </div>`;
}

/** How the other devices are: "of 6: 3 partly, 1 taken". */
function stateOfDevices(counts) {
  if (!counts.devices) return "no driver has published any";
  const others = [
    [counts.devicesPartly, "partly"],
    [counts.devicesTaken, "taken"],
    [counts.devices - counts.devicesFree - counts.devicesPartly - counts.devicesTaken, "unavailable"],
  ];
  const told = others.filter(([number]) => number > 0).map(([number, what]) => `${count(number)} ${what}`);
  return `of ${count(counts.devices)}${told.length ? `: ${told.join(", ")}` : ""}`;
}

export function Totals({ data }) {
  const resources = data.resources.filter((resource) => matters(data.totals[resource]));
  if (!resources.length) return html`<p class="empty">No node has told what it has.</p>`;
  return html`<section aria-labelledby="totals">
    <div class="section-head"><h2 id="totals">Whole cluster</h2><${Legend} /></div>
    <div class="cards">${resources.map((resource) => html`<${LedgerCard} key=${resource} resource=${resource} row=${data.totals[resource]} />`)}</div>
  </section>`;
}
