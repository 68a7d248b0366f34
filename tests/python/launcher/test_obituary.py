# SPDX-License-Identifier: Apache-2.0
"""How the first rank failed is in the error of every other rank: signal, exit code and host."""

import re
import sys

import pytest

pytest.importorskip("horovod")

# All ranks reduce, in a plan if they share memory; rank 1 ends in its own way. The others print
# what they raise.
RANK = """
import os, signal, sys
import numpy as np
from horovod.common.arrays import Arrays
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import native
arrays, basics = Arrays(), HorovodBasics(__file__, "any")
basics.init()
try:
    for step in range(1000000):
        if step == 60:
            is_tcp = "HOROVOD_SHM_DISABLE" in os.environ or basics.local_size() < basics.size()
            assert is_tcp or native.stats()["plan_starts"] > 0
        if basics.rank() == 1 and step == 60:
            {end}
        arrays.same_shape(native.ALLREDUCE, [np.ones(4)], "grad")
except (HorovodInternalError, native.StatusError) as error:
    print("error:", error, flush=True)
try:
    arrays.same_shape(native.ALLREDUCE, [np.ones(4)], "grad")
except (HorovodInternalError, native.StatusError) as error:
    print("refused:", error, flush=True)
    sys.exit(1)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def survivors(result, which="error"):
    """What each surviving rank printed, by rank."""
    found = re.findall(rf"^\[(\d+)\]<stdout>:{which}: (.*)$", result.stdout, re.MULTILINE)
    return {int(rank): text for rank, text in found}


@pytest.mark.parametrize("env", [{}, {"HOROVOD_SHM_DISABLE": "1"}], ids=["shm", "tcp"])
@pytest.mark.parametrize(
    ("end", "how", "code"),
    [
        (KILL, r"was killed by signal 9 \(SIGKILL\)", 137),
        ("os._exit(7)", "exited with code 7", 7),
    ],
    ids=["killed", "exited"],
)
def test_every_survivor_knows(run, tmp_path, env, end, how, code):
    script = tmp_path / "rank.py"
    script.write_text(RANK.format(end=end))
    result = run("-np", 3, sys.executable, script, env=env, timeout=60)
    for which in ("error", "refused"):  # of the op that was under way, and of the next one
        texts = survivors(result, which)
        assert sorted(texts) == [0, 2], result.stdout + result.stderr
        for text in texts.values():
            wanted = rf"rank 1 .*connection.* Rank 1 {how} on host localhost\.$"
            assert re.search(wanted, text), text
    assert result.returncode == code
    assert re.search(rf"horovodrun: rank 1 on localhost {how}", result.stderr)


def test_remote_host(run, sshd, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK.format(end=KILL))
    hosts = ["-H", f"localhost:1,{sshd.host}:1", *sshd.options]
    result = run("-np", 2, *hosts, sys.executable, script, env=sshd.env(), timeout=60)
    how = rf"Rank 1 was killed by signal 9 \(SIGKILL\) on host {re.escape(sshd.host)}\."
    assert re.search(how, survivors(result)[0]), result.stdout + result.stderr
