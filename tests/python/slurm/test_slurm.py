# SPDX-License-Identifier: Apache-2.0
"""Ranks started by a real Slurm: srun, sbatch, steps side by side, and ranks that die."""

import os
import re
import shutil
import socket
import stat
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TRAIN = HERE / "train.py"
LINE = r"<(\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\w+)>"
PYTHON = sys.executable
EVEN = ("-N2", "-n4", "--ntasks-per-node=2")


def ranks(text):
    """(rank, size, local rank, local size, cross rank, cross size) of each, and all the hashes."""
    found = [m.groups() for m in re.finditer(LINE, text)]
    return sorted(tuple(map(int, f[:6])) for f in found), {f[6] for f in found}


def key_files(slurm):
    folder = Path(slurm.env["HOME"])
    return [p for p in folder.rglob("*") if p.name.startswith("key-")]


EVEN_PLACES = [(0, 4, 0, 2, 0, 2), (1, 4, 1, 2, 0, 2), (2, 4, 0, 2, 1, 2), (3, 4, 1, 2, 1, 2)]


@pytest.mark.parametrize("way", ["memory", "network"])
def test_srun_on_two_nodes(slurm, way):
    env = {"HOROVOD_SHM_DISABLE": "1"} if way == "network" else {}
    done = slurm("srun", *EVEN, PYTHON, TRAIN, env=env)
    places, hashes = ranks(done.stdout)
    assert places == EVEN_PLACES
    assert len(hashes) == 1
    assert key_files(slurm) == []
    keys = Path(slurm.env["HOME"]) / ".horovod" / "keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700


def test_torch_distributed(slurm):
    """init_process_group("horovod") finds rank, size and the others by srun alone."""
    program = HERE.parent / "torch_distributed" / "program.py"
    done = slurm("srun", *EVEN, PYTHON, "-W", "ignore", program, "again")
    assert done.stdout.count("ended well") == 4, done.stdout


def test_the_key_is_in_no_command_line_and_no_environment(slurm, tmp_path):
    """While ranks wait for one that is late, all that Slurm and we have said is looked through."""
    script = tmp_path / "late.sh"
    script.write_text(
        f'#!/bin/sh\nwhile test $SLURM_PROCID = 3 -a ! -e "{tmp_path}/go"; do sleep 0.05; done\n'
        f'exec {PYTHON} "{TRAIN}"\n'
    )
    script.chmod(0o755)
    job = slurm.begin("srun", *EVEN, script)
    try:
        deadline = time.monotonic() + 60
        while not key_files(slurm):
            assert time.monotonic() < deadline and job.poll() is None
            time.sleep(0.02)
        (path,) = key_files(slurm)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        key = path.read_text().split()[0].encode()
        assert re.fullmatch(rb"[0-9a-f]{64}", key)
        looked = 0
        for pid in slurm.processes():
            for name in ("cmdline", "environ"):
                try:
                    text = Path(f"/proc/{pid}/{name}").read_bytes()
                except OSError:
                    continue
                looked += 1
                assert key not in text
        assert looked >= 8
    finally:
        (tmp_path / "go").touch()
        out, err = job.communicate(timeout=100)
    assert job.returncode == 0, err
    assert ranks(out)[0] == EVEN_PLACES


def test_uneven_nodes(slurm):
    done = slurm("srun", "-N2", "-n3", "--distribution=block", PYTHON, TRAIN)
    places, hashes = ranks(done.stdout)
    assert [p[:2] for p in places] == [(0, 3), (1, 3), (2, 3)] and len(hashes) == 1
    assert {p[3] for p in places} == {1, 2}


def test_one_node_and_one_task(slurm):
    assert ranks(slurm("srun", "-n1", PYTHON, TRAIN).stdout)[0] == [(0, 1, 0, 1, 0, 1)]
    places, _ = ranks(slurm("srun", "-N1", "-n2", PYTHON, TRAIN).stdout)
    assert places == [(0, 2, 0, 2, 0, 1), (1, 2, 1, 2, 0, 1)]


