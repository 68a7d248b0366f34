# SPDX-License-Identifier: Apache-2.0
"""One real Spark for all tests: two workers with two cores and two (pretended) GPUs each."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

MASTER = "local-cluster[2,2,1024]"


def spark_conf(folder):
    """Settings of the tests' Spark; the workers find their "GPUs" by a script."""
    script = folder / "gpus.sh"
    script.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["0", "1"]}\'\n')
    script.chmod(0o755)
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.worker.resource.gpu.amount": "2",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "2",
        "spark.task.resource.gpu.amount": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    for name in [name for name in os.environ if name.startswith(("HOROVOD_", "SPARK_"))]:
        del os.environ[name]
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["OMP_NUM_THREADS"] = "1"
    pyspark_sql = pytest.importorskip("pyspark.sql")
    builder = pyspark_sql.SparkSession.builder.master(MASTER).appName("horovod-tests")
    for name, value in spark_conf(tmp_path_factory.mktemp("spark")).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    work = Path(pyspark_sql.__file__).parents[1] / "work" / session.sparkContext.applicationId
    session.sparkContext.range(0, numSlices=4).count()  # both workers are there
    yield session
    session.stop()
    shutil.rmtree(work, ignore_errors=True)


def _lives(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.fixture
def pids(tmp_path):
    """A folder in which ranks leave their process numbers; all must be gone in the end."""
    folder = tmp_path / "pids"
    folder.mkdir()
    yield folder
    deadline = time.monotonic() + 60
    left = [int(path.name) for path in folder.iterdir()]
    while any(map(_lives, left)):
        assert time.monotonic() < deadline, f"ranks were left behind: {list(filter(_lives, left))}"
        time.sleep(0.05)


@pytest.fixture
def wait_for():
    """wait_for(function): its first true value, within a minute."""

    def wait(function):
        deadline = time.monotonic() + 60
        while not (value := function()):
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.05)
        return value

    return wait
