# SPDX-License-Identifier: Apache-2.0
"""For all tests: the signals that programs are stopped by do what they usually do.

A shell that runs us in the background, and nohup, have us ignore some of them. What we start would
ignore them, too, and tests that stop it would wait for ever.
"""

import signal
import sys
from pathlib import Path

# Modules that the tests share. Not this folder itself: it holds folders named like frameworks.
sys.path.append(str(Path(__file__).resolve().parent / "shared"))

signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