@pytest.mark.parametrize("options", [EVEN, ("-N1", "-n2"), ("-N2", "-n2", "--mpi=pmi2")])
def test_a_second_life(slurm, options):
    """The key of the first is gone, and has to be found again."""
    done = slurm("srun", *options, PYTHON, TRAIN, env={"TRAIN_LIVES": "2"})
    size = int(options[1][2:])
    assert [p[:2] for p in ranks(done.stdout)[0]] == sorted([(r, size) for r in range(size)] * 2)
    assert key_files(slurm) == []


def batch(slurm, folder, text, *options):
    script, out = folder / "job.sh", folder / "out"
    script.write_text("#!/bin/sh\n" + text)
    done = slurm("sbatch", "--wait", f"--output={out}", *options, script, check=False)
    return done, out.read_text() if out.exists() else ""


def test_sbatch(slurm, tmp_path):
    """The script itself is no rank; each step in it is a world of its own."""
    done, out = batch(
        slurm,
        tmp_path,
        f"#SBATCH -N2 -n4 --ntasks-per-node=2\n"
        f"set -e\n{PYTHON} {TRAIN}\nsrun {PYTHON} {TRAIN}\nsrun -n2 -N1 {PYTHON} {TRAIN}\n",
    )
    assert done.returncode == 0, out + done.stderr
    alone = [(0, 1, 0, 1, 0, 1)]
    pair = [(0, 2, 0, 2, 0, 1), (1, 2, 1, 2, 0, 1)]
    assert ranks(out)[0] == sorted(alone + EVEN_PLACES + pair)


def test_two_jobs_at_the_same_time_do_not_mix(slurm, tmp_path):
    """Both jobs, and two steps of one of them, are up at once before any goes on."""
    gate = tmp_path / "gate.py"
    gate.write_text(
        "import os, pathlib, runpy, sys, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "(folder / ('up-' + sys.argv[1] + os.environ['SLURM_PROCID'])).touch()\n"
        "while len(list(folder.glob('up-*'))) < 6: time.sleep(0.02)\n"
        f"runpy.run_path({str(TRAIN)!r}, run_name='__main__')\n"
    )
    steps = "".join(f"srun --exact -N2 -n2 {PYTHON} {gate} {name} &\n" for name in "ab") + "wait\n"
    script = tmp_path / "steps.sh"
    script.write_text("#!/bin/sh\n" + steps)
    out = tmp_path / "two"
    jobs = [
        slurm.begin("sbatch", "--wait", *EVEN, f"--output={out}", script),
        slurm.begin("srun", "-N2", "-n2", PYTHON, gate, "c"),
    ]
    texts = [job.communicate(timeout=100) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], (texts, out.read_text())
    pair = [(0, 2, 0, 1, 0, 2), (1, 2, 0, 1, 1, 2)]
    assert ranks(texts[1][0])[0] == pair
    assert ranks(out.read_text())[0] == sorted(pair * 2)


@pytest.mark.parametrize("way", ["memory", "network"])
def test_a_killed_rank_ends_the_job_and_is_named(slurm, way):
    env = {"TRAIN_DIE": "2", "TRAIN_STEPS": "100000"}
    if way == "network":
        env["HOROVOD_SHM_DISABLE"] = "1"
    done = slurm("srun", *EVEN, PYTHON, TRAIN, env=env, check=False)
    assert done.returncode != 0
    assert "rank 2" in done.stderr and "gradient" in done.stderr, done.stderr
    assert ranks(done.stdout)[0] == []


def test_a_rank_that_never_comes(slurm, tmp_path):
    script = tmp_path / "absent.sh"
    script.write_text(f'#!/bin/sh\ntest $SLURM_PROCID = 1 && exit 0\nexec {PYTHON} "{TRAIN}"\n')
    script.chmod(0o755)
    env = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "2"}
    done = slurm("srun", "-N2", "-n2", script, env=env, check=False)
    assert done.returncode != 0
    assert "1 of 2 ranks have not arrived: 1" in done.stderr, done.stderr


