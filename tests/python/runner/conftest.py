# SPDX-License-Identifier: Apache-2.0
"""The launcher for horovod.run(), a clean environment, and a real sshd for other hosts."""

import importlib.util
import os
import stat
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
OUTER = (
    "HOROVOD_",
    "SLURM_P",
    "SLURM_S",
    "PMI_",
    "PMIX_",
    "OMPI_",
    "MASTER_",
    "TORCHELASTIC_",
    "LSB_",
)


def _launcher_fixtures():
    path = HERE.parent / "launcher" / "conftest.py"
    spec = importlib.util.spec_from_file_location("launcher_fixtures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fixtures = _launcher_fixtures()
sshd = fixtures.sshd


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No variable of an outer job, and the launcher that belongs to this package."""
    for name in list(os.environ):
        if name.startswith(OUTER):
            monkeypatch.delenv(name)
    path = fixtures.find_horovodrun()
    if not path:
        pytest.skip("horovodrun is not built")
    monkeypatch.setenv("HOROVODRUN", path)
    # Ranks of a test start where the package may not be installed, only importable.
    package = Path(__import__("horovod").__file__).parent.parent
    monkeypatch.setenv("PYTHONPATH", f"{package}:{os.environ.get('PYTHONPATH', '')}")
    return path


@pytest.fixture
def blind_python(tmp_path):
    """A Python that, on a host named 127.0.0.2, does not see this machine's temporary files."""
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$HOROVOD_HOSTNAME" != 127.0.0.2 ]; then exec {sys.executable} "$@"; fi\n'
        'exec unshare -m sh -c \'mount -t tmpfs t "$HIDDEN" && exec "$@"\' sh '
        f'{sys.executable} "$@"\n',
        encoding="utf-8",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)
