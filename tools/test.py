#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run every check of the project, fast ones first, and close with one line of counts.

    tools/test.py                 all steps
    tools/test.py lint release    only these
    tools/test.py --list          their names

A failing step does not stop the others, so that one run reports everything. Tests that start
processes often wait, so steps share the machine: while those of C run, builds and environments of
later ones are made at a low priority; then two lanes of Python steps run side by side, with builds
behind them, and Slurm and MPI follow alone. Steps outside the first lane print to
build/reports/STEP.log, which is shown after they have ended. The closing line sums the CTest tests
of the release, sanitizer and simulation runs, the fuzz targets and pytest; a step that failed
without a failing test (a build error, say) counts as one failure.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import os
import queue
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "reports"
JOBS = os.environ.get("JOBS") or str(os.cpu_count() or 1)
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS") or 5)


class Counts:
    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        text = f"{self.passed} passed, {self.failed} failed"
        return text + (f", {self.skipped} skipped" if self.skipped else "")


class StepError(Exception):
    """A command of the step failed, and no test tells so."""


class Thread(threading.local):
    """Of a thread that runs steps: where they print, and what is put before their commands."""

    log = None  # our own output
    prefix = ()


HERE = Thread()


def say(line):
    print(line, file=HERE.log, flush=True)


def run(*command, check=True, env=None):
    log = HERE.log
    result = subprocess.run(
        [*HERE.prefix, *(str(part) for part in command)],
        cwd=ROOT,
        env=env,
        stdout=log,
        stderr=log and subprocess.STDOUT,
        check=False,
    )
    if check and result.returncode != 0:
        raise StepError(f"{command[0]} ended with {result.returncode}")
    return result.returncode


