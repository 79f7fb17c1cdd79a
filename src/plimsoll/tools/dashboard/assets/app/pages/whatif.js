// Owns: the what-if page: asks the question and shows its answer. Nothing is sent to the cluster. An address may
// bring a question (`#/whatif?remove=Pod/a/b&pod=a/c`), which is asked at once; `pod` is whom it is about.
import { html, useEffect, useRef, useState } from "../ui.js";
import { ask } from "../store.js";
import { Head, Ref } from "../pieces.js";
import { Form } from "../whatif/form.js";
import { empty, fromQuery, toJson } from "../whatif/question.js";
import { Result } from "../whatif/result.js";

// Outside the component: typing survives a look at another page.
const kept = { form: empty(), result: null, from: "", turn: 0 };

export function Whatif({ query }) {
  const [, redraw] = useState(0);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const latest = useRef(0);
  const keep = (part) => {
    Object.assign(kept, part);
    redraw((n) => n + 1);
  };
  const run = async (event) => {
    if (event) event.preventDefault();
    const mine = (latest.current += 1);
    setError("");
    setBusy(true);
    try {
      const result = await ask("api/whatif", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(toJson(kept.form)),
      });
      if (mine === latest.current) keep({ result });
    } catch (problem) {
      if (mine !== latest.current) return;
      keep({ result: null });
      setError(problem.message);
    }
    if (mine === latest.current) setBusy(false);
  };
  const from = query.toString();
  useEffect(() => {
    const form = fromQuery(query);
    if (!form || kept.from === from) return;
    keep({ form, result: null, from, turn: kept.turn + 1 });
    run();
  }, [from]);
  const clear = () => {
    latest.current += 1;
    setBusy(false);
    setError("");
    keep({ form: empty(), result: null, from: "", turn: kept.turn + 1 });
  };
  // Once something is typed, the question is no longer the one that the address brought.
  const change = (part) => keep({ form: { ...kept.form, ...part }, from: "" });
  const about = query.get("pod") || "";
  return html`${about && html`<p class="crumbs">${"Pod "}<${Ref} kind="pod" of=${about} /></p>`}
    <${Head} title="What if" />
    <p class="lead">Scheduled in memory only; the cluster is not touched.</p>
    <${Form} key=${kept.turn} form=${kept.form} change=${change} run=${run} clear=${clear} busy=${busy} error=${error} done=${kept.result} />
    <div aria-live="polite">${kept.result && html`<${Result} of=${kept.result} about=${about} />`}</div>`;
}
