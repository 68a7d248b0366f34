# SPDX-License-Identifier: Apache-2.0
"""The mpirun line, exactly, for each MPI library: a stand-in mpirun prints what it is given."""

import shutil

import pytest

VERSIONS = {
    "open": "mpirun (Open MPI) 4.1.4\\n\\nReport bugs to http://www.open-mpi.org/community/help/",
    "open5": "mpirun (Open MPI) 5.0.3",
    "spectrum": "mpirun (IBM Spectrum MPI) 10.3.1",
    "mpich": "HYDRA build details:\\n    Version: 4.0.2",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2019",
    "other": "something else 1.0",
}


@pytest.fixture
def mpirun(run, tmp_path):
    """Puts a mpirun of the given kind first into the PATH."""

    def make(kind):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "mpirun").write_text(
            "#!/bin/sh\n"
            f'if test "$1" = --version; then printf "{VERSIONS[kind]}"; exit 0; fi\n'
            'echo "mpirun $*"; exit 3\n'
        )
        (folder / "mpirun").chmod(0o755)
        run.env = {"PATH": f"{folder}:/usr/bin:/bin", "ZED": "1", "OLDPWD": "/x", "B A": "no"}
        return run

    return make


FLAGS = ["--mpi", "-np", 4, "-H", "a:2,b:2"]
COMMAND = ["python", "x y.py"]


@pytest.mark.parametrize(
    "kind,want",
    [
        (
            "open",
            "mpirun --allow-run-as-root --tag-output -np 4 -H a:2,b:2 -bind-to none -map-by slot "
            "-mca pml ob1 -mca btl ^openib -x PATH -x ZED python x y.py",
        ),
        (
            "open5",
            "mpirun --allow-run-as-root --tag-output -np 4 -H a:2,b:2 --bind-to none --map-by slot "
            "-x PATH -x ZED python x y.py",
        ),
        (
            "spectrum",
            "mpirun --allow-run-as-root --tag-output -np 4 -H a:2,b:2 -bind-to socket -map-by "
            "socket -rank-by core -x PATH -x ZED python x y.py",
        ),
        ("mpich", "mpirun -l -np 4 -ppn 2 -hosts a,b -bind-to none -map-by slot python x y.py"),
        ("intel", "mpirun -l -np 4 -ppn 2 -hosts a,b python x y.py"),
    ],
)
def test_line(mpirun, kind, want):
    result = mpirun(kind)(*FLAGS, *COMMAND)
    assert result.returncode == 3  # mpirun's own code comes through
    assert result.stdout == want + "\n"


def test_all_pieces_in_order_with_their_blanks(mpirun):
    """--verbose shows the line as it is handed to the shell."""
    result = mpirun("open")(
        *FLAGS, "--verbose", "-p", 22, "-i", "key", "--network-interfaces", "e0,e1",
        "--output-filename", "out", "--prefix-output-with-timestamp", "--mpi-args=-q 1",
        "--binding-args=--bind-to core", "--cache-capacity", 5, *COMMAND,
    )  # fmt: skip
    assert result.stdout.splitlines()[0] == (
        "mpirun --allow-run-as-root --tag-output --timestamp-output -np 4 -H a:2,b:2 "
        "--bind-to core -mca pml ob1 -mca btl ^openib "
        '-mca plm_rsh_args "-p 22 -i key" -mca btl_tcp_if_include e0,e1 '
        "-x NCCL_SOCKET_IFNAME=e0,e1 --output-filename out "
        "-x HOROVOD_CACHE_CAPACITY -x PATH -x ZED -q 1 python 'x y.py'"
    )


def test_empty_pieces_leave_their_blanks(mpirun):
    line = mpirun("open")(*FLAGS, "--verbose", *COMMAND).stdout.splitlines()[0]
    assert "-mca btl ^openib     -x PATH -x ZED  python 'x y.py'" in line


def test_large_cluster(mpirun):
    hosts = ",".join(f"n{i}:1" for i in range(64))
    result = mpirun("open")("--mpi", "-np", 64, "-H", hosts, "true")
    assert "-mca plm_rsh_no_tree_spawn true -mca plm_rsh_num_concurrent 64" in result.stdout


def test_uneven_slots_with_hydra(mpirun):
    result = mpirun("mpich")("--mpi", "-np", 3, "-H", "a:2,b:1", "true")
    assert result.returncode == 1 and "a has 2 and b has 1" in result.stderr


def test_unknown_and_missing(mpirun, run, tmp_path):
    result = mpirun("other")(*FLAGS, "true")
    assert result.returncode == 1 and "no usable mpirun" in result.stderr
    shutil.rmtree(tmp_path / "bin")
    (tmp_path / "bin").mkdir()
    result = run(*FLAGS, "true", env={"PATH": str(tmp_path / "bin")})
    assert result.returncode == 1 and "no usable mpirun" in result.stderr


def test_config_file_chooses_the_controller(mpirun, tmp_path):
    (tmp_path / "c.yaml").write_text("controller: mpi\n")
    run = mpirun("mpich")
    result = run("-np", 1, "--config-file", "c.yaml", "true")
    assert result.stdout.startswith("mpirun -l -np 1")
    assert run("-np", 1, "--gloo", "--config-file", "c.yaml", "true").returncode == 0


def test_jsrun_outside_lsf(run):
    result = run("-np", 1, "--jsrun", "true")
    assert result.returncode == 1 and "did not detect an LSF job" in result.stderr


@pytest.mark.parametrize("program", ["mpirun.openmpi", "mpirun.mpich"])
def test_real_mpirun(run, tmp_path, program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mpirun").write_text(f'#!/bin/sh\nexec {shutil.which(program)} "$@"\n')
    (folder / "mpirun").chmod(0o755)
    result = run(
        "--mpi", "-np", 2, "-H", "localhost:2", "sh", "-c", "echo hello; exit 0",
        env={"PATH": f"{folder}:{run.env['PATH']}"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("hello") == 2
