# SPDX-License-Identifier: Apache-2.0
"""A C program linked to its MPI library and to ours: both are used side by side.

Such a program may hold the library's predefined objects itself (copy relocations), so they must not
be taken from the library's own file.
"""

import shutil
import subprocess
from pathlib import Path

import horovod
import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = r"""
#include <mpi.h>
#include <horovod/hvd.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int provided, rank;
    float ours, given, theirs = 0;
    int64_t count = 1;
    hvd_op_t op;
    hvd_handle_t handle;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ours = given = (float)(rank + 1);
    hvd_op_init(&op, HVD_ALLREDUCE);
    op.name = "linked";
    op.input = (hvd_tensor_t){&ours, &count, 1, HVD_FLOAT32, HVD_DEVICE_CPU};
    op.output = op.input;
    if (hvd_init(NULL) != HVD_OK || hvd_submit(&op, &handle) != HVD_OK ||
        hvd_wait(handle, 60000) != HVD_OK) {
        printf("failed: %s\n", hvd_last_error());
        return 1;
    }
    MPI_Allreduce(&given, &theirs, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    printf("sums %g %g, MPI %d\n", ours, theirs, hvd_feature("mpi_enabled"));
    hvd_release(handle);
    hvd_shutdown();
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.parametrize("shm", [True, False], ids=["shm", "mpi"])
def test_linked_program(mpi, tmp_path, shm):
    compiler = {"openmpi4": "mpicc.openmpi", "mpich4": "mpicc.mpich"}.get(mpi.name)
    if compiler is None or shutil.which(compiler) is None:
        pytest.skip(f"no compiler for {mpi.name}")
    look = [compiler, "-E", "-include", "mpi.h", "-x", "c", "/dev/null"]
    if subprocess.run(look, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"no mpi.h of {mpi.name}")
    library = next(Path(horovod.__file__).parent.glob("**/libhorovod.so"))
    source, program = tmp_path / "linked.c", tmp_path / "linked"
    source.write_text(SOURCE, encoding="utf-8")
    subprocess.run(
        [compiler, "-O1", f"-I{ROOT / 'include'}", source, "-o", program, library,
         f"-Wl,-rpath,{library.parent}"],
        check=True,
    )  # fmt: skip
    env = [] if shm else ["env", "HOROVOD_SHM_DISABLE=1"]
    result = subprocess.run(
        [mpi.mpirun, *mpi.many, "-np", "3", *env, program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("sums 6 6, MPI 1") == 3, result.stdout
