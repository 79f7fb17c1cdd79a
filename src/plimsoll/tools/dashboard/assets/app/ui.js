// Rendering libraries: all other modules import them from here. Text is inserted only as text nodes and attributes;
// no module sets innerHTML.
import { Component, h, render } from "../vendor/preact.js";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";

export { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState };
export { Component, render };

export const html = htm.bind(h);

/** Screens as narrow as a phone, where rows of tables become blocks. */
export const NARROW = "(max-width: 640px)";

/** Return whether a media query matches; render again when that changes. */
export function useMedia(text) {
  const query = useMemo(() => matchMedia(text), [text]);
  const [matches, setMatches] = useState(query.matches);
  useEffect(() => {
    const update = () => setMatches(query.matches);
    update();
    query.addEventListener("change", update);
    return () => query.removeEventListener("change", update);
  }, [query]);
  return matches;
}

/** Join class names and skip falsy ones. */
export function cx(...names) {
  return names.filter(Boolean).join(" ");
}

/** Set the document title. */
export function setTitle(title) {
  document.title = title ? `${title} - Plimsoll` : "Plimsoll";
}