def test_torch(slurm, tmp_path):
    """A user's script as it is, with PyTorch."""
    pytest.importorskip("torch")
    script = tmp_path / "train_torch.py"
    script.write_text(
        "import torch, horovod.torch as hvd\n"
        "hvd.init(); torch.manual_seed(hvd.rank()); torch.set_num_threads(1)\n"
        "model = torch.nn.Linear(8, 1)\n"
        "optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),\n"
        "                                     named_parameters=model.named_parameters())\n"
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
        "for _ in range(3):\n"
        "    optimizer.zero_grad(); model(torch.randn(16, 8)).square().mean().backward()\n"
        "    optimizer.step()\n"
        "every = hvd.allgather(model.weight.data.reshape(1, -1))\n"
        "assert (every == every[0]).all() and every.shape == (hvd.size(), 8)\n"
        "print('done %d of %d' % (hvd.rank(), hvd.size()), flush=True)\n"
    )
    done = slurm("srun", "-N2", "-n2", PYTHON, script, env={"OMP_NUM_THREADS": "1"})
    assert sorted(done.stdout.split("\n")) == ["", "done 0 of 2", "done 1 of 2"]


@pytest.fixture
def ssh(sshd, tmp_path):
    """A PATH whose ssh reaches the nodes, whose names no resolver knows, at a private sshd."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(
        f"#!/bin/sh\nexec /usr/bin/ssh -o HostName={sshd.host} -p {sshd.port} -i {sshd.identity} "
        f'-o StrictHostKeyChecking=no -o UserKnownHostsFile={tmp_path}/known "$@"\n'
    )
    (folder / "ssh").chmod(0o755)
    return folder


@pytest.mark.parametrize("how", ["salloc", "sbatch"])
def test_horovodrun_finds_the_hosts_of_an_allocation(slurm, horovodrun, ssh, tmp_path, how):
    line = f"PATH={ssh}:$PATH {horovodrun} {PYTHON} {TRAIN}\n"
    if how == "sbatch":
        done, out = batch(slurm, tmp_path, line, *EVEN)
    else:
        done = slurm("salloc", *EVEN, "sh", "-c", line, check=False)
        out = done.stdout
    assert done.returncode == 0, out + done.stderr
    assert ranks(out)[0] == EVEN_PLACES
    fewer = slurm("salloc", *EVEN, "sh", "-c", line.replace("horovodrun ", "horovodrun -np 3 "))
    assert [p[:4] for p in ranks(fewer.stdout)[0]] == [(0, 3, 0, 2), (1, 3, 1, 2), (2, 3, 0, 1)]


# ---- with MPI, and always the same numbers ----

# The two nodes are one machine, and Open MPI takes each for a machine of its own: its files of
# shared memory would have the same names.
OPEN_MPI = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo"}


def library(pattern):
    found = sorted(Path("/usr/lib").glob(f"*/{pattern}"))
    if not found:
        pytest.skip(f"{pattern} is not installed")
    return found[0]


@pytest.fixture
def weights(slurm, horovodrun):
    """What four ranks of plain horovodrun end with."""
    done = slurm(horovodrun, "-np", 4, PYTHON, TRAIN)
    (found,) = ranks(done.stdout)[1]
    return found


WAYS = [
    ("none", {}, ""),
    ("pmix", OPEN_MPI, "libmpi.so.40"),
    ("pmi2", {}, "libmpich.so.12"),
]


@pytest.mark.parametrize("kind,env,needed", WAYS, ids=[way[0] for way in WAYS])
def test_srun_gives_the_same_numbers(slurm, weights, kind, env, needed):
    if needed:
        env = {**env, "HOROVOD_CONTROLLER": "mpi", "HOROVOD_MPI_LIBRARY": str(library(needed))}
    done = slurm("srun", f"--mpi={kind}", *EVEN, PYTHON, TRAIN, env=env)
    assert ranks(done.stdout) == (EVEN_PLACES, {weights})


@pytest.mark.parametrize("kind,env,needed", WAYS[1:], ids=[way[0] for way in WAYS[1:]])
def test_srun_with_the_library_that_belongs_to_it(slurm, kind, env, needed):
    """Nothing is named: by what srun offers, the library that understands it is taken."""
    library(needed)
    env = {**env, "HOROVOD_CPU_OPERATIONS": "mpi", "HOROVOD_LOG_LEVEL": "debug"}
    done = slurm("srun", f"--mpi={kind}", *EVEN, PYTHON, TRAIN, env=env)
    places, hashes = ranks(done.stdout)
    assert places == EVEN_PLACES and len(hashes) == 1
    assert (done.stdout + done.stderr).count(needed) == 4


@pytest.mark.parametrize("kind", ["pmix", "none"])
def test_worlds_of_one_are_noticed(slurm, kind):
    """MPICH does not understand either, and would make each rank a world of its own."""
    env = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_MPI_LIBRARY": str(library("libmpich.so.12"))}
    done = slurm("srun", f"--mpi={kind}", *EVEN, PYTHON, TRAIN, env=env, check=False)
    assert done.returncode != 0 and ranks(done.stdout)[0] == []
    assert "Slurm started 4 processes" in done.stderr, done.stderr
    assert "MPICH" in done.stderr and "libmpich.so.12" in done.stderr
    assert "each of them is alone" in done.stderr and "--mpi=pmi2" in done.stderr


def test_mpirun_in_an_allocation(slurm, weights):
    """Open MPI's own launcher finds the allocation, and starts its ranks by srun."""
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("mpirun.openmpi is not installed")
    line = f"mpirun.openmpi --allow-run-as-root {PYTHON} {TRAIN}"
    done = slurm("salloc", *EVEN, "sh", "-c", line, env=OPEN_MPI)
    places, hashes = ranks(done.stdout)
    assert [p[:2] for p in places] == [(r, 4) for r in range(4)]
    assert hashes == {weights}


