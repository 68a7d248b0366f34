# SPDX-License-Identifier: Apache-2.0
"""Traces of all ranks, and horovod-timeline, which merges them and a profiler's trace."""

import gzip
import json
from collections import Counter

import pytest
from horovod.runner import timeline

SLOW_RANK = """
import time
import numpy as np, horovod.numpy as hvd
hvd.init()
for step in range(40):
    if hvd.rank() == 1:
        time.sleep(0.01)
    hvd.allreduce(np.ones(4), name="grad")
hvd.allgather(np.ones(hvd.rank() + 1), name="rows")
hvd.shutdown()
"""


def bars(events, rank):
    """The names of the bars of a rank, each of which must begin and end in order."""
    names, open_bars, last = Counter(), Counter(), 0
    for event in (e for e in events if e["pid"] == rank and e["ph"] in "BE"):
        assert event["ts"] >= last
        last = event["ts"]
        open_bars[event["tid"]] += 1 if event["ph"] == "B" else -1
        assert open_bars[event["tid"]] >= 0
        if event["ph"] == "B":
            names[event["name"]] += 1
    assert not any(open_bars.values())
    return names


FIELDS = {  # of the trace-event format, by phase, besides ph and pid
    "B": {"tid", "ts", "name"},
    "E": {"tid", "ts"},
    "X": {"tid", "ts", "name", "dur"},
    "i": {"tid", "ts", "name", "s"},
    "s": {"tid", "ts", "name", "id", "cat"},
    "f": {"tid", "ts", "name", "id", "cat", "bp"},
    "M": {"name", "args"},
}


def check_format(events):
    """What Perfetto's importer asks for; arrows begin and end within a bar of their track."""
    spans, open_bars = {}, {}
    for event in events:
        assert {"pid"} | FIELDS[event["ph"]] <= event.keys(), event
        assert event["ph"] == "M" or event["ts"] >= 0, event
        track = event["pid"], event.get("tid")
        if event["ph"] == "B":
            open_bars.setdefault(track, []).append(event["ts"])
        elif event["ph"] == "E":
            spans.setdefault(track, []).append((open_bars[track].pop(), event["ts"]))
    arrows = {}
    for event in events:
        if event["ph"] in "sf":
            arrows.setdefault((event["cat"], event["name"], event["id"]), []).append(event["ph"])
            track = event["pid"], event["tid"]
            assert any(begin <= event["ts"] <= end for begin, end in spans[track]), event
    assert arrows and all(phases == ["s", "f"] for phases in arrows.values())


def test_slow_rank_is_where_the_arrows_begin(run_script, tmp_path):
    path = tmp_path / "t.json"
    env = {
        "HOROVOD_TIMELINE": str(path),
        "HOROVOD_TIMELINE_ALL_RANKS": "1",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    }
    result = run_script(SLOW_RANK, 3, env=env, deadline_s=120)
    assert result.returncode == 0, result.stdout[-4000:]
    output = tmp_path / "merged.json.gz"
    assert timeline.main(["merge", str(path), "-o", str(output)]) == 0
    with gzip.open(output, "rt") as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    check_format(events)
    labels = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    assert [labels[rank].split(" on ")[0] for rank in range(3)] == [
        f"rank {rank} of 3" for rank in range(3)
    ]
    for rank in range(3):
        names = bars(events, rank)
        assert names["ALLREDUCE"] == names["NEGOTIATE_ALLREDUCE"] == names["GLOO_ALLREDUCE"] == 40
        assert names["ALLGATHER"] == 1
        assert any(e.get("name") == "CYCLE_START" and e["pid"] == rank for e in events)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == 41 * 3
    assert all(starts[i]["ts"] <= ends[i]["ts"] for i in starts)
    # Also on a busy machine, 10 ms are more than the others are late.
    assert timeline.late_ranks(trace)[0][0] == 1
    assert Counter(e["pid"] for e in starts.values()).most_common(1)[0][0] == 1


