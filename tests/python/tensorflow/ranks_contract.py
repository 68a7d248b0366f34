# SPDX-License-Identifier: Apache-2.0
"""What scripts rely on, function by function: results, classes and words of errors, on all ranks.

Everything runs eager and in tf.function; after each error the next collective must work.
"""

import os

os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"

import horovod.tensorflow as hvd  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from horovod.common.process_sets import _temp_process_set_object  # noqa: E402

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = range(SIZE)
INTEGERS = [tf.uint8, tf.int8, tf.int32, tf.int64]
FLOATS = [tf.float16, tf.float32, tf.float64]
EVEN = hvd.add_process_set(list(range(0, SIZE, 2)))
ODD = hvd.add_process_set(list(range(1, SIZE, 2)))
MINE = EVEN if RANK % 2 == 0 else ODD
SHAPES = [(17,), (5, 3), (2, 3, 4)]

ways = pytest.mark.parametrize("way", ["eager", "function"])


def run(way, function, *arguments):
    return (function if way == "eager" else tf.function(function))(*arguments)


def works():
    """The next collective, on all ranks."""
    assert hvd.allreduce(tf.constant([1]), op=hvd.Sum).numpy() == [SIZE]


def fails(way, error, words, function):
    with pytest.raises(error, match=words):
        run(way, function)
    works()


def made(shape, dtype, rank=RANK, seed=1234):
    return tf.cast(np.random.RandomState(seed + rank).randint(0, 40 // SIZE, shape), dtype)


def close(a, b, dtype=tf.float64):
    tolerance = {tf.float16: 1e-2, tf.bfloat16: 5e-2}.get(dtype, 1e-5)
    a, b = np.asarray(tf.cast(a, tf.float64)), np.asarray(tf.cast(b, tf.float64))
    return a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance)


# ---- allreduce ----


@ways
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=lambda d: d.name)
def test_allreduce(way, dtype):
    for shape in SHAPES:
        total = sum(made(shape, tf.float64, r) for r in RANKS)
        x = made(shape, dtype)
        assert close(run(way, lambda t: hvd.allreduce(t, op=hvd.Sum), x), total, dtype)
        mean = run(way, lambda t: hvd.allreduce(t, op=hvd.Average), x)
        assert mean.dtype == dtype
        # Integers are cut towards zero.
        assert close(mean, np.trunc(total / SIZE) if dtype in INTEGERS else total / SIZE, dtype)


@ways
@pytest.mark.parametrize("dtype", FLOATS + [tf.int32], ids=lambda d: d.name)
@pytest.mark.parametrize("where", ["prescale_factor", "postscale_factor"])
def test_allreduce_scaled(way, dtype, where):
    factor = 0.37
    x = made((17, 3), dtype)
    found = run(way, lambda t: hvd.allreduce(t, op=hvd.Sum, **{where: factor}), x)
    rounded = float(np.float32(factor))
    parts = [np.asarray(made((17, 3), tf.float64, r)) for r in RANKS]
    if where == "prescale_factor":
        parts = [p * rounded for p in parts]
        parts = [np.trunc(p) for p in parts] if dtype == tf.int32 else parts
        expected = sum(parts)
    else:
        expected = sum(parts) * rounded
        expected = np.trunc(expected) if dtype == tf.int32 else expected
    assert close(found, expected, dtype)


@ways
def test_allreduce_of_other_operations_is_scaled_too(way):
    x = tf.constant([1.0 + RANK, 5.0 - RANK])
    for op, combine in ((hvd.Min, np.min), (hvd.Max, np.max), (hvd.Product, np.prod)):
        found = run(way, lambda t, o=op: hvd.allreduce(t, op=o, postscale_factor=2.0), x)
        assert close(found, 2 * combine([[1.0 + r, 5.0 - r] for r in RANKS], axis=0))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allreduce(x, op=op)
        grad = tape.gradient(y, x, tf.constant([2.0 + RANK, 3.0]))
        assert close(grad, combine([[2.0 + r, 3.0] for r in RANKS], axis=0))


def test_allreduce_of_many_at_once():
    @tf.function
    def step():
        return [
            hvd.allreduce(made(shape, dtype) + tf.cast(i, dtype), op=hvd.Sum)
            for i in range(5)
            for dtype in FLOATS + [tf.int64]
            for shape in SHAPES
        ]

    assert len(step()) == 60
    assert close(step()[0], sum(made((17,), tf.float64, r) for r in RANKS), tf.float16)