# ---- the guide ----


def test_a_key_where_homes_are_not_shared(slurm, tmp_path):
    """Each rank has a home of its own; key and address are told."""
    key, script = tmp_path / "job.key", tmp_path / "rank.sh"
    key.touch(mode=0o600)
    key.write_text(os.urandom(32).hex() + "\n")
    script.write_text(
        f"#!/bin/sh\nexport HOME={tmp_path}/home-$SLURM_PROCID XDG_RUNTIME_DIR=\n"
        f'mkdir -m 700 $HOME\nexec {PYTHON} "{TRAIN}"\n'
    )
    script.chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {"HOROVOD_KEY_FILE": str(key), "HOROVOD_RENDEZVOUS": f"127.0.0.1:{port}"}
    done = slurm("srun", *EVEN, script, env=env)
    assert ranks(done.stdout)[0] == EVEN_PLACES
    assert not list(tmp_path.glob("home-*/.horovod"))


def guide_scripts():
    text = (HERE.parents[2] / "docs" / "slurm.md").read_text()
    found = re.findall(r"<!-- run: (\S+) -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in found] == ["job.sh", "now.sh", "run.sh"]
    return found


@pytest.mark.parametrize("name,text", guide_scripts(), ids=lambda value: value.split("\n")[0][:12])
def test_scripts_of_the_guide(slurm, horovodrun, ssh, tmp_path, name, text):
    (tmp_path / "train.py").write_text(TRAIN.read_text())
    script, out = tmp_path / name, tmp_path / "out"
    script.write_text(text)
    folders = f"{Path(PYTHON).parent}:{Path(horovodrun).parent}"
    env = {"PATH": f"{ssh}:{folders}:{slurm.env['PATH']}"}
    if "#SBATCH" in text:
        slurm("sbatch", "--wait", f"--output={out}", script, env=env, cwd=tmp_path)
        told = out.read_text()
    else:
        told = slurm("sh", script, env=env, cwd=tmp_path).stdout
    places, hashes = ranks(told)
    assert places == EVEN_PLACES and len(hashes) == 1
