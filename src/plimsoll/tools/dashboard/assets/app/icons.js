// Icons and the Plimsoll mark. All are decorative and accompanied by text.
import { html } from "./ui.js";

export function Logo() {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
    <circle cx="16" cy="16" r="9" fill="none" stroke="currentColor" stroke-width="3" />
    <path d="M2 16h28" stroke="currentColor" stroke-width="3" stroke-linecap="round" />
  </svg>`;
}

const SHAPES = {
  sun: "M8 4.6a3.4 3.4 0 1 0 0 6.8 3.4 3.4 0 0 0 0-6.8zM8 .8v1.8M8 13.4v1.8M.8 8h1.8M13.4 8h1.8M2.9 2.9l1.3 1.3M11.8 11.8l1.3 1.3M13.1 2.9l-1.3 1.3M4.2 11.8l-1.3 1.3",
  moon: "M13.5 9.8A6 6 0 0 1 6.2 2.5a6 6 0 1 0 7.3 7.3z",
  auto: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 1.8v12.4M8 5h4.6M8 8h6M8 11h4.6",
  warn: "M8 1.8 15 14H1zM8 6.2v3.6M8 11.7v.3",
  ok: "M2.5 8.5 6 12l7.5-8",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <path d=${SHAPES[name]} fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" />
  </svg>`;
}