@ways
def test_allreduce_on_process_sets(way):
    x = made((4, 2), tf.float32)
    total = sum(made((4, 2), tf.float64, r) for r in MINE.ranks)
    assert close(run(way, lambda t: hvd.allreduce(t, op=hvd.Sum, process_set=MINE), x), total)
    mean = run(way, lambda t: hvd.allreduce(t, process_set=MINE), x)
    assert close(mean, total / len(MINE.ranks))


@ways
def test_allreduce_errors(way):
    precondition = tf.errors.FailedPreconditionError
    fails(
        way,
        precondition,
        r"Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape \[\d+, 3\]",
        lambda: hvd.allreduce(tf.ones([2 + RANK, 3]), name="shape"),
    )
    fails(
        way,
        precondition,
        r"Mismatched data types: One rank had type (float32|int32), but another rank had type",
        lambda: hvd.allreduce(tf.ones([2], [tf.float32, tf.int32][RANK % 2]), name="type"),
    )
    fails(
        way,
        precondition,
        r"Mismatched reduction operation: One rank sent reduction op [A-Z][a-z]+, but another "
        r"rank sent reduction op [A-Z][a-z]+\.",
        lambda: hvd.allreduce(tf.ones([2]), op=[hvd.Sum, hvd.Max][RANK % 2], name="operation"),
    )
    fails(
        way,
        precondition,
        r"Mismatched prescale and/or postscale factors: One rank sent factors \(\d, 1\), but",
        lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum, prescale_factor=1.0 + RANK, name="f"),
    )


def test_operations_differ():
    def step():
        x = tf.ones([3])
        if RANK % 2 == 0:
            return hvd.allreduce(x, name="either")
        return hvd.allgather(x, name="either")

    fails("function", tf.errors.FailedPreconditionError, "Mismatched operations: One rank", step)


@ways
def test_no_such_operation(way):
    fails(way, tf.errors.UnknownError, "eduction op", lambda: hvd._allreduce(tf.ones([2]), op=77))


@ways
def test_average_and_op(way):
    fails(way, ValueError, "supersedes average", lambda: hvd.allreduce([1.0], True, op=hvd.Sum))
    fails(
        way,
        ValueError,
        "supersedes average",
        lambda: hvd.grouped_allreduce([tf.ones(1)], average=False, op=hvd.Sum),
    )


@ways
@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_allreduce_gradient(way, op):
    x = made((5, 3), tf.float32)

    def step(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            y = hvd.allreduce(t, op=getattr(hvd, op), process_set=MINE)
        return tape.gradient(y, t, tf.ones([5, 3]) * (RANK + 1.0))

    total = sum(r + 1.0 for r in MINE.ranks)
    expected = total if op == "Sum" else total / len(MINE.ranks)
    assert close(run(way, step, x), np.full((5, 3), expected))


# ---- grouped ----


@ways
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=lambda d: d.name)
def test_grouped_allreduce(way, dtype):
    xs = [made(shape, dtype) for shape in SHAPES]
    found = run(way, lambda *t: hvd.grouped_allreduce(list(t), op=hvd.Sum, process_set=MINE), *xs)
    for result, shape in zip(found, SHAPES, strict=True):
        assert close(result, sum(made(shape, tf.float64, r) for r in MINE.ranks), dtype)


@ways
def test_grouped_errors(way):
    precondition, invalid = tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError
    for position in range(3):
        # Whichever member disagrees.
        xs = [tf.ones([2 + (RANK if i == position else 0)]) for i in range(3)]
        for reduce in (hvd.grouped_allreduce, hvd.grouped_reducescatter):
            fails(way, precondition, "Mismatched .* tensor shapes", lambda r=reduce, x=xs: r(x))
    ys = [tf.ones([2, 2 + RANK]), tf.ones([2])]
    fails(way, precondition, "Mismatched ALLGATHER", lambda: hvd.grouped_allgather(ys))
    mixed = [tf.ones([2]), tf.ones([2], tf.float64)]
    fails(way, (invalid, TypeError), "double|float64", lambda: hvd.grouped_allreduce(mixed))
    fails(way, (invalid, ValueError), "minimum", lambda: hvd.grouped_allgather([]))
    assert hvd.grouped_reducescatter([]) == []


