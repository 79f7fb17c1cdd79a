// Owns: what has been fetched. One entry per address; while a newer answer is on its way the old one stays on
// the page, so nothing flickers. A change of the cluster (live.js) marks the entries it touches; those on the
// page are fetched again, the others when they are next looked at.
import { useEffect, useReducer } from "./ui.js";

const entries = new Map();
/** Where the findings of an audit show. */
const FINDINGS = new Set(["api/overview", "api/audit"]);
const KEPT = 60; // Entries nobody looks at are forgotten beyond this.
/** Milliseconds: answers within SHORT are asked for again at once, others after a rest of at most MOST_REST. */
const SHORT = 250;
const MOST_REST = 10000;

function entry(path) {
  let found = entries.get(path);
  if (!found) {
    found = { path, data: null, error: "", stale: true, loading: null, watchers: new Set(), kinds: null, node: null, rest: 0, since: 0, timer: 0 };
    entries.set(path, found);
    forget();
  }
  return found;
}

function forget() {
  if (entries.size <= KEPT) return;
  for (const [path, found] of entries) {
    if (!found.watchers.size && !found.loading) entries.delete(path);
    if (entries.size <= KEPT) return;
  }
}

/** Ask the server; its own one-line error is the message of what is thrown. */
export async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-cache", credentials: "same-origin", ...options });
  } catch (_) {
    throw new Error("The dashboard's server does not answer.");
  }
  let body = null;
  try {
    body = await answer.json();
  } catch (_) {
    // An answer without JSON; the status says what there is to say.
  }
  if (!answer.ok) throw new Error((body && body.error) || `The server answered ${answer.status}.`);
  return body;
}

async function load(found) {
  if (found.loading) return;
  found.stale = false;
  const began = performance.now();
  found.loading = ask(found.path);
  try {
    found.data = await found.loading;
    found.error = "";
  } catch (problem) {
    found.error = problem.message;
  }
  found.loading = null;
  // A server that took long is left alone as long: others want answers, too.
  found.rest = Math.min(MOST_REST, performance.now() - began);
  found.since = performance.now();
  for (const watcher of found.watchers) watcher();
  if (found.stale && found.watchers.size) loadSoon(found);
}

/** Fetch anew, after a rest if the last answer took long. */
function loadSoon(found) {
  const left = found.rest > SHORT ? found.since + found.rest - performance.now() : 0;
  if (left <= 0) {
    load(found);
    return;
  }
  clearTimeout(found.timer);
  found.timer = setTimeout(() => found.stale && found.watchers.size && load(found), left);
}

/**
 * The answer at this address: {data, error}; data is null until the first one is there.
 * `kinds` and `node` say which changes matter to it; without them every change does.
 */
export function useApi(path, { kinds = null, node = null } = {}) {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    if (!path) return undefined;
    const found = entry(path);
    found.kinds = kinds;
    found.node = node;
    found.watchers.add(redraw);
    if (found.stale) load(found);
    return () => found.watchers.delete(redraw);
  }, [path]);
  const found = path ? entries.get(path) : null;
  return { data: found ? found.data : null, error: found ? found.error : "" };
}

/** Whether a change may show in an entry. */
export function matters(change, found) {
  // The first event of a stream has no kinds: it says which revision there is, so that nothing is missed.
  if (change.kinds && !change.kinds.length) return Boolean(found.data) && found.data.revision !== change.revision;
  if (change.kinds && change.kinds.every((kind) => kind === "Finding")) return FINDINGS.has(found.path);
  if (change.kinds && found.kinds && !change.kinds.some((kind) => found.kinds.includes(kind))) return false;
  return !(change.nodes && found.node && !change.nodes.includes(found.node));
}

/** The cluster changed: `{revision, nodes: names or null, kinds: [...]}`; without an argument anything may have. */
export function changed(change = {}) {
  for (const found of entries.values()) {
    if (!matters(change, found)) continue;
    found.stale = true;
    if (found.watchers.size) loadSoon(found);
  }
}

/** Try again what went wrong. */
export function retry() {
  for (const found of entries.values()) {
    found.rest = 0;
    found.stale = true;
    if (found.watchers.size) load(found);
  }
}
