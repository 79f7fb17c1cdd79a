// Owns: the keys of the whole page and the dialog that lists them. Keys do nothing while one types.
import { html, useEffect, useRef } from "./ui.js";

export const KEYS = [
  ["/", "search on this page"],
  ["g o", "overview"],
  ["g d", "devices"],
  ["g c", "claims"],
  ["g p", "pending pods"],
  ["g n", "namespaces"],
  ["g a", "audit"],
  ["g w", "what if"],
  ["Arrow keys", "from row to row, from CPU to CPU"],
  ["t", "light, dark or as the system"],
  ["?", "this list"],
];
const PLACES = { o: "#/", d: "#/devices", c: "#/claims", p: "#/pending", n: "#/namespaces", a: "#/audit", w: "#/whatif" };

function isTyping(target) {
  return target.closest && target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
}

/** Listen for the keys of the page. */
export function useKeys({ showKeys, nextTheme }) {
  const latest = useRef({});
  latest.current = { showKeys, nextTheme };
  useEffect(() => {
    let going = 0;
    const press = (event) => {
      if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
      if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
      if (going && Date.now() - going < 1200 && PLACES[event.key]) {
        event.preventDefault();
        location.hash = PLACES[event.key];
        going = 0;
        return;
      }
      going = event.key === "g" ? Date.now() : 0;
      if (event.key === "/") {
        event.preventDefault();
        focusSearch();
      } else if (event.key === "?") {
        event.preventDefault();
        latest.current.showKeys();
      } else if (event.key === "t") latest.current.nextTheme();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** To the search box of this page; from a page that has none, to the one of the overview. */
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

/** The browser itself knows whether the dialog is open; nobody else has to. */
export function KeysDialog({ dialog }) {
  return html`<dialog ref=${dialog} class="keys" aria-labelledby="keys-title">
    <h2 id="keys-title">Keys</h2>
    <dl>${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <form method="dialog"><button type="submit" class="primary">Close</button></form>
  </dialog>`;
}