def venv(stack):
    result = subprocess.run(
        [*HERE.prefix, ROOT / "tools" / "venv.sh", stack],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=HERE.log,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise StepError(f"no environment for {stack}")
    return Path(result.stdout.strip())


PRESETS = ("release", "clang-release", "asan", "tsan", "fuzz", "aarch64")
BUILDING = {preset: threading.Lock() for preset in PRESETS}


def build(preset):
    with BUILDING[preset]:
        run("cmake", "--preset", preset, "--log-level=WARNING")
        run("cmake", "--build", "--preset", preset, "--", "-j", JOBS, "-k", "0", "--quiet")


def read_junit(path):
    """Counts of a JUnit file, as CTest and pytest write it."""
    counts = Counts()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"} or case.get("status") == "fail":
            counts.failed += 1
        elif "skipped" in kinds or case.get("status") in ("notrun", "disabled"):
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts


def ctest(preset, labels, *extra):
    report = REPORTS / f"ctest-{preset}-{labels.replace('|', '-')}.xml"
    report.unlink(missing_ok=True)
    code = run(
        *("ctest", "--test-dir", f"build/{preset}", "-j", JOBS, "-L", f"^({labels})$"),
        *("--output-on-failure", "--no-tests=ignore", "--output-junit", report, *extra),
        check=False,
    )
    counts = read_junit(report) if report.exists() else Counts()
    if code != 0 and not counts.failed:
        raise StepError(f"ctest ended with {code}")
    return counts


def step_lint():
    run("tools/lint.sh")
    return Counts()


def step_docs():
    run("tools/docs.sh")
    return Counts()


def step_release():
    build("release")
    return ctest("release", "lint|unit|mp16")


def step_clang():
    build("clang-release")
    return Counts()


def step_asan():
    build("asan")
    return ctest("asan", "unit|sim|mp")


def step_tsan():
    # Simulated ranks share one thread: there is no race to find.
    build("tsan")
    return ctest("tsan", "unit|mp")


def fuzz(target, log):
    """Run a target for a while; is it fine?"""
    HERE.log = log
    found = ROOT / "build/fuzz/corpus" / target.name
    found.mkdir(parents=True, exist_ok=True)
    seeds = ROOT / "tests/fuzz/corpus" / target.name.removeprefix("fuzz_")
    command = [target, f"-max_total_time={FUZZ_SECONDS}", "-timeout=20", "-rss_limit_mb=2048"]
    command += [f"-artifact_prefix={found.parent}/", "-verbosity=0", "-print_final_stats=0"]
    command += [found] + ([seeds] if seeds.is_dir() else [])
    is_ok = run(*command, check=False) == 0
    say(f"fuzz: {target.name} {'ok' if is_ok else 'FAILED'}")
    return is_ok


def step_fuzz():
    build("fuzz")
    targets = sorted((ROOT / "build/fuzz/fuzz").glob("fuzz_*"))
    targets = [path for path in targets if os.access(path, os.X_OK) and not path.is_dir()]
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        results = list(pool.map(fuzz, targets, [HERE.log] * len(targets)))
    return Counts(passed=results.count(True), failed=results.count(False))


# Under emulation: no MPI library of that processor is here, and the tests with many ranks that wait
# for each other in one process take minutes.
NOT_EMULATED = r"^unit\.(mpi|mpi_backend|host_coll)$"


def step_aarch64():
    build("aarch64")
    counts = ctest("aarch64", "unit|sim", "-E", NOT_EMULATED)
    run(sys.executable, "tools/check_calls.py", "--objects", "build/aarch64")
    run("tools/wheel.sh", "aarch64")
    run("tools/check_wheel_aarch64.sh")
    return counts


def step_macos():
    run(sys.executable, "tools/check_compile.py", "aarch64-macos")
    return Counts()


def step_sim():
    build("release")
    return ctest("release", "sim|mp")


def pytest(stack, folders, name=None, select=None, variables=None):
    """Installs into an environment of that stack and runs the tests of these folders there.

    select: only those whose name matches, as with pytest -k. variables: environment of the tests.
    """
    name = name or stack
    paths = [f"tests/python/{folder}" for folder in folders]
    paths = [path for path in paths if any((ROOT / path).rglob("test_*.py"))]
    if not paths:
        say("there are no such tests yet")
        return Counts()
    where = ROOT / "build" / f"test-{stack}"
    run("tools/install.sh", stack, where)
    report = REPORTS / f"pytest-{name}.xml"
    report.unlink(missing_ok=True)
    env = {**os.environ, **(variables or {}), "PATH": f"{where}/bin:{os.environ['PATH']}"}
    env.pop("PYTHONPATH", None)
    command = [where / "bin/python", "-m", "pytest", *paths, "-q", f"--junitxml={report}"]
    command += ["-p", "no:cacheprovider", *(("-k", select) if select else ())]
    code = run(*command, check=False, env=env)
    counts = read_junit(report) if report.exists() else Counts()
    # 5: nothing was collected.
    if code not in (0, 5) and not counts.failed:
        raise StepError(f"pytest ended with {code}")
    return counts


def step_python():
    folders = ["tools", "launcher", "runner", "public", "elastic", "torch", "torch_distributed"]
    return pytest("torch", [*folders, "numpy", "../zoo"])


def step_torch_clients():
    return pytest("torch_clients", ["torch_clients"])


def step_notebook():
    return pytest("notebook", ["notebook"])


def step_slurm():
    return pytest("torch", ["slurm"], "slurm")


def step_mpi():
    # The wheels of the two libraries have programs of the same names, so each has its own folder.
    build("release")
    variables = {
        "HVD_TEST_MP": str(ROOT / "build" / "release" / "tests" / "mp"),
        "HVD_TEST_OPENMPI5": str(venv("mpi")),
        "HVD_TEST_MPICH5": str(venv("mpich")),
    }
    return pytest("mpi", ["mpi"], variables=variables)


def step_tf221():
    return pytest("tf221", ["public", "tensorflow", "../zoo"])


def step_tf215():
    return pytest("tf215", ["public", "tensorflow"])


def step_keras3():
    return pytest("keras3", ["public", "keras"])


def step_jax():
    return pytest("jax", ["public", "jax"])


def step_jax06():
    return pytest("jax06", ["jax"])


def step_jax04():
    return pytest("jax04", ["jax"])


def step_mxnet():
    # Other frameworks take part in the mixed job from their own environments, TensorFlow and JAX
    # if they are there already.
    found = [f"torch={venv('torch')}/bin/python"]
    for framework, stack in (("tensorflow", "tf221"), ("jax", "jax")):
        place = ROOT / "build" / f"test-{stack}" / "stack"
        if place.exists():
            found.append(f"{framework}={place.read_text(encoding='utf-8').strip()}/bin/python")
    variables = {"HVD_TEST_FRAMEWORKS": ",".join(found)}
    return pytest("mxnet", ["public", "mxnet", "mixed"], variables=variables)


def step_spark():
    return pytest("spark", ["public", "data", "spark"])


def step_spark35():
    select = "by_rank or raises_alone or devices or compute_worker or keras"
    return pytest("tf215", ["spark"], "spark35", select)


def step_ray():
    return pytest("ray", ["public", "ray"])


STEPS = {
    "lint": ("formatting, Python lint, layers, licence lines", step_lint),
    "docs": ("the site: every page, link and docstring", step_docs),
    "release": ("gcc build, unit tests, real processes on 16 ranks", step_release),
    "clang": ("clang build", step_clang),
    "asan": ("address and undefined-behaviour sanitizers", step_asan),
    "tsan": ("thread sanitizer", step_tsan),
    "fuzz": (f"each fuzz target for {FUZZ_SECONDS} s", step_fuzz),
    "sim": ("simulation and multi-process tests", step_sim),
    "aarch64": ("64-bit ARM: cross build, tests under emulation, wheel", step_aarch64),
    "macos": ("compiles for macOS on ARM, all but the platform files", step_macos),
    "python": ("tools, launcher, horovod.run, PyTorch and NumPy, installed", step_python),
    "torch_clients": ("Accelerate, Lightning, transformers on our backend", step_torch_clients),
    "notebook": ("ranks of a notebook, with a real kernel", step_notebook),
    "slurm": ("a real Slurm of two nodes on this machine", step_slurm),
    "mpi": ("Open MPI and MPICH, of the system and from wheels", step_mpi),
    "tf221": ("current TensorFlow with Keras 3", step_tf221),
    "tf215": ("TensorFlow 2.15 with Keras 2", step_tf215),
    "keras3": ("Keras 3 on PyTorch and on JAX", step_keras3),
    "jax": ("current JAX with Flax and Optax", step_jax),
    "jax06": ("JAX 0.6, selected tests", step_jax06),
    "jax04": ("JAX 0.4, where collectives block, selected tests", step_jax04),
    "mxnet": ("MXNet 1.9.1, and jobs of several frameworks", step_mxnet),
    "spark": ("Spark with two workers: run, elastic, estimators", step_spark),
    "spark35": ("Spark 3.5, with Keras 2 and tf.data, selected tests", step_spark35),
    "ray": ("Ray: static and elastic executors", step_ray),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("steps", nargs="*", help="steps to run (default: all)")
    parser.add_argument("--list", action="store_true", help="name the steps and stop")
    arguments = parser.parse_args()
    for name in arguments.steps:
        if name not in STEPS:
            parser.error(f"no such step: {name} (there are: {', '.join(STEPS)})")
    return arguments


# Steps of C run first. The others install and start Python. BESIDE runs beside the rest of them, in
# this order, because a step may use the environment of an earlier one. BEHIND runs along at a low
# priority: these build, and no test of theirs has a time limit.
FIRST = ("lint", "release", "asan", "tsan", "fuzz", "sim", "aarch64")
BESIDE = ("tf221", "tf215", "keras3", "jax", "jax06", "jax04", "mxnet", "spark", "spark35", "ray")
BEHIND = ("docs", "clang", "macos")
# Alone, after all others: other people's launchers have time limits of their own.
LAST = ("slurm", "mpi")
LOW = ("nice", "-n", "10")


def stacks_of(name):
    """The stacks of tools/requirements that a step installs."""
    special = {
        "aarch64": ["wheel"],
        "python": ["torch"],
        "slurm": ["torch"],
        "mpi": ["mpi", "mpich"],
        "spark35": ["tf215"],
    }
    named = special.get(name, [name])
    return [s for s in named if (ROOT / "tools/requirements" / f"{s}.txt").exists()]


class Run:
    """The chosen steps, what became of them, and the time that they took."""

    def __init__(self, names):
        self.names, self.start = names, time.monotonic()
        self.summary = {}  # name -> (counts, line)
        self.is_first_over = False
        self.waiting = queue.SimpleQueue()  # titles and logs of steps that ended in the background

    def title(self, name):
        number = self.names.index(name) + 1
        seconds = time.monotonic() - self.start
        return f"\n=== [{number}/{len(self.names)}] {name}: {STEPS[name][0]} ({seconds:.0f} s)"

    def step(self, name):
        """Run it; returns the line that closes it."""
        began = time.monotonic()
        try:
            counts, note = STEPS[name][1](), ""
        except (StepError, OSError, ElementTree.ParseError) as error:
            counts, note = Counts(failed=1), f" ({error})"
        word = "FAILED" if counts.failed else "ok"
        seconds = time.monotonic() - began
        self.summary[name] = (counts, f"{name:15}{word:8}{seconds:6.0f} s  {counts}{note}")
        return f"--- {name}: {word}{note}"

    def show(self, name):
        print(self.title(name), flush=True)
        print(self.step(name), flush=True)

    def background(self, names, note, prefix=()):
        """A thread that runs these steps one after the other, and keeps what they print."""

        def work():
            HERE.prefix = prefix
            for name in names:
                title = f"{self.title(name)}, {note}"
                path = REPORTS / f"{name}.log"
                with path.open("w", encoding="utf-8") as HERE.log:
                    closing = self.step(name)
                self.waiting.put((title, path, closing))

        return threading.Thread(target=work, daemon=True)

    def ahead(self, first, others):
        """A thread that builds what the first steps need, and then installs what the others need.

        An error is not reported here: the step that meets it again does that.
        """

        def attempt(function, name):
            with contextlib.suppress(StepError):
                function(name)

        def work():
            HERE.prefix = LOW
            with (REPORTS / "ahead.log").open("w", encoding="utf-8") as HERE.log:
                for preset in (name for name in first if name in PRESETS):
                    attempt(build, preset)
                for stack in (stack for name in others for stack in stacks_of(name)):
                    if self.is_first_over:
                        return
                    attempt(venv, stack)

        return threading.Thread(target=work, daemon=True)

    def show_background(self):
        while not self.waiting.empty():
            title, path, closing = self.waiting.get()
            text = path.read_text(encoding="utf-8", errors="replace")
            print(f"{title}\n{text}{closing}", flush=True)

    def all(self):
        front = [name for name in self.names if name not in (*FIRST, *BESIDE, *BEHIND, *LAST)]
        last = [name for name in self.names if name in LAST]
        beside = [name for name in BESIDE if name in self.names]
        if not front:
            front, beside = beside, []
        behind = [name for name in BEHIND if name in self.names and front]
        first = [name for name in self.names if name not in (*front, *beside, *behind, *last)]
        threads = [
            self.background(beside, "beside the others"),
            self.background(behind, "behind the others", LOW),
        ]
        if first and len(self.names) > 1:
            print("=== later builds and environments are prepared at a low priority", flush=True)
            pairs = itertools.zip_longest(front, beside)
            later = [name for pair in pairs for name in pair if name]
            self.ahead(first, [*later, *last]).start()
        for name in first:
            self.show(name)
        self.is_first_over = True
        if beside or behind:
            print(f"\n=== in the background from here: {', '.join(beside + behind)}", flush=True)
        for thread in threads:
            thread.start()
        for name in front:
            self.show(name)
            self.show_background()
        for thread in threads:
            thread.join()
        self.show_background()
        for name in last:
            self.show(name)


def main():
    arguments = parse_arguments()
    if arguments.list:
        for name, (title, _) in STEPS.items():
            print(f"{name:15}{title}")
        return 0
    REPORTS.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = f"{venv('base')}/bin:{os.environ['PATH']}"
    names = list(dict.fromkeys(arguments.steps)) or list(STEPS)
    steps = Run(names)
    steps.all()
    total = Counts()
    print("\n=== summary")
    for name in names:
        counts, line = steps.summary.get(name) or (Counts(failed=1), f"{name:15}FAILED")
        total.add(counts)
        print(line)
    print(f"{'':15}{'':8}{time.monotonic() - steps.start:6.0f} s in all")
    print(total, flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
