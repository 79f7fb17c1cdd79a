// Cluster summary: read errors, nodes past their line, pending pods, audit findings, and totals.
import { html, cx } from "./ui.js";
import { useApi } from "./store.js";
import { to } from "./router.js";
import { Cards, PodLink } from "./components.js";
import { LedgerCard, Legend, hiddenExcess, isPresent, used } from "./bars.js";
import { count, plural } from "./format.js";
import { Icon } from "./icons.js";

/** Number of reasons listed, and of pending pods that they are taken from. */
const FEW = 4;
const LOOKED_AT = 25;
/** Resources of the totals on a narrow screen. */
const FEW_CARDS = 2;

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
  const uncounted = new Set(((data.notCounted && data.notCounted.claims) || []).map((one) => `${one.namespace}/${one.name}`)).size;
  const gaps = data.gaps || [];
  const troubles = data.troubles || [];
  const pending = useApi(counts.pending ? `api/pods?state=pending&q=&offset=0&limit=${LOOKED_AT}` : "", { kinds: ["Node", "Pod", "ResourceClaim", "ResourceSlice"] });
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
        tone=${counts.nodesPast || counts.nodesPastUncounted ? "bad" : "good"}
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
      <${Tile} href="#/claims" tone=${uncounted ? "bad" : ""} number=${count(counts.claims)} what=${counts.claims === 1 ? "claim" : "claims"} note=${uncounted ? `${count(uncounted)} not counted` : ""} />
    </div>
    ${counts.pending > 0 && html`<${PendingFew} of=${pending.data} number=${counts.pending} />`}
  </section>`;
}

/** Claims that take node resources without a mapping, and the annotation that counts them. */
export function NotCounted({ of }) {
  if (!of || !of.claims.length) return null;
  return html`<div class="notice is-error not-counted" role="status"><${Icon} name="warn" /><div><b>Not counted:</b> ${of.text}.
    ${of.pastLineText.length > 0 && html`<ul>${of.pastLineText.map((one) => html`<li>${one}</li>`)}</ul>`}
    ${of.annotations.length > 0 &&
    html`<details><summary>Count them: start with --assume-mapping, or apply</summary><pre><code>${of.annotations.map((one) => one.yaml).join("\n---\n")}</code></pre></details>`}</div></div>`;
}

/** Group pods of a namespace that are pending for the same reason. */
export function groupPending(pods) {
  const groups = new Map();
  for (const pod of pods) {
    const key = `${pod.namespace}\n${pod.why}`;
    if (groups.has(key)) groups.get(key).more += 1;
    else groups.set(key, { ...pod, more: 0 });
  }
  return [...groups.values()];
}

/** The first reasons of pending pods. Placeholders keep the layout stable until they are loaded. */
function PendingFew({ of, number }) {
  const placeholders = Array.from({ length: Math.min(FEW, number) }, (_, i) => html`<li key=${i} class="muted">...</li>`);
  const groups = of ? groupPending(of.items) : [];
  return html`<div class="card pending-few">
    <h2>Pending</h2>
    <ul aria-busy=${!of}>
      ${of ? groups.slice(0, FEW).map((pod) => html`<li key=${`${pod.namespace}/${pod.name}`}><span><${PodLink} namespace=${pod.namespace} name=${pod.name} />${pod.more > 0 && html` <span class="muted nowrap">and ${count(pod.more)} more</span>`}</span> <span class="why" title=${pod.why}>${pod.why}</span></li>`) : placeholders}
    </ul>
    ${(number > LOOKED_AT || groups.length > FEW) && html`<a href="#/pending">All ${count(number)} pending pods</a>`}
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
  const isShort = (resource) => used(data.totals[resource]) > data.totals[resource].line || hiddenExcess(data.totals[resource]) > 0;
  if (!resources.length) return html`<p class="empty">No node reports allocatable resources.</p>`;
  return html`<section aria-labelledby="totals">
    <div class="section-head"><h2 id="totals">Cluster totals</h2><${Legend} uncounted=${resources.some((one) => data.totals[one].uncounted > 0)} /></div>
    <${Cards} cls="cards" items=${resources} most=${FEW_CARDS} important=${isShort} noun="resource" draw=${(resource) => html`<${LedgerCard} key=${resource} resource=${resource} row=${data.totals[resource]} />`} />
  </section>`;
}