@ways
def test_grouped_gradients(way):
    xs = [made((RANK + 1, 2), tf.float32), made((3,), tf.float32)]

    def step(*ts):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(ts)
            gathered = hvd.grouped_allgather(list(ts))
            scattered = hvd.grouped_reducescatter([tf.ones([SIZE, 2]) * ts[1][0]], op=hvd.Sum)
        weights = [tf.ones_like(g) * (RANK + 1.0) for g in gathered]
        return (
            tape.gradient(gathered, ts, weights),
            tape.gradient(scattered, ts[1]),
        )

    mean = sum(r + 1.0 for r in RANKS) / SIZE
    gathered, scattered = run(way, step, *xs)
    assert close(gathered[0], np.full((RANK + 1, 2), mean))
    assert close(gathered[1], np.full(3, mean))
    assert close(scattered, [2.0 * SIZE * SIZE, 0, 0])


# ---- allgather ----


@ways
def test_allgather_on_process_sets(way):
    x = tf.fill([RANK + 1, 2], RANK)
    found = run(way, lambda t: hvd.allgather(t, process_set=MINE), x)
    assert close(found, np.concatenate([np.full((r + 1, 2), r) for r in MINE.ranks]))


@ways
def test_allgather_errors(way):
    precondition = tf.errors.FailedPreconditionError
    fails(
        way,
        precondition,
        "Mismatched ALLGATHER tensor shapes: One rank sent a tensor of rank",
        lambda: hvd.allgather(tf.ones([2] * (1 + RANK % 2)), name="ranks"),
    )
    fails(
        way,
        precondition,
        "a tensor with dimension 1 equal to",
        lambda: hvd.allgather(tf.ones([2, 2 + RANK]), name="rows"),
    )
    fails(
        way,
        precondition,
        "Mismatched data types",
        lambda: hvd.allgather(tf.ones([2], [tf.float32, tf.int32][RANK % 2]), name="types"),
    )


def test_scalar_allgather():
    fails(
        "eager",
        tf.errors.FailedPreconditionError,
        "Process-set rank zero tried to ALLGATHER a rank-zero tensor.",
        lambda: hvd.allgather(tf.constant(1.0)),
    )
    for gather in (hvd.allgather, hvd.alltoall):
        fails(
            "function",
            ValueError,
            "Out of range dim_index 0 for shape with 0 dimensions",
            lambda g=gather: g(tf.constant(1.0)),
        )


