# SPDX-License-Identifier: Apache-2.0
"""Run the files of examples/ as their READMEs say, on real ranks."""

import json
import sys
from pathlib import Path

from launching import find_launcher, launch, run

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

# Several examples one after the other in the same processes: a framework is imported only once.
IN_TURN = """\
import json, runpy, sys
for path, *arguments in json.loads(sys.argv[1]):
    sys.argv = [path, *arguments]
    print("example", path, flush=True)
    runpy.run_path(path, run_name="__main__")
"""


def succeeded(result):
    """What the ranks printed, without their warnings, which a busy machine may cause."""
    assert result.returncode == 0, result.stdout[-8000:]
    return "\n".join(line for line in result.stdout.splitlines() if "<stderr>" not in line)


def in_turn(*commands):
    """The command of a process that runs examples, each [path below examples/, arguments...]."""
    listed = [[str(EXAMPLES / path), *map(str, rest)] for path, *rest in commands]
    return [sys.executable, "-c", IN_TURN, json.dumps(listed)]


def run_examples(ranks, *commands, env=None):
    """What each of the commands printed, in their order."""
    output = succeeded(launch(ranks, *in_turn(*commands), env=env))
    texts, current = {str(EXAMPLES / path): [] for path, *_ in commands}, {}
    for line in output.splitlines():
        rank, _, text = line.partition("<stdout>:")
        if text.startswith("example "):
            current[rank] = texts[text.removeprefix("example ")]
        elif rank in current:
            current[rank].append(line)
    return ["\n".join(lines) for lines in texts.values()]


def run_elastic(path, *arguments, env=None):
    """An elastic job whose workers all live: two ranks, of which one would do."""
    options = ["-np", "2", "--min-np", "1", "--max-np", "2", "-H", "localhost:2"]
    script = [sys.executable, str(EXAMPLES / path), *map(str, arguments)]
    return succeeded(run([find_launcher(), *options, *script], env))
