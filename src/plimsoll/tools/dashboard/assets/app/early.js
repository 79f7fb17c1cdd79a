// Owns: the theme before the first paint, so that a dark page does not flash white. A classic script on
// purpose: it runs before the body is drawn. The toggle itself is in theme.js.
(function () {
  try {
    var theme = localStorage.getItem("plimsoll-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (_) {
    // Storage is switched off: the system's choice holds.
  }
})();
