// Keyboard shortcuts and the dialog that lists them. Shortcuts are disabled in text fields.
import { html, useEffect, useRef } from "./ui.js";

export const KEYS = [
  ["/", "search this page"],
  ["g o", "overview"],
  ["g d", "devices"],
  ["g c", "claims"],
  ["g s", "pods"],
  ["g p", "pending pods"],
  ["g n", "namespaces"],
  ["g h", "history"],
  ["g a", "audit"],
  ["g w", "what if"],
  ["Arrow keys", "move between rows or CPUs"],
  ["t", "switch theme: system, dark, light"],
  ["?", "keyboard shortcuts"],
];
const ROUTES = { o: "#/", d: "#/devices", c: "#/claims", s: "#/pods", p: "#/pending", n: "#/namespaces", h: "#/history", a: "#/audit", w: "#/whatif" };

function isTyping(target) {
  return target.closest && target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
}

/** Handle the shortcuts. */
export function useKeys({ showKeys, nextTheme }) {
  const latest = useRef({});
  latest.current = { showKeys, nextTheme };
  useEffect(() => {
    let prefixTime = 0; // when "g" was pressed, in ms
    const onKeyDown = (event) => {
      if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
      if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
      if (prefixTime && Date.now() - prefixTime < 1200 && ROUTES[event.key]) {
        event.preventDefault();
        location.hash = ROUTES[event.key];
        prefixTime = 0;
        return;
      }
      prefixTime = event.key === "g" ? Date.now() : 0;
      if (event.key === "/") {
        event.preventDefault();
        focusSearch();
      } else if (event.key === "?") {
        event.preventDefault();
        latest.current.showKeys();
      } else if (event.key === "t") latest.current.nextTheme();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}

/** Focus the search field of this page, or that of the overview if this page has none. */
function focusSearch() {
  const box = document.querySelector("[data-search]");
  if (box) {
    box.focus();
    box.select();
    return;
  }
  location.hash = "#/";
  const until = Date.now() + 2000;
  const look = () => {
    const found = document.querySelector("[data-search]");
    if (found) found.focus();
    else if (Date.now() < until) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}

/** Dialog of the shortcuts; the browser keeps track of whether it is open. */
export function KeysDialog({ dialog }) {
  return html`<dialog ref=${dialog} class="keys" aria-labelledby="keys-title">
    <h2 id="keys-title">Keyboard shortcuts</h2>
    <dl>${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <form method="dialog"><button type="submit" class="primary">Close</button></form>
  </dialog>`;
}
