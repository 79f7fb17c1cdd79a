// Owns: light, dark or as the system has it; the choice is kept in this browser.
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

/** The theme ("", "light" or "dark") and a function that goes on to the next. */
export function useTheme() {
  const [theme, setTheme] = useState(stored);
  const next = () => {
    const chosen = NEXT[theme] ?? "";
    try {
      if (chosen) localStorage.setItem(KEY, chosen);
      else localStorage.removeItem(KEY);
    } catch (_) {
      // Storage is switched off: the choice holds until the page is left.
    }
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    setTheme(chosen);
  };
  return [theme, next];
}
