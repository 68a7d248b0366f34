# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of a backend on gloo and on ours, and the tests that only gloo passes.

    python compare_gloo.py [--json FILE] [PATTERN ...]

Runs upstream.py with four ranks on gloo, then on ours whatever gloo did not skip. The tests that
four ranks are too few for run again with eight. A test that fails runs a second time, because tests
with time limits fail on a busy machine; the table says so. Prints a table in Markdown and returns 1
if ours passes less than 98 % of what gloo passes. Takes five minutes on two idle cores.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = (4, 8)
TOO_FEW = "small world size"
SHARE_MIN = 0.98


def run_upstream(folder, backend, size, patterns, names=None):
    """{test: (outcome, why)}; a test that ends the whole run counts as failed."""
    path = folder / f"{backend}-{size}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-W", "ignore", HERE / "upstream.py", backend, "--json", path]
    command += ["--world-size", size]
    if names is not None:
        listed = folder / "names.txt"
        listed.write_text("\n".join(names), encoding="utf-8")
        command += ["--list", listed]
    print(f"== {backend} on {size} ranks", file=sys.stderr, flush=True)
    subprocess.run([str(part) for part in (*command, *patterns)], check=False, stdout=sys.stderr)
    outcomes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in names or ():
        outcomes.setdefault(name, ("FAILED", "The run ended before this test did."))
    return {name: tuple(outcome) for name, outcome in outcomes.items()}


def run_twice(folder, backend, size, patterns, names=None):
    """The same; what fails has a second chance."""
    outcomes = run_upstream(folder, backend, size, patterns, names)
    failed = [name for name, (outcome, _) in outcomes.items() if outcome == "FAILED"]
    if failed:
        for name, (outcome, why) in run_upstream(folder, backend, size, [], failed).items():
            outcomes[name] = ("again", outcomes[name][1]) if outcome == "passed" else (outcome, why)
    return outcomes


def compare(folder, patterns):
    """Both backends: {test: (ranks, outcome, why)}."""
    seen = {"gloo": {}, "horovod": {}}
    names = None
    for size in SIZES:
        theirs = run_twice(folder, "gloo", size, patterns, names)
        wanted = [name for name, (outcome, _) in theirs.items() if outcome != "skipped"]
        ours = run_twice(folder, "horovod", size, [], wanted) if wanted else {}
        for backend, outcomes in (("gloo", theirs), ("horovod", ours)):
            seen[backend].update({name: (size, *rest) for name, rest in outcomes.items()})
        names = [
            name for name, (what, why) in theirs.items() if what == "skipped" and TOO_FEW in why
        ]
        if not names:
            break
    return seen


def last_line(why):
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    return lines[-1].replace("|", "\\|")[:200] if lines else ""


def has_passed(row):
    return row[1] in ("passed", "again")


def report(seen):
    """Prints the table; the share of what gloo passes that ours passes."""
    gloo, ours = seen["gloo"], seen["horovod"]
    skipped = Counter(last_line(why) for _, what, why in gloo.values() if what == "skipped")
    passed = [name for name, row in gloo.items() if has_passed(row)]
    missing = [name for name in passed if not has_passed(ours[name])]
    share = 1 - len(missing) / max(len(passed), 1)
    print("| | tests |\n|---|---|")
    print(f"| in the suite | {len(gloo)} |")
    for reason, count in skipped.most_common():
        print(f"| skipped: {reason} | {count} |")
    for size in SIZES:
        print(f"| gloo passes on {size} ranks | {sum(gloo[n][0] == size for n in passed)} |")
    print(f"| of these, horovod passes | {len(passed) - len(missing)} ({share:.1%}) |")
    print(f"| gloo fails | {sum(row[1] == 'FAILED' for row in gloo.values())} |")
    print("\n| test | gloo | horovod | why |\n|---|---|---|---|")
    for name, row in sorted(gloo.items()):
        if row[1] == "skipped":
            continue
        mine = ours[name]
        if (row[1], mine[1]) != ("passed", "passed"):
            why = mine[2] if mine[1] != "passed" else row[2]
            print(f"| `{name}` | {row[1]} | {mine[1]} | {last_line(why)} |")
    return share


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--json", help="write every outcome to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = compare(Path(folder), arguments.patterns)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(seen, indent=1), encoding="utf-8")
    return 0 if report(seen) >= SHARE_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