@ways
def test_allgather_gradient(way):
    """The mean of what the ranks ask for this rank's rows."""
    x = made((RANK + 1, 3), tf.float32)
    rows = [r + 1 for r in RANKS]

    def step(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            gathered = hvd.allgather(t)
        asked = tf.repeat(tf.range(float(SIZE)), rows)[:, None] * tf.ones([1, 3]) * (RANK + 1.0)
        return tape.gradient(gathered, t, asked)

    mean = sum(r + 1.0 for r in RANKS) / SIZE
    assert close(run(way, step, x), np.full((RANK + 1, 3), RANK * mean))


# ---- broadcast ----


@ways
def test_broadcast_errors(way):
    precondition, invalid = tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError
    fails(
        way,
        precondition,
        "Mismatched BROADCAST tensor shapes",
        lambda: hvd.broadcast(tf.ones([2 + RANK]), 0, name="shapes"),
    )
    fails(
        way,
        precondition,
        "Mismatched data types",
        lambda: hvd.broadcast(tf.ones([2], [tf.float32, tf.int32][RANK % 2]), 0, name="types"),
    )
    fails(
        way,
        precondition,
        "Mismatched BROADCAST root ranks: One rank specified root rank",
        lambda: hvd.broadcast(tf.ones([2]), RANK, name="roots"),
    )
    fails(
        way,
        invalid,
        "broadcast received invalid root rank",
        lambda: hvd.broadcast(tf.ones([2]), SIZE),
    )


@ways
def test_broadcast_gradient(way):
    x = made((5, 3), tf.float32)
    root = MINE.ranks[-1]

    def step(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            y = hvd.broadcast(t, root, process_set=MINE)
        return tape.gradient(y, t, tf.ones([5, 3]) * (RANK + 1.0))

    mean = sum(r + 1.0 for r in MINE.ranks) / len(MINE.ranks)
    assert close(run(way, step, x), np.full((5, 3), mean if root == RANK else 0))


@pytest.mark.parametrize(
    "dtype", INTEGERS + FLOATS + [tf.bool, tf.bfloat16, tf.uint16], ids=lambda d: d.name
)
def test_broadcast_in_place(dtype):
    for root in RANKS:
        for shape in SHAPES:
            values = [tf.cast(np.full(shape, r % 2), dtype) for r in RANKS]
            variables = [tf.Variable(values[RANK], name=f"v{i}") for i in range(2)]
            found = hvd.broadcast_(variables, root)
            assert len(found) == 2
            for result, variable in zip(found, variables, strict=True):
                assert close(result, values[root]) and close(variable, values[root])


def test_broadcast_in_place_of_a_set():
    variable = tf.Variable([float(RANK)])
    (found,) = hvd.broadcast_([variable], MINE.ranks[-1], process_set=MINE)
    assert close(found, [MINE.ranks[-1]]) and close(variable, [MINE.ranks[-1]])
    variable = tf.Variable([float(RANK)])
    hvd.broadcast_variables([variable], MINE.ranks[-1], process_set=MINE, inplace=True)
    assert close(variable, [MINE.ranks[-1]])


# ---- alltoall ----


@ways
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=lambda d: d.name)
def test_alltoall(way, dtype):
    rows = []
    for i in RANKS:
        rows += [i] * (RANK + 1)
    x = tf.cast(tf.constant(rows)[:, None] * tf.ones([1, 3], tf.int32), dtype)
    splits = tf.constant([RANK + 1] * SIZE, tf.int32)
    found, received = run(way, lambda t, s: hvd.alltoall(t, s), x, splits)
    assert close(received, [r + 1 for r in RANKS])
    assert close(found, np.full((sum(r + 1 for r in RANKS), 3), RANK))


@ways
def test_alltoall_of_nothing(way):
    """One rank sends nothing, one gets nothing, all are silent."""
    for splits in (
        [0] * SIZE if RANK == 1 else [RANK + 1] * SIZE,
        [2 if i != 1 else 0 for i in RANKS],
        [0] * SIZE,
    ):
        x = tf.ones([sum(splits), 2]) * RANK
        found, received = run(way, lambda t, s=splits: hvd.alltoall(t, s), x)
        all_splits = hvd.allgather(tf.constant([splits])).numpy()
        assert close(received, all_splits[:, RANK])
        assert close(found, np.repeat(np.arange(SIZE), all_splits[:, RANK])[:, None] * np.ones(2))


@ways
def test_alltoall_errors(way):
    invalid = tf.errors.InvalidArgumentError
    x = tf.ones([SIZE * 2, 2])
    fails(
        way,
        invalid,
        "Sum of splits entries is greater than the first dimension of tensor.",
        lambda: hvd.alltoall(x, [4] * SIZE),
    )
    fails(
        way,
        invalid,
        "splits not provided, but first dimension of tensor is not an even "
        "multiple of the number of workers.",
        lambda: hvd.alltoall(tf.ones([SIZE + 1])),
    )
    fails(
        way,
        invalid,
        "Number of entries in splits does not equal number of workers.",
        lambda: hvd.alltoall(x, [1] * (SIZE + 1)),
    )
    fails(
        way,
        (invalid, TypeError),
        "int64",
        lambda: hvd.alltoall(x, tf.constant([1] * SIZE, tf.int64)),
    )
    fails(
        way,
        tf.errors.FailedPreconditionError,
        "Mismatched ALLTOALL tensor shapes",
        lambda: hvd.alltoall(tf.ones([SIZE, 2 + RANK]), name="rows"),
    )
    fails(
        way,
        tf.errors.FailedPreconditionError,
        "Mismatched data types",
        lambda: hvd.alltoall(tf.ones([SIZE], [tf.float32, tf.int32][RANK % 2]), name="types"),
    )


@ways
def test_alltoall_gradient(way):
    splits = [i + 1 for i in range(len(MINE.ranks))]
    x = made((sum(splits), 2), tf.float32)

    def step(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            y, _ = hvd.alltoall(t, splits, process_set=MINE)
        return tape.gradient(y, t, tf.ones_like(y) * (RANK + 1.0))

    expected = np.repeat([r + 1.0 for r in MINE.ranks], splits)[:, None] * np.ones(2)
    assert close(run(way, step, x), expected)


# ---- reducescatter ----


def share(array, ranks=RANKS):
    return np.array_split(np.asarray(array), len(ranks))[list(ranks).index(RANK)]


@ways
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64] + FLOATS, ids=lambda d: d.name)
def test_reducescatter(way, dtype):
    for rows in (SIZE * 3, SIZE * 3 + 1, 1, 0):
        shape = (rows, 2)
        total = np.asarray(sum(made(shape, tf.float64, r) for r in MINE.ranks))
        x = made(shape, dtype)
        found = run(way, lambda t: hvd.reducescatter(t, op=hvd.Sum, process_set=MINE), x)
        assert found.dtype == dtype and close(found, share(total, MINE.ranks), dtype)
        if dtype in FLOATS:
            found = run(way, lambda t: hvd.reducescatter(t, process_set=MINE), x)
            assert close(found, share(total / len(MINE.ranks), MINE.ranks), dtype)


