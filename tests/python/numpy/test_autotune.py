# SPDX-License-Identifier: Apache-2.0
"""HOROVOD_AUTOTUNE: it searches, ends by itself, writes its log, and remembers its result."""

import csv

SCRIPT = """
import numpy as np, horovod.numpy as hvd
hvd.init()
seen = set()
for step in range(%d):
    handles = [hvd.allreduce_async(np.full(1000, 1.0), name=f"g{i}", op=hvd.Sum) for i in range(4)]
    for handle in handles:
        assert hvd.synchronize(handle)[0] == hvd.size()
    if step %% 10 == 0:
        tunables = hvd.metrics()["tunables"]
        seen.add((tunables["cycle_time_s"], tunables["fusion_threshold_bytes"]))
last = hvd.metrics()["tunables"]
both = hvd.allgather_object(last)
assert both == [last] * hvd.size(), both
if hvd.rank() == 0:
    print("versions", last["version"], "seen", len(seen), flush=True)
hvd.shutdown()
"""
HEADER = (
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score"
)
SMALL = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "6",
}
STEPS = 1500  # 1 + 7 + 10 samples of 12 steps, and those of the changes in between


def rows_of(path):
    lines = path.read_text().splitlines()
    assert lines[0] == HEADER
    return list(csv.DictReader(lines))


def test_search_ends_and_is_remembered(run_script, tmp_path):
    log, cache = tmp_path / "log.csv", tmp_path / "cache"
    env = {**SMALL, "HOROVOD_AUTOTUNE_LOG": str(log), "HOROVOD_AUTOTUNE_CACHE": str(cache)}
    result = run_script(SCRIPT % STEPS, 2, env=env, deadline_s=200)
    assert result.returncode == 0, result.stdout[-4000:]
    rows = rows_of(log)
    # The start values, six others, up to five rounds of two, and the result.
    assert len(rows) in (8, 18)
    assert all(float(row["score"]) > 0 and row["cache_enabled"] == "1" for row in rows)
    assert (rows[0]["cycle_time_ms"], rows[0]["tensor_fusion_threshold"]) == ("1", "128")
    assert [(r["tensor_fusion_threshold"], r["cycle_time_ms"]) for r in rows[1:5]] == [
        ("4", "5"),
        ("32", "50"),
        ("16", "25"),
        ("8", "10"),
    ]
    assert all(0 <= float(row["tensor_fusion_threshold"]) <= 128 for row in rows)
    assert len(cache.read_text().splitlines()) == 1
    # Next time, only what was found is compared with the start values.
    result = run_script(SCRIPT % STEPS, 2, env=env, deadline_s=200)
    assert result.returncode == 0, result.stdout[-4000:]
    assert len(rows_of(log)) == 1 + 10 + 1
    assert len(cache.read_text().splitlines()) == 1
    # Another number of ranks is another job.
    result = run_script(SCRIPT % STEPS, 3, env=env, deadline_s=200)
    assert result.returncode == 0, result.stdout[-4000:]
    assert len(cache.read_text().splitlines()) == 2


def test_what_is_set_stays(run_script, tmp_path):
    log = tmp_path / "log.csv"
    env = {**SMALL, "HOROVOD_AUTOTUNE_LOG": str(log), "HOROVOD_CYCLE_TIME": "2"}
    result = run_script(SCRIPT % STEPS, 2, env=env, deadline_s=200)
    assert result.returncode == 0, result.stdout[-4000:]
    rows = rows_of(log)
    assert {row["cycle_time_ms"] for row in rows} == {"2"}
    assert len({row["tensor_fusion_threshold"] for row in rows}) > 3
    env["HOROVOD_FUSION_THRESHOLD"] = "1048576"  # nothing is left to tune
    result = run_script(SCRIPT % 100, 2, env=env, deadline_s=200)
    assert result.returncode == 0 and "versions 0 seen 1" in result.stdout
    assert rows_of(log) == []


def test_files_that_cannot_be_written(run_script, tmp_path):
    missing = str(tmp_path / "missing" / "file")
    env = {**SMALL, "HOROVOD_AUTOTUNE_LOG": missing, "HOROVOD_AUTOTUNE_CACHE": missing}
    result = run_script(SCRIPT % STEPS, 2, env=env, deadline_s=200)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "The autotuner can't use the file" in result.stdout
