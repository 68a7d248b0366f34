# SPDX-License-Identifier: Apache-2.0
"""A rank of test_hierarchy.py: one allreduce and one allgather; prints what it sent over TCP."""

import horovod.numpy as hvd
import numpy as np

hvd.init()
rank, size = hvd.rank(), hvd.size()


def sent():
    links = hvd.metrics()["links"]
    return sum(link["sent_bytes"] for link in links if link["transport"] == "tcp")


before = sent()
total = hvd.allreduce(np.full(1001, rank + 1, np.float32), op=hvd.Sum)
assert (total == size * (size + 1) / 2).all()
reduced = sent()
rows = hvd.allgather(np.full((rank + 1, 7), rank, np.int64))
assert rows[:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
print(f"rank {rank} allreduce {reduced - before} allgather {sent() - reduced}.")
hvd.shutdown()
