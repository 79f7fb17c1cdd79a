"""Pictures of the dashboard for the documentation: `python -m tests.browser.screenshots DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser.chromium import Browser, find_chromium
from tests.browser.clusters import sample_cluster
from tests.browser.dashboards import DashboardRunner, open_page
from tests.dumps import make_cluster_state

#: Name of the picture, page, height.
PICTURES = (("overview", "", 860), ("node", "nodes/numa-1", 860), ("pending", "pending", 384))
WIDTH = 1280


def take_pictures(directory: Path) -> None:
    """Write each picture in light and dark colors."""
    program = find_chromium()
    assert program, "no Chromium: install chromium, or name one with CHROMIUM"
    runner, browser = DashboardRunner(), Browser(program)
    try:
        dashboard = runner.dump(make_cluster_state(sample_cluster()))
        for theme in ("light", "dark"):
            for name, path, height in PICTURES:
                page = browser.page(width=WIDTH, height=height)
                page.prefer(prefers_color_scheme=theme, prefers_reduced_motion="reduce")
                open_page(page, dashboard, path)
                for unfinished in ("audit running", "looking for a fix"):
                    page.wait(f"!document.body.innerText.includes({unfinished!r})")
                page.screenshot(directory / f"{name}-{theme}.webp")
                page.close()
    finally:
        browser.close()
        runner.close()


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]))
