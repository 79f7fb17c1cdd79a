// What-if page: sends the request and shows its result; the cluster is not changed. A request in the URL
// (`#/whatif?remove=Pod/a/b&pod=a/c`) runs at once; `pod` is the pod of interest.
import { html, useEffect, useRef, useState } from "../ui.js";
import { request } from "../store.js";
import { to } from "../router.js";
import { Head, Ref } from "../components.js";
import { Form } from "../whatif/form.js";
import { emptyForm, fromQuery, isEmpty, toJson, toQuery } from "../whatif/request.js";
import { Result } from "../whatif/result.js";

// Outside the component, so that the form and the result survive navigation.
const kept = { form: emptyForm(), result: null, from: "", generation: 0 };

export function Whatif({ query }) {
  const [, redraw] = useState(0);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const latest = useRef(0);
  const answer = useRef(null);
  const keep = (part) => {
    Object.assign(kept, part);
    redraw((n) => n + 1);
  };
  const run = async (event) => {
    if (event) event.preventDefault();
    const number = (latest.current += 1);
    setError("");
    setBusy(true);
    // The URL asks the same question, so that it can be shared.
    if (event && !isEmpty(kept.form)) {
      const link = to(["whatif"], { ...toQuery(kept.form), pod: query.get("pod") || "" });
      kept.from = link.slice(link.indexOf("?") + 1);
      if (link !== location.hash) history.replaceState(history.state, "", link);
    }
    try {
      const result = await request("api/whatif", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(toJson(kept.form)),
      });
      if (number === latest.current) {
        keep({ result });
        if (event && answer.current) answer.current.scrollIntoView({ block: "start" });
      }
    } catch (failure) {
      if (number !== latest.current) return;
      keep({ result: null });
      setError(failure.message);
    }
    if (number === latest.current) setBusy(false);
  };
  const from = query.toString();
  useEffect(() => {
    const form = fromQuery(query);
    if (!form || kept.from === from) return;
    keep({ form, result: null, from, generation: kept.generation + 1 });
    run();
  }, [from]);
  const clear = () => {
    latest.current += 1;
    setBusy(false);
    setError("");
    keep({ form: emptyForm(), result: null, from: "", generation: kept.generation + 1 });
  };
  // After an edit the request is no longer that of the URL.
  const change = (part) => keep({ form: { ...kept.form, ...part }, from: "" });
  const about = query.get("pod") || "";
  return html`${about && html`<p class="crumbs">${"Pod "}<${Ref} kind="pod" of=${about} /></p>`}
    <${Head} title="What if" />
    <p class="lead">Simulated in memory; the cluster is not changed.</p>
    <div aria-live="polite" class="whatif-answer" ref=${answer} tabindex="-1">${kept.result && html`<${Result} of=${kept.result} about=${about} />`}</div>
    <${Form} key=${kept.generation} form=${kept.form} change=${change} run=${run} clear=${clear} busy=${busy} error=${error} done=${kept.result} />`;
}
