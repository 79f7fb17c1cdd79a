// Tree of an explanation as nested <details>, which are accessible and stay open while their numbers change.
import { html } from "./ui.js";
import { InlineList, NodeLink } from "./components.js";
import { count, plural } from "./format.js";

function format(value) {
  if (value == null) return "";
  if (Array.isArray(value)) return value.map(format).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([k, v]) => `${k} ${format(v)}`).join(", ");
  if (typeof value === "number") return count(value);
  return String(value);
}

/** Name and value pairs, without the values that the statement already contains. */
export function Numbers({ of, statement = "" }) {
  const pairs = Object.entries(of || {}).filter(([key, value]) => {
    const text = format(value);
    return key !== "index" && text !== "" && !statement.includes(text);
  });
  if (!pairs.length) return null;
  return html`<dl class="facts">
    ${pairs.map(([key, value]) => html`<div><dt>${key}</dt><dd>${format(value)}</dd></div>`)}
  </dl>`;
}

/** One statement and its children. */
export function Branch({ of, open = false, depth = 0 }) {
  const children = of.children || [];
  const reason = of.reason || of.summary || of.rule || "";
  const label = html`<span class="reason">${reason}</span>`;
  if (!children.length && !Object.keys(of.numbers || {}).length) return html`<li class="leaf">${label}</li>`;
  if (!children.length) {
    return html`<li class="leaf">${label}<${Numbers} of=${of.numbers} statement=${reason} /></li>`;
  }
  return html`<li>
    <details open=${open}>
      <summary>${label}</summary>
      <${Numbers} of=${of.numbers} statement=${reason} />
      <ul class="tree">${children.map((child, i) => html`<${Branch} key=${`${child.rule}${i}`} of=${child} depth=${depth + 1} open=${depth < 1} />`)}</ul>
    </details>
  </li>`;
}

/** Nodes that reject the pod for the same reason. */
export function Group({ of, open = false }) {
  const children = of.children || [];
  const names = of.nodes || [];
  const more = (of.count || 0) - names.length;
  return html`<details class="group" open=${open}>
    <summary>
      <span class="group-count">${of.count === 1 && names.length ? `Node ${names[0]}` : plural(of.count || names.length, "node")}</span>
      <span class="reason">${of.reason}</span>
      ${of.rule && html`<code class="rule">${of.rule}</code>`}
    </summary>
    <div class="group-body">
      ${names.length > 0 &&
      html`<p class="group-nodes">
        ${of.count === 1 ? "See node " : of.nearest && names.length > 1 ? "Nearest first: " : ""}
        <${InlineList} items=${names} most=${8} draw=${(name) => html`<${NodeLink} name=${name} />`} />${more > 0 && html`<span class="muted"> and ${count(more)} more</span>`}
      </p>`}
      ${children.length
        ? html`<ul class="tree">${children.map((child, i) => html`<${Branch} key=${`${child.rule}${i}`} of=${child} open=${true} />`)}</ul>`
        : html`<${Numbers} of=${of.numbers} statement=${of.reason || ""} />`}
    </div>
  </details>`;
}
