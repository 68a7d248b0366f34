# SPDX-License-Identifier: Apache-2.0
"""A package whose framework is not installed says so, with the command that installs it."""

import subprocess
import sys

import pytest

# Hides a module, whether it is installed or not.
HIDE = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())
try:
    __import__(sys.argv[2])
except ModuleNotFoundError as error:
    print(error.name, error)
"""


@pytest.mark.parametrize(
    "package, module, title, pip",
    [
        ("horovod.torch", "torch", "PyTorch", "torch"),
        ("horovod.torch.elastic", "torch", "PyTorch", "torch"),
        ("horovod.tensorflow", "tensorflow", "TensorFlow", "tensorflow"),
        ("horovod.tensorflow.keras", "tensorflow", "TensorFlow", "tensorflow"),
        ("horovod.jax", "jax", "JAX", "jax"),
        ("horovod.keras", "keras", "Keras", "keras tensorflow"),
        ("horovod.numpy", "numpy", "NumPy", "numpy"),
        ("horovod.ray", "ray", "Ray", "ray"),
        (
            "horovod.mxnet",
            "mxnet",
            "MXNet, which exists for Python up to 3.11",
            "mxnet==1.9.1 numpy==1.23.5",
        ),
    ],
)
def test_missing_framework_comes_with_the_pip_line(package, module, title, pip):
    program = [sys.executable, "-c", HIDE, module, package]
    result = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{module} horovod.{module} needs {title} (No module named ")
    assert result.stdout.rstrip().endswith(f"{sys.executable} -m pip install {pip}")


def test_spark_is_missing_only_when_it_is_needed():
    """Ranks import horovod.spark, too; they need no Spark."""
    call = "import horovod.spark as spark; spark.run(print, num_proc=1)"
    hidden = "import sys; sys.modules['pyspark'] = None; " + call
    result = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    last = result.stderr.splitlines()[-1]
    assert "ModuleNotFoundError: horovod.spark needs Spark (" in last
    assert last.endswith(f"{sys.executable} -m pip install pyspark")
