// Applies the stored theme before the first paint, so that a dark page does not flash white. Deliberately a
// classic script: it runs before the body is rendered. The toggle is in theme.js.
(function () {
  try {
    var theme = localStorage.getItem("plimsoll-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (_) {
    // Storage is disabled: use the system's theme.
  }
})();
