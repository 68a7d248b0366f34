#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Open the dashboard of a real job in a headless Chromium, check what it shows, take screenshots.

    show_dashboard.py FOLDER    FOLDER: for light.png and dark.png

Not part of the tests, because a browser is a large package. Needs Debian's `chromium`, playwright
(`pip install playwright`) in this Python, and `horovodrun` in the PATH or in HOROVODRUN.
HOROVOD_PYTHON is a Python that has Horovod and NumPy (default: python).
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

RANKS = 4
TRAIN = """
import sys, time
import numpy as np
import horovod.numpy as hvd
hvd.init()
for step in range(100000):
    time.sleep(0.06 if hvd.rank() == 2 else 0.04)
    for i in range(4):
        hvd.allreduce(np.ones(1 << 18, np.float32), name=f"grad.{i}")
"""


def start(folder: str) -> tuple[subprocess.Popen, str]:
    """A job with a slow rank, over TCP, and the address of its dashboard."""
    script = Path(folder) / "train.py"
    script.write_text(TRAIN)
    command = [os.environ.get("HOROVODRUN", "horovodrun"), "-np", str(RANKS), "--dashboard"]
    job = subprocess.Popen(
        [*command, os.environ.get("HOROVOD_PYTHON", "python"), script.name],
        env={**os.environ, "HOROVOD_SHM_DISABLE": "1"},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in job.stderr:
        found = re.search(r"http://\S+", line)
        if found:
            return job, found[0]
    raise SystemExit("horovodrun has not printed an address")


def check(page) -> None:
    """What must be there, once some steps have run."""
    page.wait_for_selector("#verdicts .bad", timeout=60000)
    page.wait_for_timeout(12000)
    verdict = page.text_content("#verdicts")
    assert "Rank 2 is slow (late submit)" in verdict, verdict
    rows = page.locator("#ranks tbody tr")
    assert rows.count() == RANKS, rows.count()
    assert page.locator("#matrix tr").count() == RANKS + 1
    assert page.locator("#links tbody tr").count() >= RANKS
    assert re.search(r"\d → \d", page.text_content("#links"))
    assert "Slow: rank 2 late submit" in page.text_content("#events")
    assert "horovodrun" in page.text_content("#line") and "4 ranks" in page.text_content("#line")


def main() -> None:
    """Both colour schemes; nothing may be requested from anywhere else, and no error logged."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        job, address = start(folder)
        browser = play.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            for scheme in ("light", "dark"):
                page = browser.new_page(
                    color_scheme=scheme, viewport={"width": 1180, "height": 790}
                )
                problems, asked = [], []
                page.on("pageerror", lambda error, p=problems: p.append(str(error)))
                page.on("console", lambda m, p=problems: m.type == "error" and p.append(m.text))
                page.on("request", lambda r, a=asked: a.append(r.url))
                page.goto(address)
                check(page)
                assert not problems, problems
                origin = address.split("?")[0]
                assert all(url.startswith((origin, "data:")) for url in asked), asked
                page.screenshot(path=str(target / f"dashboard_{scheme}.png"))
                page.close()
            page = browser.new_page()
            assert page.goto(address[:-1] + "x").status == 403
        finally:
            browser.close()
            job.terminate()
            job.wait()
    print("the dashboard shows what it should")


if __name__ == "__main__":
    main()
