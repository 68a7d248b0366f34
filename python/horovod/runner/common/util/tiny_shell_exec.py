# SPDX-License-Identifier: Apache-2.0
"""Run a short command and read what it says."""

import io
import traceback

from horovod.runner.common.util import safe_shell_exec


def execute(command, env=None):
    """(its output of both kinds, its exit code), or None if it could not be run at all."""
    output = io.StringIO()
    try:
        code = safe_shell_exec.execute(command, env=env, stdout=output, stderr=output)
    except Exception:
        traceback.print_exc()
        return None
    return output.getvalue(), code
