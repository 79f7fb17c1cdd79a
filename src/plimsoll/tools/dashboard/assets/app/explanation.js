// Explanation of a pod or claim: verdict, fixes, then the reasons by node. The group of nodes on which the nearest
// fix works is expanded.
import { html, useRef, useState } from "./ui.js";
import { links } from "./router.js";
import { Badge, NodeLink } from "./components.js";
import { Branch, Group } from "./tree.js";
import { Icon } from "./icons.js";
import { count } from "./format.js";

const GOOD = new Set(["placed", "allocated", "fits now"]);
/** Labels that differ from the verdict in the API. */
const LABELS = { placed: "scheduled", ended: "terminated" };
const FEW_GROUPS = 12;
/** Plugins whose details are worth expanding; a cordoned node needs no details. */
const DETAILED = new Set(["NodeResourcesFit", "DynamicResources"]);

/** Return the pods that a fix removes, as `Pod/namespace/name`; empty if it also does something else. */
function removedPods(fix) {
  const steps = fix.steps || [];
  if (!steps.length || !steps.every((step) => step.kind === "remove-pods")) return [];
  return steps.flatMap((step) => (step.numbers.pods || []).map((text) => `Pod/${text.replace(/^pod /, "")}`));
}

function Fix({ fix, first, pod }) {
  const removed = pod ? removedPods(fix) : [];
  return html`<li>
    <b>${first ? "Nearest fix" : "or"}</b> <span>${fix.text}</span>
    ${fix.proven && html` <span class="proven" title="Simulated with the scheduler's rules: the pod fits"><${Icon} name="ok" /> simulated: the pod fits</span>`}
    ${removed.length > 0 && html` <a href=${links.whatif({ remove: removed, pod })}>What if ${removed.length === 1 ? "that pod" : `these ${removed.length} pods`} were removed?</a>`}
  </li>`;
}

/** Return the index of the group to expand: that of the nearest fix, else the first one with details. */
export function initialGroup(groups, fixes) {
  const names = new Set(fixes.filter((fix) => fix.node).slice(0, 1).map((fix) => fix.node));
  const fixed = groups.findIndex((group) => (group.nodes || []).some((name) => names.has(name)));
  if (fixed >= 0) return fixed;
  return Math.max(0, groups.findIndex((group) => DETAILED.has(group.rule)));
}

const keyOf = (group) => `${group.rule} ${group.reason} ${(group.nodes || [])[0]}`;

export function Explanation({ of, kind = "pod", inside }) {
  const fixes = of.fixes || [];
  const all = of.groups || [];
  const [expanded, setExpanded] = useState(false);
  // Chosen once, so that updates do not move or collapse the group being read.
  const chosen = useRef(null);
  if (chosen.current === null && all.length) chosen.current = keyOf(all[initialGroup(all, fixes)]);
  const groups = [...all.filter((group) => keyOf(group) === chosen.current), ...all.filter((group) => keyOf(group) !== chosen.current)];
  const shown = expanded ? groups : groups.slice(0, FEW_GROUPS);
  return html`<div class="explanation">
    ${!inside && html`<p class="verdict"><${Badge} tone=${GOOD.has(of.verdict) ? "good" : "warn"}>${LABELS[of.verdict] || of.verdict}<//> <span>${of.summary}</span>${of.node && html` <span class="on-node">Node <${NodeLink} name=${of.node} /></span>`}</p>`}
    ${fixes.length > 0 && html`<ul class="fix fixes" aria-label="Fixes">${fixes.map((fix, i) => html`<${Fix} key=${fix.text} fix=${fix} first=${i === 0} pod=${kind === "pod" ? of.subject : ""} />`)}</ul>`}
    ${of.noFix && html`<p class="muted">${of.noFix}</p>`}
    ${(of.hints || []).map((hint) => html`<p key=${hint.text} class="hint"><b>Hint</b> ${hint.text}</p>`)}
    ${(of.notes || []).map((note) => html`<p class="notice is-warning"><${Icon} name="warn" /><span>${note}</span></p>`)}
    ${of.preemption && html`<p class="preemption"><b>Preemption</b> ${of.preemption}</p>`}
    ${groups.length > 0 &&
    html`<div class="groups" role="group" aria-label="Reasons by node">
      ${!inside && html`<h2>Reasons by node</h2>`}
      ${shown.map((group) => html`<${Group} key=${keyOf(group)} of=${group} open=${keyOf(group) === chosen.current} />`)}
      ${groups.length > FEW_GROUPS && html`<button type="button" aria-expanded=${expanded} onClick=${() => setExpanded(!expanded)}>${expanded ? "Show fewer" : `Show all ${count(groups.length)} groups`}</button>`}
    </div>`}
    ${(of.sections || []).map(
      (section) => html`<details class="group" key=${section.title} open=${!groups.length}>
        <summary><span class="reason group-count">${section.title}</span></summary>
        <div class="group-body"><ul class="tree">${section.children.map((one, i) => html`<${Branch} key=${`${one.rule}${i}`} of=${one} open=${true} />`)}</ul></div>
      </details>`,
    )}
  </div>`;
}