@ways
def test_reducescatter_scaled(way):
    x = made((SIZE * 2, 2), tf.float32)
    total = np.asarray(sum(made((SIZE * 2, 2), tf.float64, r) for r in RANKS))
    found = run(
        way,
        lambda t: hvd.reducescatter(t, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
        x,
    )
    assert close(found, share(total * 1.5))


@ways
def test_reducescatter_errors(way):
    precondition = tf.errors.FailedPreconditionError
    fails(
        way,
        precondition,
        "Mismatched REDUCESCATTER tensor shapes",
        lambda: hvd.reducescatter(tf.ones([2 + RANK, 2]), name="shapes"),
    )
    fails(
        way,
        precondition,
        "Mismatched data types",
        lambda: hvd.reducescatter(tf.ones([2], [tf.float32, tf.int32][RANK % 2]), name="types"),
    )
    for op in (hvd.Max, hvd.Adasum):
        fails(
            way,
            tf.errors.AbortedError,
            "Reducescatter currently only supports AVERAGE and SUM.",
            lambda o=op: hvd.reducescatter(tf.ones([4]), op=o),
        )
    scalar = (ValueError, tf.errors.InvalidArgumentError)
    fails(
        way, scalar, "does not support scalar inputs", lambda: hvd.reducescatter(tf.constant(1.0))
    )
    fails(
        way,
        scalar,
        "does not support scalar inputs",
        lambda: hvd.grouped_reducescatter([tf.ones(2), tf.constant(1.0)]),
    )


@ways
@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_reducescatter_gradient(way, op):
    x = made((len(MINE.ranks) * 2, 3), tf.float32)

    def step(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            y = hvd.reducescatter(
                t, op=getattr(hvd, op), process_set=MINE, prescale_factor=0.5, postscale_factor=4.0
            )
        return tape.gradient(y, t, tf.ones_like(y) * (RANK + 1.0))

    factor = 2.0 * (len(MINE.ranks) if op == "Sum" else 1)
    expected = np.repeat([(r + 1.0) * factor for r in MINE.ranks], 2)[:, None] * np.ones(3)
    assert close(run(way, step, x), expected)


# ---- sparse ----


@pytest.mark.parametrize(
    ("dtype", "averaged"),
    [
        (tf.float32, tf.float32),
        (tf.float64, tf.float64),
        (tf.float16, tf.float16),
        (tf.int32, tf.float64),
        (tf.int64, tf.float64),
        (tf.uint8, tf.float32),
    ],
    ids=lambda d: d.name,
)
def test_sparse(dtype, averaged):
    slices = tf.IndexedSlices(
        tf.cast(tf.fill([RANK + 1, 2], RANK + 1), dtype),
        tf.range(RANK + 1, dtype=tf.int64),
        tf.constant([SIZE, 2], tf.int64),
    )
    expected = np.concatenate([np.full((r + 1, 2), r + 1.0) for r in RANKS])
    for mode in ("eager", "function"):
        result = run(mode, lambda s: hvd.allreduce(s, op=hvd.Sum), slices)
        assert isinstance(result, tf.IndexedSlices) and result.values.dtype == dtype
        assert close(result.values, expected, dtype)
        assert close(result.indices, np.concatenate([np.arange(r + 1) for r in RANKS]))
        result = run(mode, lambda s: hvd.allreduce(s), slices)
        assert result.values.dtype == averaged
        assert close(result.values, expected / SIZE, averaged)
        results = run(
            mode,
            lambda s: hvd.grouped_allreduce([tf.ones([2], dtype), s, s], op=hvd.Sum),
            slices,
        )
        assert close(results[2].values, expected, dtype)
        assert close(results[1].dense_shape, [SIZE, 2])


def test_sparse_errors():
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))
    for reduce in (hvd.allreduce, lambda s, **options: hvd.grouped_allreduce([s], **options)):
        for op in (hvd.Min, hvd.Max, hvd.Product):
            fails(
                "eager",
                NotImplementedError,
                "Only Sum and Average ops are supported with tf.IndexedSlices",
                lambda r=reduce, o=op: r(slices, op=o),
            )
        fails(
            "eager",
            NotImplementedError,
            "does not currently support sparse tensors",
            lambda r=reduce: r(slices, op=hvd.Adasum),
        )
        for factor in ("prescale_factor", "postscale_factor"):
            fails(
                "eager",
                NotImplementedError,
                "Pre/postscale_factor are not supported with tf.IndexedSlices",
                lambda r=reduce, f=factor: r(slices, op=hvd.Sum, **{f: 0.5}),
            )


