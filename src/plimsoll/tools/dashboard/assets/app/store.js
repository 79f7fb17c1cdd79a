// Cache of API responses, one entry per path. Old data stays visible while newer data is loaded. A cluster change
// (live.js) marks the affected entries as stale; those in use are fetched again at once, the others on next use.
import { useEffect, useReducer } from "./ui.js";

const entries = new Map();
/** Responses that contain audit findings. */
const FINDINGS = new Set(["api/overview", "api/audit"]);
const MAX_ENTRIES = 60; // Unused entries are evicted beyond this.
/** Responses within FAST_MS are fetched again at once, slower ones after a pause of at most MAX_PAUSE_MS. */
const FAST_MS = 250;
const MAX_PAUSE_MS = 10000;
/** Pause before an interrupted request is sent again. */
const RETRY_MS = 300;

function entry(path) {
  let found = entries.get(path);
  if (!found) {
    found = { path, data: null, error: "", stale: true, loading: null, watchers: new Set(), kinds: null, node: null, pause: 0, loadedAt: 0, timer: 0 };
    entries.set(path, found);
    evict();
  }
  return found;
}

function evict() {
  if (entries.size <= MAX_ENTRIES) return;
  for (const [path, found] of entries) {
    if (!found.watchers.size && !found.loading) entries.delete(path);
    if (entries.size <= MAX_ENTRIES) return;
  }
}

/** Send a request and return its JSON. Throw an Error with the server's message if it fails. */
export async function request(path, options = {}) {
  try {
    return await send(path, options);
  } catch (error) {
    // A network that changes interrupts requests that the server would answer.
    if (!error.interrupted || (options.method || "GET") !== "GET") throw error;
  }
  await new Promise((done) => setTimeout(done, RETRY_MS));
  return send(path, options);
}

async function send(path, options) {
  let response, text;
  try {
    response = await fetch(path, { cache: "no-cache", credentials: "same-origin", ...options });
    text = await response.text();
  } catch (_) {
    const problem = response ? "The connection to the dashboard server was interrupted." : "The dashboard server is not reachable.";
    throw Object.assign(new Error(problem), { interrupted: true });
  }
  let body = null;
  try {
    body = JSON.parse(text);
  } catch (_) {
    // Not JSON: the status is all there is.
  }
  if (!response.ok) throw new Error((body && body.error) || `The server returned status ${response.status}.`);
  if (body === null) throw new Error("The response of the dashboard server is not JSON.");
  return body;
}

async function load(found) {
  if (found.loading) return;
  found.stale = false;
  const began = performance.now();
  found.loading = request(found.path);
  try {
    found.data = await found.loading;
    found.error = "";
  } catch (error) {
    found.error = error.message;
  }
  found.loading = null;
  // A slow response is not requested again for as long as it took, to limit the load on the server.
  found.pause = Math.min(MAX_PAUSE_MS, performance.now() - began);
  found.loadedAt = performance.now();
  for (const watcher of found.watchers) watcher();
  if (found.stale && found.watchers.size) loadSoon(found);
}

/** Fetch again, after a pause if the last response was slow. */
function loadSoon(found) {
  const left = found.pause > FAST_MS ? found.loadedAt + found.pause - performance.now() : 0;
  if (left <= 0) {
    load(found);
    return;
  }
  clearTimeout(found.timer);
  found.timer = setTimeout(() => found.stale && found.watchers.size && load(found), left);
}

/**
 * Return {data, error} of a path; data is null until it is loaded.
 * `kinds` and `node` restrict the changes that affect it; by default every change does.
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

/** Return whether a change may affect an entry. */
export function affects(change, found) {
  // The first event of a stream has no kinds: entries of another revision, or of another status of the dashboard, are stale.
  if (change.kinds && !change.kinds.length) return Boolean(found.data) && (found.data.revision !== change.revision || (found.data.status ?? change.status) !== change.status);
  if (change.kinds && change.kinds.every((kind) => kind === "Finding")) return FINDINGS.has(found.path);
  if (change.kinds && found.kinds && !change.kinds.some((kind) => found.kinds.includes(kind))) return false;
  return !(change.nodes && found.node && !change.nodes.includes(found.node));
}

/** Handle a cluster change: `{revision, status, nodes: names or null, kinds: [...]}`; no argument means anything. */
export function changed(change = {}) {
  for (const found of entries.values()) {
    if (!affects(change, found)) continue;
    found.stale = true;
    if (found.watchers.size) loadSoon(found);
  }
}

/** Fetch everything again at once. */
export function retry() {
  for (const found of entries.values()) {
    found.pause = 0;
    found.stale = true;
    if (found.watchers.size) load(found);
  }
}
