# SPDX-License-Identifier: Apache-2.0
"""A time limit whose message says what it was for."""

import time


class TimeoutException(Exception):
    pass


class Timeout:
    """`message` may hold {timeout} and {activity}."""

    def __init__(self, timeout, message):
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._message = message

    def remaining(self):
        return max(0, self._deadline - time.monotonic())

    def timed_out(self):
        return self.remaining() <= 0

    def check_time_out_for(self, activity):
        if not self.timed_out():
            return
        text = self._message.replace("{timeout}", str(self._timeout))
        text = text.replace("{activity}", str(activity))
        text = text.rstrip(".")
        raise TimeoutException(f"{text}. Timeout after {self._timeout} seconds.")
