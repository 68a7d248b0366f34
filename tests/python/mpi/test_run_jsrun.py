# SPDX-License-Identifier: Apache-2.0
"""`horovodrun --jsrun`, as far as can be shown without LSF: the cluster's programs are stand-ins.

The stand-in jsrun reads the rank file and starts the ranks with the variables that the real one
gives them, so the training in it is real.
"""

import re
import sys
from pathlib import Path

import pytest

TRAIN = Path(__file__).resolve().parent.parent / "slurm" / "train.py"
ALLOCATION = """---
allocation_id:                  77
primary_job_id:                 12
isolated_cores:                 1
num_nodes:                      2
compute_nodes:
 - b02
 - a01
transactions:
 - history
"""
ATTRIBUTES = """---
TOTAL_RECORDS: 1
Record_1:
  node_name:                    a01
  discovered_cores:             10
  discovered_gpus:              2
  discovered_sockets:           2
...
"""
JSRUN = """#!{python}
import os, re, subprocess, sys
print("jsrun", *sys.argv[1:], flush=True)
if sys.argv[1] != "--erf_input":
    sys.exit(5)
text = open(sys.argv[2]).read()
print(text, flush=True)
line = r"rank: (\\d+): {{ hostname: (\\w+); cpu: {{(\\d+-\\d+)}} ; gpu: \\* ; mem: \\* }}"
ranks = re.findall(line, text)
hosts = [host for _, host, _ in ranks]
command = sys.argv[3:]
while command and command[0].startswith("--"):
    command = command[2:]
children = []
for rank, host, _ in ranks:
    local = hosts[: int(rank)].count(host)
    env = dict(os.environ, OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_SIZE=str(len(ranks)),
               OMPI_COMM_WORLD_LOCAL_RANK=str(local), PMIX_NAMESPACE="jsm-%d" % os.getpid(),
               OMPI_COMM_WORLD_LOCAL_SIZE=str(hosts.count(host)), HOROVOD_CONTROLLER="gloo")
    children.append(subprocess.Popen(command, env=env))
sys.exit(max(child.wait() for child in children))
"""


@pytest.fixture
def cluster(run, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()

    def program(name, text):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    (tmp_path / "allocation").write_text(ALLOCATION)
    (tmp_path / "attributes").write_text(ATTRIBUTES)
    program(
        "csm_allocation_query",
        f'#!/bin/sh\ntest "$*" = "-a 77" && exec cat {tmp_path}/allocation\n',
    )
    program(
        "csm_node_attributes_query",
        f'#!/bin/sh\ntest "$*" = "-n a01" && exec cat {tmp_path}/attributes\n',
    )
    program(
        "ssh",
        '#!/bin/sh\necho "Architecture: ppc64le"\necho "Thread(s) per core:    4"\necho "$*" >&2\n',
    )
    program("jsrun", JSRUN.format(python=sys.executable))
    run.env["PATH"] = f"{folder}:{run.env['PATH']}"
    run.env.update(LSB_JOBID="1", LSB_MCPU_HOSTS="batch 1 a01 2 b02 2", CSM_ALLOCATION_ID="77")
    run.env["TMPDIR"] = str(tmp_path)
    return run


def rank_files(folder):
    return list(Path(folder).glob("horovod-ranks-*"))


def test_all_hosts_of_the_allocation(cluster, tmp_path):
    """10 cores, 2 sockets with a core of the system each, 4 threads, 2 GPUs: 16 for each rank."""
    result = cluster("--jsrun", sys.executable, TRAIN)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (
        "overlapping_rs: allow\ncpu_index_using: logical\n\n"
        "rank: 0: { hostname: a01; cpu: {0-15} ; gpu: * ; mem: * }\n"
        "rank: 1: { hostname: a01; cpu: {16-31} ; gpu: * ; mem: * }\n\n"
        "rank: 2: { hostname: b02; cpu: {0-15} ; gpu: * ; mem: * }\n"
        "rank: 3: { hostname: b02; cpu: {16-31} ; gpu: * ; mem: * }\n"
    ) in result.stdout
    found = sorted(re.findall(r"<(\d) 4 (\d) 2 (\d) 2 (\w+)>", result.stdout))
    assert [f[:3] for f in found] == [
        ("0", "0", "0"),
        ("1", "1", "0"),
        ("2", "0", "1"),
        ("3", "1", "1"),
    ]
    assert len({f[3] for f in found}) == 1
    assert rank_files(tmp_path) == []


def test_fewer_ranks_and_given_hosts(cluster):
    result = cluster("--jsrun", "-np", 3, "-H", "x:2,y:2", sys.executable, "-c", "pass")
    assert result.returncode == 0, result.stderr
    assert re.findall(r"hostname: (\w+); cpu: {(\S+)}", result.stdout) == [
        ("x", "0-15"),
        ("x", "16-31"),
        ("y", "0-15"),
    ]


def test_exit_code_and_pieces_of_the_line(cluster, tmp_path):
    result = cluster(
        *("--jsrun", "-np", 1, "--tcp", "--mpi-args=-async", "--output-filename", "out"),
        *(sys.executable, "-c", "raise SystemExit(7)"),
    )
    assert result.returncode == 7
    line = result.stdout.splitlines()[0]
    assert " --stdio_stderr out --stdio_stdout out --smpiargs -tcp -async " in line
    assert rank_files(tmp_path) == []


def test_binding_args_replace_the_rank_file(cluster, tmp_path):
    result = cluster("--jsrun", "-np", 1, "--binding-args=--nrs 2 -a 1", "true")
    assert result.returncode == 5  # the stand-in's own
    assert result.stdout == "jsrun --nrs 2 -a 1 true\n"


def test_more_slots_than_gpus(cluster):
    result = cluster("--jsrun", "-H", "x:3", "true")
    assert result.returncode == 1
    assert "slot count for host 'x:3' is greater than number of GPUs per host '2'" in result.stderr


def test_without_the_service(cluster):
    del cluster.env["CSM_ALLOCATION_ID"]
    result = cluster("--jsrun", "true")
    assert result.returncode == 1 and "--binding-args" in result.stderr


@pytest.mark.parametrize(
    "name,text,want",
    [
        ("allocation", "nothing: 1\n", "names no hosts"),
        ("allocation", ALLOCATION.replace("a01", "$(reboot)"), 'calls a host "$(reboot)"'),
        ("attributes", "Record_1:\n discovered_cores: x\n", '"discovered_cores"'),
        ("attributes", ATTRIBUTES.replace("10", "2"), "do not suffice"),
    ],
)
def test_answers_that_can_not_be_used(cluster, tmp_path, name, text, want):
    (tmp_path / name).write_text(text)
    result = cluster("--jsrun", "true")
    assert result.returncode == 1 and want in result.stderr
    assert "jsrun" not in result.stdout


def test_an_allocation_that_is_no_number(cluster):
    cluster.env["CSM_ALLOCATION_ID"] = "77; reboot"
    result = cluster("--jsrun", "true")
    assert result.returncode == 1 and "no number" in result.stderr