def trace_of(rank, start_ns, offset_ns, submitted, wall_us):
    """A rank's trace of one batch, submitted at a time of its own clock since its start."""
    head = [
        {"name": "process_name", "ph": "M", "pid": 0},
        {"name": "horovod_rank", "ph": "M", "pid": 0},
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad"}},
    ]
    head[0]["args"] = {"start_time_since_epoch_in_micros": wall_us}
    head[1]["args"] = {"rank": rank, "size": 2, "start_ns": start_ns, "host": "h"}
    if rank > 0:
        args = {"at_ns": start_ns + 500, "offset_ns": offset_ns, "error_ns": 2000}
        head.append({"name": "horovod_clock", "ph": "M", "pid": 0, "args": args})
    return [
        *head,
        {"ph": "i", "name": "SUBMIT", "ts": submitted, "pid": 1, "args": {"submitted": submitted}},
        {"ph": "B", "name": "ALLREDUCE", "ts": submitted + 5, "pid": 1, "args": {"batch": 7}},
        {"ph": "E", "ts": submitted + 9, "pid": 1, "args": {"dtype": "float32", "shape": "[1]"}},
    ]


def write(path, value):
    path.write_text(json.dumps(value))
    return str(path)


def test_clocks_and_a_profile_are_brought_together(tmp_path):
    first = write(tmp_path / "t.json", trace_of(0, 1_000_000, 0, 100, 5_000_000))
    # Rank 1's clock shows 40 ms less than rank 0's, and its trace began 50 us later.
    start_ns = 1_050_000 - 40_000_000
    write(tmp_path / "t.json.rank1", trace_of(1, start_ns, 40_000_000, 70, 9_000_000))
    profile = {
        "baseTimeNanoseconds": 9_000_000_000,
        "distributedInfo": {"rank": 1},
        "traceEvents": [
            {"ph": "X", "name": "step", "ts": 60.0, "dur": 20, "pid": 4, "tid": 4},
            {"ph": "s", "name": "fwd", "ts": 61.0, "pid": 4, "tid": 4, "id": 1},
        ],
    }
    trace = timeline.merge(
        timeline.find_traces(first), [(None, write(tmp_path / "p.json", profile))]
    )
    events = trace["traceEvents"]
    submits = {e["pid"]: e["ts"] for e in events if e.get("name") == "SUBMIT"}
    assert submits == {0: 100, 1: 120}
    step = next(e for e in events if e.get("name") == "step")
    assert step["ts"] == 110 and step["pid"] not in (0, 1)
    arrows = [e for e in events if e["ph"] == "s" and e.get("cat") == "collective"]
    assert [(e["pid"], e["args"]["late_us"]) for e in arrows] == [(1, 20), (1, 0)]
    assert len({e["id"] for e in events if e["ph"] == "s"}) == 3
    note = next(e for e in events if e.get("name") == "process_labels" and e["pid"] == 1)
    assert note["args"]["labels"] == "clock error at most 2 us"


def test_a_rank_that_began_before_rank_0_has_no_negative_times(tmp_path):
    first = write(tmp_path / "t.json", trace_of(0, 1_000_000, 0, 100, 5_000_000))
    write(tmp_path / "t.json.rank1", trace_of(1, 700_000, 0, 10, 4_999_700))
    events = timeline.merge(timeline.find_traces(first))["traceEvents"]
    submits = {e["pid"]: e["ts"] for e in events if e.get("name") == "SUBMIT"}
    assert submits == {0: 400, 1: 10}


@pytest.mark.parametrize(
    "text,why",
    [
        ("[", "not a trace"),
        ("{}", "not a trace of Horovod"),
        ('[{"name": "process_name", "ph": "M", "pid": 0, "args": {}}]', "ALL_RANKS=1"),
    ],
)
def test_other_files_are_refused(tmp_path, capsys, text, why):
    path = tmp_path / "t.json"
    path.write_text(text)
    assert timeline.main(["merge", str(path), "-o", str(tmp_path / "m.json")]) == 1
    assert why in capsys.readouterr().err
    assert not (tmp_path / "m.json").exists()
