# SPDX-License-Identifier: Apache-2.0
"""Every example is run by a test of a step of CI."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests" / "python"


def words(path):
    """The parts of all strings in the code of a file, comments and docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            found.update(node.value.split("/"))
    return found


def examples():
    """Files that are run. C examples become tests of CTest by a pattern in CMakeLists.txt."""
    for path in sorted((ROOT / "examples").glob("*/*")):
        if path.suffix in (".py", ".ipynb", ".sbatch"):
            yield path.relative_to(ROOT / "examples")


@pytest.fixture(scope="module")
def tests():
    """{test file: its words}, of the folders that tools/test.py runs."""
    steps = words(ROOT / "tools" / "test.py")
    files = [path for path in TESTS.glob("*/test_*.py") if path.parent.name in steps]
    return {path: words(path) for path in files if path.resolve() != Path(__file__).resolve()}


@pytest.mark.parametrize("example", list(examples()), ids=str)
def test_example_is_run(tests, example):
    assert any(set(example.parts) <= found for found in tests.values()), (
        f"no test of tests/python names examples/{example}: run it for seconds, see "
        "tests/python/shared/example_jobs.py"
    )


def test_c_examples_are_run():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert "examples/c/*.c" in text and "add_test(NAME mp.example_${name}" in text
