// Owns: the stream of changes (/api/events) and what the page says about it: live, reconnecting or static.
// Changes that come while the page is hidden are gathered and handled when it is looked at again.
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

function merge(one, other) {
  const both = (a, b) => (a && b ? [...new Set([...a, ...b])] : null);
  return { revision: other.revision, nodes: both(one.nodes, other.nodes), kinds: both(one.kinds, other.kinds) };
}

function handle(change) {
  if (document.hidden) missed = missed ? merge(missed, change) : change;
  else changed(change);
}

/** Follow the cluster; `live` is what the overview says. A dump never changes, so nothing is opened for it. */
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
  // What changed while nobody listened shows in the revision that the first event has.
  source.onopen = () => set("live");
  source.onerror = () => {
    set("reconnecting");
    // A browser gives up for good on some answers (a proxy's 502); the page does not.
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
      // Not understood: anything may have changed.
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

/** The state of the stream: connecting, live, reconnecting or static. */
export function useLive() {
  const [now, setNow] = useState(state);
  useEffect(() => {
    listeners.add(setNow);
    setNow(state);
    return () => listeners.delete(setNow);
  }, []);
  return now;
}