# ---- Adasum ----


def test_adasum():
    if SIZE & (SIZE - 1):
        fails(
            "eager",
            NotImplementedError,
            "non-power of 2 ranks is not supported yet",
            lambda: hvd.allreduce(tf.ones([4]), op=hvd.Adasum),
        )
        return
    # Parallel gradients are averaged, orthogonal ones added.
    assert close(hvd.allreduce(tf.ones([4]), op=hvd.Adasum), np.ones(4))
    assert close(hvd.grouped_allreduce([tf.eye(SIZE)[RANK]], op=hvd.Adasum)[0], np.ones(SIZE))
    if RANK in EVEN.ranks and SIZE > 1:
        with pytest.raises(NotImplementedError, match="non-global process sets"):
            hvd.allreduce(tf.ones([4]), op=hvd.Adasum, process_set=EVEN)
    works()


# ---- process sets ----


def test_foreign_sets():
    other = ODD if MINE is EVEN else EVEN
    if SIZE == 1:
        pytest.skip("there is one set only")
    invalid = tf.errors.InvalidArgumentError
    x = tf.ones([4])
    for words, function in (
        (
            "Allreduce: Rank . is not a member of the provided process set.",
            lambda: hvd.allreduce(x, process_set=other),
        ),
        (
            "Allreduce: Rank . is not a member",
            lambda: hvd.grouped_allreduce([x, x], process_set=other),
        ),
        ("Allgather: Rank . is not a member", lambda: hvd.allgather(x, process_set=other)),
        (
            "Allgather: Rank . is not a member",
            lambda: hvd.grouped_allgather([x], process_set=other),
        ),
        ("Alltoall: Rank . is not a member", lambda: hvd.alltoall(x, process_set=other)),
        (
            "broadcast received invalid root rank . for provided process set",
            lambda: hvd.broadcast(x, other.ranks[0], process_set=other),
        ),
        ("Invalid process set id for this rank: ", lambda: hvd.reducescatter(x, process_set=other)),
        (
            "Invalid process set id for this rank: ",
            lambda: hvd.grouped_reducescatter([x], process_set=other),
        ),
        (
            "broadcast received invalid root rank",
            lambda: hvd.broadcast_object(1, other.ranks[0], process_set=other),
        ),
        (
            "broadcast received invalid root rank",
            lambda: hvd.broadcast_variables([tf.Variable(x)], other.ranks[0], process_set=other),
        ),
        (
            "broadcast received invalid root rank",
            lambda: hvd.broadcast_([tf.Variable(x)], other.ranks[0], process_set=other),
        ),
    ):
        for way in ("eager", "function"):
            if way == "function" and "object" in words:
                continue
            with pytest.raises((invalid, ValueError), match=words):
                function()
    works()


