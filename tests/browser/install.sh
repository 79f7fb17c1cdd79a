#!/bin/sh
# Installs Chromium for the browser tests in CI (as root, with apt-get); elsewhere it prints why they will be
# skipped. It never fails: without a browser the tests are skipped.
for name in "${CHROMIUM:-}" chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
  if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then
    exit 0
  fi
done
if [ "${CI:-}" != "true" ]; then
  echo "browser tests will be skipped: no Chromium on PATH (install chromium, or name one with CHROMIUM)"
elif [ "$(id -u)" != "0" ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "browser tests will be skipped: no Chromium, and it can be installed only as root with apt-get"
elif apt-get update -qq && {
  apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null 2>&1 ||
    apt-get install -y -qq --no-install-recommends chromium >/dev/null
}; then
  echo "installed $(command -v chromium-headless-shell chromium)"
else
  echo "browser tests will be skipped: Chromium could not be installed"
fi
exit 0
