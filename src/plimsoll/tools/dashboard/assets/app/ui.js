// Owns: the one place that knows which libraries draw the page. Everything else imports from here.
// Text is only ever put into the page as text nodes and attributes; nothing here or elsewhere sets innerHTML.
import { Component, h, render } from "../vendor/preact.js";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";

export { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState };
export { Component, render };

export const html = htm.bind(h);

/** Whether a media query holds now; drawn anew when that changes. */
export function useMedia(text) {
  const query = useMemo(() => matchMedia(text), [text]);
  const [holds, setHolds] = useState(query.matches);
  useEffect(() => {
    const look = () => setHolds(query.matches);
    look();
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, [query]);
  return holds;
}

/** Class names, those that are not false. */
export function cx(...names) {
  return names.filter(Boolean).join(" ");
}

/** The title of the page, in the tab and for screen readers. */
export function setTitle(title) {
  document.title = title ? `${title} - Plimsoll` : "Plimsoll";
}
