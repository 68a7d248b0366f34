# SPDX-License-Identifier: Apache-2.0
"""Shell scripts that the ranks of launcher tests run."""

UP = "touch up.$HOROVOD_RANK; "  # shows the test that this rank runs
# Ignores all signals that ask it to stop, and so does a process in a session of its own.
STUBBORN = (
    "trap '' TERM INT HUP; "
    "setsid sh -c \"trap '' TERM INT HUP; while :; do sleep 1; done\" & "
    + UP
    + "sleep 300 & wait; wait"
)
