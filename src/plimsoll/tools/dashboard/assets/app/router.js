// Hash routes. Every page has its own URL (#/nodes/n1?sort=name); a change of the query only replaces the history
// entry.
import { useEffect, useState } from "./ui.js";

/** Parse a hash into path parts and query. */
export function parse(hash) {
  const text = (hash || "").replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = cut < 0 ? text : text.slice(0, cut);
  const parts = path.split("/").filter((part) => part !== "").map(decode);
  return { parts, path, query: new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch (_) {
    return part; // A lone % typed by hand.
  }
}

/** Return the hash of path parts and of the non-empty query parameters. */
export function to(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const tail = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${parts.map(encodeURIComponent).join("/")}${tail}`;
}

export const links = {
  node: (name) => to(["nodes", name]),
  pod: (namespace, name) => to(["explain", "pod", namespace, name]),
  claim: (namespace, name) => to(["explain", "claim", namespace, name]),
  /** A what-if that runs at once, such as {remove: ["Pod/a/b"]}; `pod` is the pod of interest. */
  whatif: ({ remove = [], drain = [], pod = "" }) => to(["whatif"], { remove: remove.join(","), drain: drain.join(","), pod }),
};

/** Return the current route; render again when it changes. */
export function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const read = () => setHash(location.hash);
    addEventListener("hashchange", read);
    addEventListener("popstate", read);
    return () => {
      removeEventListener("hashchange", read);
      removeEventListener("popstate", read);
    };
  }, []);
  return parse(hash);
}

/** Change the query of the current URL without a new history entry. */
export function replaceQuery(changes) {
  const { parts, query } = parse(location.hash);
  for (const [key, value] of Object.entries(changes)) {
    if (value === "" || value == null) query.delete(key);
    else query.set(key, value);
  }
  const next = to(parts, Object.fromEntries(query));
  if (next === location.hash) return;
  history.replaceState(history.state, "", next);
  dispatchEvent(new PopStateEvent("popstate"));
}
