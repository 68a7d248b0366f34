# SPDX-License-Identifier: Apache-2.0
"""A least-squares fit of data that lies on several ranks, with NumPy alone.

horovodrun -np 2 python average.py

Each rank has its own rows. The sums over all rows that the fit needs are made by allreduce; no rank
ever sees another's data.
"""

import horovod.numpy as hvd
import numpy as np

hvd.init()
rank, size = hvd.rank(), hvd.size()

# 1000 rows on the first rank, 1500 on the second, ...
random = np.random.RandomState(100 + rank)
rows = 1000 + 500 * rank
x = np.column_stack([random.randn(rows, 3), np.ones(rows)])
truth = np.array([2.0, -1.0, 0.5, 3.0])
y = x @ truth + 0.1 * random.randn(rows)

# Both at once: the second travels while the first is waited for.
handles = [
    hvd.allreduce_async(x.T @ x, "products", hvd.Sum),
    hvd.allreduce_async(x.T @ y, "right side", hvd.Sum),
]
products, right_side = (hvd.synchronize(handle) for handle in handles)
fit = np.linalg.solve(products, right_side)

counts = hvd.allgather(np.array([rows]))
error = hvd.allreduce(((x @ fit - y) ** 2).sum(), "error", hvd.Sum) / counts.sum()
everyone = hvd.allgather_object(fit.tobytes())
assert all(theirs == fit.tobytes() for theirs in everyone)
if rank == 0:
    print(f"{counts.sum()} rows on {size} ranks {counts.tolist()}")
    print(f"fit {np.round(fit, 3)}, root mean square error {np.sqrt(error):.3f}")
assert np.abs(fit - truth).max() < 0.05
