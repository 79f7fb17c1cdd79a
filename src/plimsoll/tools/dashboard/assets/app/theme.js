// Theme: light, dark or that of the system. The choice is stored in the browser.
import { useState } from "./ui.js";

const KEY = "plimsoll-theme";
const NEXT = { "": "dark", dark: "light", light: "" };

function stored() {
  try {
    return localStorage.getItem(KEY) || "";
  } catch (_) {
    return "";
  }
}

/** Return the theme ("", "light" or "dark") and a function that selects the next one. */
export function useTheme() {
  const [theme, setTheme] = useState(stored);
  const next = () => {
    const chosen = NEXT[theme] ?? "";
    try {
      if (chosen) localStorage.setItem(KEY, chosen);
      else localStorage.removeItem(KEY);
    } catch (_) {
      // Storage is disabled: the choice lasts until the page is closed.
    }
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    setTheme(chosen);
  };
  return [theme, next];
}
