// History of the cluster or of one node: a chart per resource with requests, claims and the allocatable line, pending
// pods, and what was available of each device class.
import { html, useEffect } from "../ui.js";
import { changed, useApi } from "../store.js";
import { Choice, EmptyState, Head, Loadable, NodeLink } from "../components.js";
import { Legend } from "../bars.js";
import { Chart } from "../chart.js";
import { amount, brief, count, isBytes, plural } from "../format.js";

const RANGES = [["7200", "2 hours"], ["172800", "2 days"], ["1209600", "2 weeks"], ["", "all"]];
const PARTS = ["requests", "claims", "overhead", "uncounted"];
const LABELS = { uncounted: "not counted" };
const REFRESH_MS = 60000;

export function History({ query }) {
  const node = query.get("node") || "";
  const range = query.get("range") || "";
  // Rounded to a minute, so that the response is shared by renders of the same minute.
  const since = range ? Math.floor(Date.now() / 60000) * 60 - Number(range) : 0;
  const response = useApi(`api/history?${new URLSearchParams({ node, since })}`, { kinds: ["Sample"] });
  const nodes = useApi("api/nodes", { kinds: ["Node"] });
  useEffect(() => {
    const timer = setInterval(() => changed({ kinds: ["Sample"] }), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const names = nodes.data ? nodes.data.names : node ? [node] : [];
  return html`<${Head} title="History" />
    <div class="controls">
      <${Choice} label="Of" name="node" value=${node} options=${[["", "the cluster"], ...names.map((one) => [one, one])]} />
      <${Choice} label="Range" name="range" value=${range} options=${RANGES} />
      ${node && html`<p class="found"><${NodeLink} name=${node} /></p>`}
    </div>
    <${Loadable} of=${response} what="the history">${(data) => html`<${Charts} data=${data} />`}<//>`;
}

/** Return whether a series is nothing but zeros and gaps. */
const isFlat = (values) => !values.some(Boolean);

function Charts({ data }) {
  if (!data.recorded) return html`<${EmptyState}>A dump has no history: it is recorded while a dashboard follows a cluster.<//>`;
  if (data.times.length < 2) return html`<${EmptyState}>${plural(data.times.length, "sample")} so far; one is taken every minute.<//>`;
  const resources = Object.entries(data.resources).filter(([, one]) => !isFlat(one.line) || !isFlat(one.requests) || !isFlat(one.claims));
  const classes = Object.entries(data.classes || {});
  return html`<${Legend} uncounted=${resources.some(([, one]) => !isFlat(one.uncounted))} />
    <div class="charts">
      ${resources.map(([name, one]) => html`<${Chart} key=${name} title=${name} times=${data.times} areas=${PARTS.filter((key) => !isFlat(one[key])).map((key) => ({ name: key, label: LABELS[key], values: one[key] }))} lines=${[{ name: "allocatable", values: one.line }]} binary=${isBytes(name)} format=${(value) => amount(name, value)} />`)}
      ${data.pending && html`<${Chart} title="pending pods" times=${data.times} areas=${[{ name: "pending", values: data.pending }]} format=${count} />`}
      ${classes.map(([name, values]) => html`<${Chart} key=${`class ${name}`} title=${`free: ${name}`} times=${data.times} lines=${[{ name: "free", values }]} format=${brief} />`)}
    </div>
    <p class="muted small">${plural(data.times.length, "sample")} since ${new Date(data.times[0] * 1000).toISOString().replace(".000Z", "Z")}</p>`;
}
