// Event stream (/api/events) and its status: live, reconnecting or static. Changes received while the page is
// hidden are merged and handled when it becomes visible.
import { useEffect, useState } from "./ui.js";
import { changed } from "./store.js";

const listeners = new Set();
let state = "connecting";
let source = null;
let missed = null;

function set(next) {
  if (state === next) return;
  state = next;
  for (const listener of listeners) listener(next);
}

// The first event of a stream has no kinds and may stand for any change.
const ofAnyKind = (change) => !change.kinds || !change.kinds.length;

function merge(one, other) {
  if (ofAnyKind(one) || ofAnyKind(other)) return {};
  const both = (a, b) => (a && b ? [...new Set([...a, ...b])] : null);
  return { revision: other.revision, status: other.status, nodes: both(one.nodes, other.nodes), kinds: both(one.kinds, other.kinds) };
}

function handle(change) {
  if (document.hidden) missed = missed ? merge(missed, change) : change;
  else changed(change);
}

/** Open the event stream if the cluster is `live`; a dump never changes. */
export function follow(live) {
  if (live === false) {
    if (source) source.close();
    source = null;
    set("static");
    return;
  }
  if (source) return;
  open();
}

function open() {
  source = new EventSource("api/events");
  // The first event carries the revision, which shows whether changes were missed.
  source.onopen = () => set("live");
  source.onerror = () => {
    set("reconnecting");
    // Browsers do not reconnect after some responses (a proxy's 502).
    if (source && source.readyState === EventSource.CLOSED) {
      source.close();
      source = null;
      setTimeout(() => source || state === "static" || open(), 2000);
    }
  };
  source.addEventListener("change", (event) => {
    let change = {};
    try {
      change = JSON.parse(event.data) || {};
    } catch (_) {
      // Invalid event: assume that anything changed.
    }
    handle(change);
  });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || !missed) return;
  const change = missed;
  missed = null;
  changed(change);
});

/** Return the status of the stream: connecting, live, reconnecting or static. */
export function useLive() {
  const [status, setStatus] = useState(state);
  useEffect(() => {
    listeners.add(setStatus);
    setStatus(state);
    return () => listeners.delete(setStatus);
  }, []);
  return status;
}
