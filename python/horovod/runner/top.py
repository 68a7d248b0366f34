# SPDX-License-Identifier: Apache-2.0
"""horovodtop: `horovodrun --status --watch`."""

import os
import sys

from horovod.runner.launcher import find_horovodrun


def main() -> None:
    """Become horovodrun, which shows the table."""
    path = find_horovodrun()
    os.execv(path, [path, "--status", "--watch", *sys.argv[1:]])