def test_unknown_sets():
    unknown = _temp_process_set_object(1234)
    x = tf.ones([4])
    fails(
        "eager",
        ValueError,
        "Process set does not exist or has not been registered.",
        lambda: hvd.allreduce(x, process_set=unknown),
    )
    invalid = tf.errors.InvalidArgumentError
    words = "Process set provided does not exist, or has not been registered."
    for function in (
        lambda: hvd._allreduce(x, process_set=unknown),
        lambda: hvd.grouped_allreduce([x], process_set=unknown),
        lambda: hvd.allgather(x, process_set=unknown),
        lambda: hvd.alltoall(x, process_set=unknown),
    ):
        fails("eager", invalid, words, function)
    fails(
        "eager",
        invalid,
        "Invalid process set id for this rank: 1234",
        lambda: hvd.reducescatter(x, process_set=unknown),
    )


# ---- join, objects, compression ----


@ways
def test_join(way):
    """Who has no more data helps with zeros, and all learn who was last."""
    reduce = hvd.allreduce
    for late in RANKS:
        if late == RANK:
            for _ in range(3):
                found = run(way, lambda: reduce(tf.ones([5]), op=hvd.Sum, name="joined"))
                # The others may not have joined yet, but then they are not there either.
                assert close(found, np.ones(5))
        else:
            pass
        last = run(way, hvd.join)
        assert last.dtype == tf.int32 and last.shape == ()
        assert hvd.allgather_object(int(last)) == [int(last)] * SIZE


def test_join_refuses_what_it_cannot_help_with():
    for words, function in (
        (
            "Allgather is not supported with Join at this time. Specify sparse_to_dense=True",
            lambda: hvd.allgather(tf.ones([2])),
        ),
        (
            "Broadcast is not supported with Join at this time.",
            lambda: hvd.broadcast(tf.ones([2]), 0),
        ),
        (
            "Alltoall is not supported with Join at this time.",
            lambda: hvd.alltoall(tf.ones([SIZE])),
        ),
        (
            "Reducescatter is not supported with Join at this time.",
            lambda: hvd.reducescatter(tf.ones([SIZE])),
        ),
    ):
        if RANK == 0 and SIZE > 1:
            with pytest.raises(tf.errors.FailedPreconditionError, match=words):
                function()
        hvd.join()
        works()


def test_objects_of_a_set():
    root = MINE.ranks[-1]
    sent = {"rank": RANK, 5: [1, 2]} if root == RANK else None
    assert hvd.broadcast_object(sent, root, process_set=MINE) == {"rank": root, 5: [1, 2]}
    assert hvd.allgather_object([RANK] * RANK, process_set=MINE) == [[r] * r for r in MINE.ranks]
    assert hvd.allgather_object(None) == [None] * SIZE


@pytest.mark.parametrize(("name", "wire"), [("fp16", tf.float16), ("bf16", tf.bfloat16)])
def test_compression(name, wire):
    compression = getattr(hvd.Compression, name)
    for dtype in FLOATS:
        compressed, context = compression.compress(tf.ones([5], dtype))
        assert compressed.dtype == wire and context == dtype
        assert compression.decompress(compressed, context).dtype == dtype
    for dtype in INTEGERS + [tf.bool]:
        compressed, context = compression.compress(tf.cast(tf.ones([5]), dtype))
        assert compressed.dtype == dtype
        assert compression.decompress(compressed, context).dtype == dtype
    assert hvd.reducescatter(tf.ones([SIZE]), compression=compression).dtype == tf.float32
    grouped = hvd.grouped_reducescatter([tf.ones([SIZE])], compression=compression)
    assert grouped[0].dtype == tf.float32


def test_own_compression():
    class Halves(hvd.compression.Compressor):
        @staticmethod
        def compress(tensor):
            return tensor / 2, 2.0

        @staticmethod
        def decompress(tensor, ctx):
            return tensor * ctx

    assert close(hvd.allreduce(tf.ones(3), op=hvd.Sum, compression=Halves), np.full(3, SIZE))


def test_sets_come_and_go():
    ids = []
    assert hvd.remove_process_set(ODD)
    for _ in range(2):
        some = hvd.add_process_set([SIZE - 1])
        ids.append(some.process_set_id)
        assert some.included() == (RANK == SIZE - 1)
        assert hvd.size_op(some.process_set_id).numpy() == 1
        if RANK == SIZE - 1:
            assert close(hvd.allreduce(tf.ones(3), process_set=some), np.ones(3))
        assert hvd.remove_process_set(some)
    assert None not in ids
    with pytest.raises(ValueError, match="duplicate process set"):
        hvd.add_process_set(EVEN.ranks)
    works()
