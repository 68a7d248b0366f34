# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of a backend, from its wheel, on ours or on gloo.

    python upstream.py horovod [--json FILE] [--world-size N] [PATTERN ...]

The tests look at the name of the backend to decide which of them to run, and what to expect. So
they are imported as for gloo, and the name is changed afterwards to one that passes for gloo's in
comparisons: what runs is what gloo runs.
Processes are forked, which saves each of them the import.
"""

import argparse
import fnmatch
import json
import os
import sys
import tempfile
import time
import unittest

import torch

ARGUMENTS = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
ARGUMENTS.add_argument("backend", choices=("gloo", "horovod"))
ARGUMENTS.add_argument("patterns", nargs="*")
ARGUMENTS.add_argument("--json")
ARGUMENTS.add_argument("--list", help="a file with a name of a test in each line")
ARGUMENTS.add_argument("--world-size", default="3")


class Name(str):
    """The name of our backend, which passes for gloo where tests compare it."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return str(self) == other or other == "gloo"

    def __ne__(self, other):
        return not self == other


def make_class(module, backend):
    """The tests of the module as a class that unittest can run."""
    module.BACKEND = Name(backend)

    class Upstream(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    # Processes are told their class by name.
    Upstream.__qualname__ = "Upstream"
    return Upstream


class Result(unittest.TestResult):
    """Prints a line for each test and keeps the outcome."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def startTest(self, test):  # noqa: N802
        super().startTest(test)
        self.began = time.monotonic()

    def _note(self, test, outcome, why=""):
        name = test._testMethodName
        self.outcomes[name] = (outcome, why)
        seconds = time.monotonic() - self.began
        print(f"{outcome:8}{seconds:6.1f} s  {name}  {why.strip().splitlines()[-1:]}", flush=True)

    def addSuccess(self, test):  # noqa: N802
        self._note(test, "passed")

    def addFailure(self, test, error):  # noqa: N802
        self._note(test, "FAILED", self._exc_info_to_string(error, test))

    addError = addFailure  # noqa: N815

    def addSkip(self, test, reason):  # noqa: N802
        self._note(test, "skipped", reason)


def main():
    arguments = ARGUMENTS.parse_intermixed_args()
    os.environ.update(BACKEND="gloo", WORLD_SIZE=arguments.world_size, OMP_NUM_THREADS="1")
    os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
    from torch.testing._internal.distributed import distributed_test

    torch.set_num_threads(1)
    cls = make_class(distributed_test, arguments.backend)
    names = unittest.TestLoader().getTestCaseNames(cls)
    if arguments.list:
        with open(arguments.list, encoding="utf-8") as file:
            wanted = set(file.read().split())
        names = [name for name in names if name in wanted]
    patterns = arguments.patterns or ["*"]
    names = [name for name in names if any(fnmatch.fnmatch(name, p) for p in patterns)]
    result = Result()
    if hasattr(cls, "setUpClass"):
        cls.setUpClass()
    for name in names:
        cls(name).run(result)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(result.outcomes, file, indent=1)
    counts = {}
    for outcome, _ in result.outcomes.values():
        counts[outcome] = counts.get(outcome, 0) + 1
    print(counts)
    return 1 if counts.get("FAILED") else 0


if __name__ == "__main__":
    sys.exit(main())
