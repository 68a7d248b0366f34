# SPDX-License-Identifier: Apache-2.0
"""Sum up what bench/run.sh measured: tables, the aims and whether they were met, a plot.

    bench/report.py RESULTS

Each case was launched several times; a figure is the median over launches of that launch's median.
A case counts as lost only if the whole interval of every launch lies below one.
"""

import json
import statistics
import sys
from pathlib import Path

LIBRARIES = {"openmpi": "Open MPI", "mpich": "MPICH"}
KIB, MIB = 1 << 10, 1 << 20


def size_text(count):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}"
    return f"{count} B"


def load(folder):
    """{(library, ranks): {bytes: [row of each launch]}}, and the launches' heads."""
    cases, heads = {}, []
    for path in sorted(folder.glob("allreduce-*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        library = path.stem.split("-")[1]
        heads.append(document)
        case = cases.setdefault((library, document["ranks"]), {})
        for row in document["rows"]:
            case.setdefault(row["bytes"], []).append(row)
    return cases, heads


def median_of(rows, way, field):
    return statistics.median(row["ways"][way][field] for row in rows)


def verdict(rows, way):
    if all(row["ways"][way]["high"] < 1 for row in rows):
        return "loses"
    if median_of(rows, way, "ratio") < 1:
        return "below"
    return ""


def case_table(library, ranks, case, cores):
    crowded = f", oversubscribed ({cores} cores)" if ranks > cores else ""
    yield f"### {ranks} ranks against {LIBRARIES[library]}{crowded}"
    yield ""
    yield (
        "| size | MPI us | arena us | x | private us | x | raw arena x | raw private x "
        "| raw MPI backend x | GB/s arena | of limit | raw of limit | verdict |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for count, rows in sorted(case.items()):
        us = {way: median_of(rows, way, "us") for way in rows[0]["ways"]}
        x = {way: median_of(rows, way, "ratio") for way in rows[0]["ways"]}
        words = [f"{word}: {way}" for way in ("arena", "private") if (word := verdict(rows, way))]
        is_large = count >= 64 * KIB
        share = statistics.median(row["share"] for row in rows)
        share_raw = statistics.median(row["share_raw"] for row in rows)
        yield (
            f"| {size_text(count)} | {us['mpi']:.1f} | {us['arena']:.1f} | {x['arena']:.2f} "
            f"| {us['private']:.1f} | {x['private']:.2f} | {x['raw_arena']:.2f} "
            f"| {x['raw_private']:.2f} | {x['raw_mpi']:.2f} | {count / us['arena'] / 1e3:.2f} "
            f"| {f'{share:.0%}' if is_large else ''} | {f'{share_raw:.0%}' if is_large else ''} "
            f"| {', '.join(words)} |"
        )
    yield ""


def calm_table(cases):
    """Tenth percentiles: what the least disturbed rounds of a busy machine saw."""
    yield "## Least disturbed rounds (10 % quantile of each way's time)"
    yield ""
    yield "| case | size | MPI us | arena us | x | private us | x | of limit | raw of limit |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for (library, ranks), case in sorted(cases.items(), key=lambda item: (item[0][1], item[0][0])):
        for count, rows in sorted(case.items()):
            us = {way: median_of(rows, way, "q10_us") for way in rows[0]["ways"]}
            is_large = count >= 64 * KIB
            shares = [us["limit"] / us[way] for way in ("arena", "raw_arena")]
            shares = [f"{share:.0%}" if is_large else "" for share in shares]
            yield (
                f"| {ranks}, {LIBRARIES[library]} | {size_text(count)} | {us['mpi']:.1f} "
                f"| {us['arena']:.1f} | {us['mpi'] / us['arena']:.2f} "
                f"| {us['private']:.1f} | {us['mpi'] / us['private']:.2f} "
                f"| {shares[0]} | {shares[1]} |"
            )
    yield ""


class Figures:
    """The aims, one line each: what, what was wanted, what came."""

    def __init__(self):
        self.lines = []

    def add(self, what, wanted, got, is_met):
        self.lines.append(f"| {what} | {wanted} | {got} | {'met' if is_met else 'NOT MET'} |")

    def table(self):
        return ["| case | aim | got | |", "|---|---|---|---|", *self.lines, ""]


def list_ratios(case, sizes, way):
    return [
        (size_text(size), median_of(case[size], way, "ratio")) for size in sizes if size in case
    ]


def join(pairs):
    return ", ".join(f"{name} {value:.2f}x" for name, value in pairs)


def judge_arena(figures, cases):
    sizes = (64 * KIB, MIB, 16 * MIB, 64 * MIB)
    for ranks, aim in ((2, 3.0), (4, 2.5)):
        case = cases.get(("openmpi", ranks))
        if not case:
            continue
        pairs = list_ratios(case, sizes, "arena")
        figures.add(
            f"arena, {ranks} ranks, against Open MPI",
            f"{aim}x at each",
            join(pairs),
            all(value >= aim for _, value in pairs),
        )
        if ranks == 2:
            shares = [
                (size_text(size), statistics.median(row["share"] for row in rows))
                for size, rows in sorted(case.items())
                if size >= MIB
            ]
            figures.add(
                "arena, 2 ranks, share of the limit from 1 MiB up",
                "70 %",
                ", ".join(f"{name} {share:.0%}" for name, share in shares),
                all(share >= 0.7 for _, share in shares),
            )


def judge_private(figures, cases):
    for (library, ranks), case in sorted(cases.items(), key=lambda item: item[0][1]):
        pairs = list_ratios(case, [size for size in sorted(case) if size >= 4 * KIB], "private")
        worst = min(pairs, key=lambda pair: pair[1])
        figures.add(
            f"private, {ranks} ranks, from 4 KiB, against {LIBRARIES[library]}",
            "never below 1x",
            f"least {worst[1]:.2f}x at {worst[0]}",
            worst[1] >= 1,
        )
        last = list_ratios(case, [64 * MIB], "private")
        if last:
            figures.add(
                f"private, {ranks} ranks, 64 MiB, against {LIBRARIES[library]}",
                "1.5x",
                join(last),
                last[0][1] >= 1.5,
            )


def judge_small(figures, cases):
    case = cases.get(("openmpi", 2), {})
    if 8 in case:
        time = 1 / median_of(case[8], "raw_private", "ratio")
        figures.add(
            "8 B, 2 ranks, raw", "at most 1.5x Open MPI's time", f"{time:.2f}x", time <= 1.5
        )


def judge_agreement(figures, result):
    for row in result["rows"]:
        name = f"{row['life']} {row['what']}"
        got = f"{row['added_us']:.2f} us added, {row['messages']:.2f} messages"
        if row["life"] == "planned":
            figures.add(name, "no message", got, row["messages"] == 0)
        elif row["what"].startswith("op"):
            figures.add(name, "at most 5 us added", got, row["added_us"] <= 5)


def judge_line(figures, row):
    figures.add(
        f"TCP, 2 hosts, {row['rate_mbit']:.0f} Mbit/s, {size_text(row['bytes'])}",
        "90 % of the line",
        f"{row['share']:.1%}",
        row["share"] >= 0.9,
    )
    surplus = row["payload"] - row["least"]
    figures.add(
        "TCP, payload bytes sent per host",
        "2(H-1)/H S exactly",
        f"least {row['least']:.0f}, tensor and control {row['payload']:.0f} (+{surplus:.0f}), "
        f"on the link with headers {row['sent'] / row['least']:.4f}x",
        0 <= surplus <= 4096,
    )


def judge_ranks(figures, row):
    figures.add(
        f"{row['ranks']} ranks: init, {row['ops']} allreduces, shutdown",
        "128 ranks, 1000 allreduces",
        " + ".join(f"{row.get(part, 0):.1f}" for part in ("init_s", "ops_s", "shutdown_s")) + " s",
        row["failed"] == 0 and row["ranks"] >= 128 and row["ops"] >= 1000,
    )
    death = row.get("death_ms", float("inf"))
    figures.add(
        "a rank killed: error naming it on all others", "1 s", f"{death:.1f} ms", death <= 1000
    )


# Benchmarks that need not have been run, and what is asked of them.
MORE = {
    "negotiate-2.json": judge_agreement,
    "tcp_line.json": judge_line,
    "ranks.json": judge_ranks,
}


def plot(cases, path):
    try:
        import matplotlib
    except ImportError:
        print("report: no matplotlib, no plot", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = {"mpi": "MPI", "arena": "ours, arena", "private": "ours, private", "limit": "limit"}
    figure, axes = pyplot.subplots(
        1, len(cases), figsize=(5 * len(cases), 4.2), sharey=True, squeeze=False
    )
    order = sorted(cases.items(), key=lambda item: (item[0][1], item[0][0]))
    for axis, ((library, ranks), case) in zip(axes[0], order, strict=True):
        sizes = sorted(case)
        for way, name in names.items():
            used = [size for size in sizes if way != "limit" or size >= 64 * KIB]
            rates = [size / median_of(case[size], way, "us") / 1e3 for size in used]
            label = LIBRARIES[library] if way == "mpi" else name
            style = "k:" if way == "limit" else "o-"
            axis.plot(used, rates, style, label=label, markersize=3)
        axis.set(xscale="log", yscale="log", xlabel="bytes", title=f"{ranks} ranks")
        axis.grid(True, alpha=0.3)
        axis.legend(fontsize=8)
    axes[0][0].set_ylabel("GB/s (bytes of one rank / time)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    folder = Path(sys.argv[1])
    cases, heads = load(folder)
    if not cases:
        print("report: there are no results", file=sys.stderr)
        return 1
    loads = [value for head in heads for value in (head["load_before"], head["load_after"])]
    steal = max(head["steal_share"] for head in heads)
    lines = ["# Benchmarks", ""]
    lines.append(
        f"{len(heads)} launches, {heads[0]['cores']} cores, load average {min(loads):.2f} to "
        f"{max(loads):.2f} (the benchmark's own ranks included after the first), steal at most "
        f"{steal:.1%}, {', '.join(sorted({head['mpi'] for head in heads}))}."
    )
    is_quiet = heads[0]["load_before"] <= 0.5 and steal <= 0.01
    if not is_quiet:
        lines.append("THE MACHINE WAS NOT QUIET: these figures prove little.")
    lines.append("")
    for (library, ranks), case in sorted(cases.items(), key=lambda item: (item[0][1], item[0][0])):
        lines.extend(case_table(library, ranks, case, heads[0]["cores"]))
    if not is_quiet:
        lines.extend(calm_table(cases))
    figures = Figures()
    judge_arena(figures, cases)
    judge_private(figures, cases)
    judge_small(figures, cases)
    for name, judge in MORE.items():
        path = folder / name
        if path.exists():
            judge(figures, json.loads(path.read_text(encoding="utf-8")))
    lines.extend(["## Aims", "", *figures.table()])
    text = "\n".join(lines)
    print(text)
    (folder / "report.md").write_text(text, encoding="utf-8")
    plot(cases, folder / "allreduce.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
