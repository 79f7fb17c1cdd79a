// Owns: the one place that knows which libraries draw the page. Everything else imports from here.
// Text is only ever put into the page as text nodes and attributes; nothing here or elsewhere sets innerHTML.
import { Component, Fragment, createContext, createRef, h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export {
  useCallback,
  useContext,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/hooks.js";
export { Component, Fragment, createContext, createRef, h, render };

export const html = htm.bind(h);

/** Class names, those that are not false. */
export function cx(...names) {
  return names.filter(Boolean).join(" ");
}

/** The title of the page, in the tab and for screen readers. */
export function setTitle(title) {
  document.title = title ? `${title} - Plimsoll` : "Plimsoll";
}
