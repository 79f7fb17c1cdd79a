// Owns: an explanation of a pod or claim: the verdict, what would help, then why, node by node. What tells most is
// opened: the nodes on which the nearest fix would work.
import { html, useRef, useState } from "./ui.js";
import { links } from "./router.js";
import { Badge, NodeLink } from "./pieces.js";
import { Branch, Group } from "./tree.js";
import { Icon } from "./marks.js";
import { count } from "./format.js";

const GOOD = new Set(["placed", "allocated", "fits now"]);
const FEW_GROUPS = 12;
/** Groups with something to learn; a cordoned node explains itself. */
const TELLING = new Set(["NodeResourcesFit", "DynamicResources"]);

/** The pods that a fix removes, if it does nothing else, as `Pod/namespace/name`. */
function removed(fix) {
  const steps = fix.steps || [];
  if (!steps.length || !steps.every((step) => step.kind === "remove-pods")) return [];
  return steps.flatMap((step) => (step.numbers.pods || []).map((text) => `Pod/${text.replace(/^pod /, "")}`));
}

function Fix({ fix, first, pod }) {
  const gone = pod ? removed(fix) : [];
  return html`<li>
    <b>${first ? "Nearest fix" : "or"}</b> <span>${fix.text}</span>
    ${fix.proven && html` <span class="proven" title="Tried on the scheduler's own rules: the pod fits then"><${Icon} name="ok" /> tried: it fits then</span>`}
    ${gone.length > 0 && html` <a href=${links.whatif({ remove: gone, pod })}>What if ${gone.length === 1 ? "that pod" : `these ${gone.length} pods`} were removed?</a>`}
  </li>`;
}

/** Which group to begin with: where the nearest fix would work, else one that has something to tell. */
export function mostTelling(groups, fixes) {
  const names = new Set(fixes.filter((fix) => fix.node).slice(0, 1).map((fix) => fix.node));
  const fixed = groups.findIndex((group) => (group.nodes || []).some((name) => names.has(name)));
  if (fixed >= 0) return fixed;
  return Math.max(0, groups.findIndex((group) => TELLING.has(group.rule)));
}

const keyOf = (group) => `${group.rule} ${group.reason} ${(group.nodes || [])[0]}`;

export function Explanation({ of, kind = "pod", inside }) {
  const fixes = of.fixes && of.fixes.length ? of.fixes : of.fix ? [{ text: of.fix, steps: [] }] : [];
  const all = of.groups || [];
  const [unfolded, setUnfolded] = useState(false);
  // Chosen once: a group that somebody reads does not jump or shut when the numbers change.
  const chosen = useRef(null);
  if (chosen.current === null && all.length) chosen.current = keyOf(all[mostTelling(all, fixes)]);
  const groups = [...all.filter((group) => keyOf(group) === chosen.current), ...all.filter((group) => keyOf(group) !== chosen.current)];
  const shown = unfolded ? groups : groups.slice(0, FEW_GROUPS);
  return html`<div class="explanation">
    ${!inside && html`<p class="verdict"><${Badge} tone=${GOOD.has(of.verdict) ? "good" : "warn"}>${of.verdict}<//> <span>${of.summary}</span>${of.node && html` <span class="on-node">Node <${NodeLink} name=${of.node} /></span>`}</p>`}
    ${fixes.length > 0 && html`<ul class="fix fixes" aria-label="What would help">${fixes.map((fix, i) => html`<${Fix} key=${fix.text} fix=${fix} first=${i === 0} pod=${kind === "pod" ? of.subject : ""} />`)}</ul>`}
    ${(of.notes || []).map((note) => html`<p class="notice is-warning"><${Icon} name="warn" /><span>${note}</span></p>`)}
    ${of.preemption && html`<p class="preemption"><b>Preemption</b> ${of.preemption}</p>`}
    ${groups.length > 0 &&
    html`<div class="groups" role="group" aria-label="Why, by node">
      ${!inside && html`<h2>Why, by node</h2>`}
      ${shown.map((group) => html`<${Group} key=${keyOf(group)} of=${group} open=${keyOf(group) === chosen.current} />`)}
      ${groups.length > FEW_GROUPS && html`<button type="button" aria-expanded=${unfolded} onClick=${() => setUnfolded(!unfolded)}>${unfolded ? "Show fewer" : `Show all ${count(groups.length)} groups`}</button>`}
    </div>`}
    ${(of.sections || []).map(
      (section) => html`<details class="group" key=${section.title} open=${!groups.length}>
        <summary><span class="reason group-count">${section.title}</span></summary>
        <div class="group-body"><ul class="tree">${section.children.map((one, i) => html`<${Branch} key=${`${one.rule}${i}`} of=${one} open=${true} />`)}</ul></div>
      </details>`,
    )}
  </div>`;
}
