// Cluster summary: read errors, nodes past their line, pending pods, audit findings, and totals.
import { html, cx } from "./ui.js";
import { useApi } from "./store.js";
import { to } from "./router.js";
import { PodLink } from "./components.js";
import { LedgerCard, Legend, isPresent } from "./bars.js";
import { count, plural } from "./format.js";
import { Icon } from "./icons.js";

/** Number of pending pods listed by name. */
const FEW = 4;

function Tile({ href, tone, number, what, note }) {
  return html`<a class=${cx("tile", tone && `tile-${tone}`)} href=${href}>
    ${tone && html`<${Icon} name=${tone === "good" ? "ok" : "warn"} />`}
    <b>${number}</b><span>${what}</span>${note && html`<small>${note}</small>`}
  </a>`;
}

/** Errors, counts and the first pending pods. */
export function Summary({ data }) {
  const { counts } = data;
  const { findings } = data;
  const found = findings ? findings.error + findings.warning : 0;
  const gaps = data.gaps || [];
  const troubles = data.troubles || [];
  const pending = useApi(counts.pending ? `api/pods?state=pending&q=&offset=0&limit=${FEW}` : "", { kinds: ["Node", "Pod", "ResourceClaim", "ResourceSlice"] });
  return html`<section class="summary" aria-label="Summary">
    ${troubles.length > 0 &&
    html`<div class="notice is-error" role="status"><${Icon} name="warn" /><div><b>The cluster cannot be read.</b> The page shows the last known state.
      <ul>${troubles.map((one) => html`<li>${one}</li>`)}</ul></div></div>`}
    ${gaps.length > 0 &&
    html`<div class="notice is-warning"><${Icon} name="warn" /><div><b>Some resources could not be read;</b> numbers may be too low.
      <ul>${gaps.map((gap) => html`<li>${gap}</li>`)}</ul></div></div>`}
    <${NotCounted} of=${data.notCounted} />
    ${data.assumedMapping && html`<div class="notice"><div>Assumed mapping: ${data.assumedMapping}.</div></div>`}
    <div class="tiles">
      ${counts.nodesPast != null &&
      html`<${Tile}
        href=${to([], { show: counts.nodesPast ? "past" : counts.nodesPastUncounted ? "uncounted" : "" })}
        tone=${counts.nodesPast ? "bad" : counts.nodesPastUncounted ? "warn" : "good"}
        number=${count(counts.nodesPast)}
        what=${counts.nodesPast === 1 ? "node past its line" : "nodes past their line"}
        note=${`of ${count(counts.nodes)}${counts.nodesPastUncounted ? `; ${count(counts.nodesPastUncounted)} more with claims that are not counted` : ""}`}
      />`}
      <${Tile} href="#/pending" tone=${counts.pending ? "warn" : "good"} number=${count(counts.pending)} what=${counts.pending === 1 ? "pod pending" : "pods pending"} note=${`of ${count(counts.pods)}`} />
      <${Tile}
        href="#/audit"
        tone=${!findings ? "" : findings.error ? "bad" : findings.warning ? "warn" : "good"}
        number=${findings ? count(found) : "-"}
        what=${found === 1 ? "audit finding" : "audit findings"}
        note=${findings ? `${plural(findings.error, "error")}, ${plural(findings.warning, "warning")}` : "audit running"}
      />
      <a class="tile" href="#/devices"><b>${count(counts.devicesFree)}</b><span>${counts.devicesFree === 1 ? "device free" : "devices free"}</span><small>${formatDeviceStates(counts)}</small></a>
      <a class="tile" href="#/claims"><b>${count(counts.claims)}</b><span>${counts.claims === 1 ? "claim" : "claims"}</span></a>
    </div>
    ${counts.pending > 0 && html`<${PendingFew} of=${pending.data} number=${counts.pending} />`}
  </section>`;
}

/** One tile per device class: what can still be allocated, found by the allocator. */
export function Classes({ devices }) {
  const found = useApi(devices ? "api/classes" : "", { kinds: ["Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceClass"] });
  const rows = found.data ? found.data.classes.filter((row) => row.devices > 0) : [];
  if (!rows.length) return null;
  return html`<section class="summary" aria-label="Devices that can still be allocated">
    <div class="tiles">${rows.map((row) => html`<${Tile} href="#/devices" number=${`${count(row.free)}${row.unknownNodes ? "+" : ""}`} what=${`${row.name} can still be allocated`} note=${`${plural(row.devices, "device")}; at most ${count(row.mostOnOneNode)} on one node`} />`)}</div>
  </section>`;
}

/** Claims that take node resources without a mapping, and the annotation that counts them. */
export function NotCounted({ of }) {
  if (!of || !of.claims.length) return null;
  return html`<div class="notice is-warning not-counted" role="status"><${Icon} name="warn" /><div><b>Not counted:</b> ${of.text}.
    ${of.pastLineText.length > 0 && html`<ul>${of.pastLineText.map((one) => html`<li class="past-text">${one}</li>`)}</ul>`}
    ${of.annotations.length > 0 &&
    html`<details><summary>Count them: start with --assume-mapping, or apply</summary><pre><code>${of.annotations.map((one) => one.yaml).join("\n---\n")}</code></pre></details>`}</div></div>`;
}

/** The first pending pods. Placeholders keep the layout stable until they are loaded. */
function PendingFew({ of, number }) {
  const placeholders = Array.from({ length: Math.min(FEW, number) }, (_, i) => html`<li key=${i} class="muted">...</li>`);
  return html`<div class="card pending-few">
    <h2>Pending</h2>
    <ul aria-busy=${!of}>
      ${of ? of.items.map((pod) => html`<li key=${`${pod.namespace}/${pod.name}`}><${PodLink} namespace=${pod.namespace} name=${pod.name} /> <span class="why" title=${pod.why}>${pod.why}</span></li>`) : placeholders}
    </ul>
    ${number > FEW && html`<a href="#/pending">All ${count(number)} pending pods</a>`}
  </div>`;
}

/** Format the states of all devices: "of 6: 3 partly, 1 taken". */
function formatDeviceStates(counts) {
  if (!counts.devices) return "no ResourceSlice publishes any";
  const others = [
    [counts.devicesPartly, "partly"],
    [counts.devicesTaken, "taken"],
    [counts.devices - counts.devicesFree - counts.devicesPartly - counts.devicesTaken, "unavailable"],
  ];
  const texts = others.filter(([number]) => number > 0).map(([number, state]) => `${count(number)} ${state}`);
  return `of ${count(counts.devices)}${texts.length ? `: ${texts.join(", ")}` : ""}`;
}

export function Totals({ data }) {
  const resources = data.resources.filter((resource) => isPresent(data.totals[resource]));
  if (!resources.length) return html`<p class="empty">No node reports allocatable resources.</p>`;
  return html`<section aria-labelledby="totals">
    <div class="section-head"><h2 id="totals">Cluster totals</h2><${Legend} /></div>
    <div class="cards">${resources.map((resource) => html`<${LedgerCard} key=${resource} resource=${resource} row=${data.totals[resource]} />`)}</div>
  </section>`;
}
