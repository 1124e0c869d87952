"""Logs, and files of importance and groups, as inputs of `fuzz`.

Files of every form that an audit reads are made, most of them spoilt in their cells, lines,
separators, bytes or JSON values, and read with options that may not fit; a share of the logs is
audited by the command. Every input must be refused by one of the library's own errors, or give a
log and an importance that are proper by independent checks.
"""

import csv
import gzip
import io
import json

import numpy as np

import fedavot as fa
from attacks.campaign import Fault, some
from attacks.mutations import changed, damaged

PARQUET, COMMAND = 0.004, 0.001
"""Shares of the inputs that are Parquet, whose reader is a process, or are audited."""
SUM_SLACK = 1e-9
SEPARATORS = ",;\t| "
NAMES = (
    *("a", "b", "north 7", "007", "é🐝", 'q"u', "x,y;z", "=cmd", " a", "<b>", "NA", "12"),
    "two\nlines",
)
STATUSES = (
    *("ok", "OK", "failed", "timeout", "0", "1", "2", "true", "false", "yes", "", "unknown", "gut"),
    *("offline", "idle", "TaskStatus.DONE", "200", "-1", "1.0", "not selected", "error: x", "?"),
)
TIMES = (
    *("0", "5", "1714564800", "1714564800123", "1714564800123456789", "1e300", "-5", "nan", "1_0"),
    *(
        "2024-05-01T12:00:00Z",
        "2024-05-01 12:00",
        "2024/05/01 12:00:00.5",
        "01.05.2024",
        "",
        "noon",
    ),
    *("03/04/2024", "13/04/2024 1:30 PM", "2024-05-01 12:00 Europe/Berlin", "20240501", "99999999"),
    *("Wed, 01 May 2024 12:00:00 GMT", "01/May/2024:12:00:00 +0000", "0001-01-01T00:00+14:00"),
    *(
        "9999-12-31T23:59:59-14:00",
        "2024-02-30",
        "2024-05-01T12:00:00+99:99",
        "12 May 99999",
        "Inf",
    ),
)
HEADERS = (
    *("round", "client", "status", "time", "ts", "JOB_STATE", "clients", "event", "weight"),
    *("start", "end", "state", "num_examples", "importance", "group", "share", "exit_code", "id"),
    *("", " ", "client", "a.b", "known_until", "x" * 300, "é"),
)
PLAIN_STATUSES = ("ok", "failed", "timeout", "offline", "unknown", "Completed")
PLAIN_TIMES = tuple(f"2024-05-01T12:0{minute}:00Z" for minute in range(10))
PLAIN_AMOUNTS = (1, 3, 0.5, "2.5", 7)
"""What most files have in their columns, so that most of them are read."""
OPTIONS = {
    "columns": (
        *({"client": "node"}, {"status": ""}, {"round": "nope"}, {"client": "clients"}),
        *({"status": "failed"}, {"importance.client": "site"}, {"bad": "x"}, {"time": ""}),
    ),
    "where": ({"event": "train_reply"}, {"event": ["a", "b"]}, {"nope": "x"}, {"round": "1"}, {}),
    "statuses": ({"0": "ok"}, {"*": "failed"}, {"gut": "ok"}, {"1": "bad"}),
    "dates": ("day-first", "month-first", "year"),
    "period": (600, 1, 1e9, 0, 1e-9),
    "state": ("on", "nope"),
    "cohort_size": (1, 3),
}


def table(header, lines, rng):
    """Return CSV, with any separator and quotes."""
    stream = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if rng.random() < 0.4 else csv.QUOTE_MINIMAL
    end = "\n" if rng.random() < 0.8 else "\r\n"
    separator = some(SEPARATORS, rng)
    writer = csv.writer(stream, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerows([header, *lines])
    return stream.getvalue().encode()


def rows(rng):
    """Return rows of rounds and clients, with other columns."""
    pools = dict.fromkeys(("status", "JOB_STATE", "exit_code"), STATUSES)
    pools |= {"time": TIMES, "ts": TIMES, "event": ("train_reply", "eval_reply", "ok", "")}
    pools["weight"] = ("1", "0.5", "")
    few = {
        name: [some(pool, rng), some(pool, rng)]
        for name, pool in pools.items()
        if rng.random() < 0.3
    }
    lines = [
        (t, some(NAMES, rng), *(some(pool, rng) for pool in few.values()))
        for t in range(int(rng.integers(1, 8)))
        for _ in range(int(rng.integers(1, 4)))
    ]
    return table(("round", "client", *few), lines, rng), {}


def intervals(rng):
    """Return intervals of availability."""
    starts, n_lines = rng.integers(0, 9000, 12).tolist(), int(rng.integers(1, 12))
    low = -5 if rng.random() < 0.1 else 0
    lines = [
        (some(NAMES, rng), start, start + int(rng.integers(low, 4000)), some(("on", "off"), rng))
        for start in starts[:n_lines]
    ]
    width = 4 if rng.random() < 0.4 else 3
    options = {"period": 600} | ({"state": "on"} if width == 4 else {})
    head = ("client", "start", "end", "state")
    return table(head[:width], [line[:width] for line in lines], rng), options


def objects(rng):
    """Return JSON lines: of rows, of rounds with their clients, or of events."""
    items = []
    way, odd = int(rng.integers(7)), rng.random() < 0.3
    for t in range(int(rng.integers(1, 8))):
        names = list(dict.fromkeys(some(NAMES, rng) for _ in range(int(rng.integers(0, 4)))))
        status = some(STATUSES if odd else PLAIN_STATUSES, rng)
        time = some(TIMES if odd else PLAIN_TIMES, rng)
        own = {"format": "fedavot-participation", "version": 1, "round": t, "available": names}
        items += [
            [{"round": t, "client": name, "status": status} for name in names],
            [{"round": t, "clients": names, "time": time}],
            [{"round": t, "clients": [{"id": name, "status": status} for name in names]}],
            [{"round": t, "nodes": dict.fromkeys(names, status)}],
            [{"round": t, "client": name, "result": {"status": status}} for name in names],
            [{"event": "start", "round": t}]
            + [{"event": "train_reply", "round": t, "client": name} for name in names],
            [own | {"replied": names, "weights": dict.fromkeys(names, 0.5), "time": time}],
        ][way]
    events = {"where": {"event": "train_reply"}} if way == 5 and rng.random() < 0.8 else {}
    return "".join(f"{json.dumps(item)}\n" for item in items).encode(), events


def parquet(rng):
    """Return a Parquet file."""
    import polars as pl

    n_rows, odd = int(rng.integers(1, 9)), rng.random() < 0.3
    columns = {
        "round": rng.integers(5, size=n_rows).tolist(),
        "client": [some(NAMES, rng) for _ in range(n_rows)],
        "status": [some(STATUSES if odd else PLAIN_STATUSES, rng) for _ in range(n_rows)],
    }
    stream = io.BytesIO()
    pl.DataFrame(columns).write_parquet(stream)
    return stream.getvalue(), {}


def importance(rng):
    """Return importance by client."""
    odd = rng.random() < 0.2
    pool = (*PLAIN_AMOUNTS, "many", "", "1e308", "-1") if odd else PLAIN_AMOUNTS
    amounts = [(name, some(pool, rng)) for name in NAMES]
    head = some((("client", "importance"), ("site", "n_train"), ("client", "examples")), rng)
    if rng.random() < 0.2:
        return json.dumps(dict(amounts)).encode(), {}
    named = {"columns": {"importance": "n_train"}} if head[0] == "site" else {}
    return table(head, amounts, rng), named


def groups(rng):
    """Return the group of each client."""
    lines = [(name, some(("east", "west", "é"), rng)) for name in NAMES if rng.random() < 0.99]
    return table(("client", "group"), lines, rng), {}


FORMS = (rows, rows, intervals, objects, objects)
TABLES = {"importance": importance, "groups": groups}


def spoilt(data, rng):
    """Return the bytes after some changes, or as they are."""
    for _ in range(int(rng.integers(1, 4))):
        if data:
            data = some((_cells, _cells, _lines, _separators, _json, damaged), rng)(data, rng)
    if rng.random() < 0.05:
        data = gzip.compress(data, mtime=0)
        data = damaged(data, rng) if rng.random() < 0.5 else data
    return data


def _cells(data, rng):
    """Put odd text in the place of cells of CSV, and of columns' names."""
    lines, separator = data.decode("utf-8", "replace").split("\n"), some(SEPARATORS, rng)
    at = 0 if rng.random() < 0.3 else int(rng.integers(len(lines)))
    cells = lines[at].split(separator)
    pool = HEADERS if at == 0 else (*NAMES, *STATUSES, *TIMES, '"', "9" * 400, "\r")
    cells[int(rng.integers(len(cells)))] = some(pool, rng)
    lines[at] = separator.join(cells)
    return "\n".join(lines).encode("utf-8", "replace")


def _lines(data, rng):
    """Double, drop, move or join lines."""
    lines = data.split(b"\n")
    first, second = (int(place) for place in rng.integers(len(lines), size=2))
    way = int(rng.integers(5))
    if way == 0:
        del lines[first]
    elif way == 1:
        lines.insert(first, lines[second])
    elif way == 2:
        lines[first], lines[second] = lines[second], lines[first]
    elif way == 3:
        odd = (b"", b"   ", b"\xef\xbb\xbf", b"#", b"{}", b"[]", b'"', b"null")
        lines.insert(first, some(odd, rng))
    else:
        return b"\n".join(lines).rstrip(b"\n")
    return b"\n".join(lines)


def _separators(data, rng):
    old, new = (some(SEPARATORS + "\n\r\"'", rng).encode() for _ in range(2))
    return data.replace(old, new, int(rng.integers(1, 50)))


def _json(data, rng):
    """Change the value of one line that is JSON."""
    lines = data.split(b"\n")
    at = int(rng.integers(len(lines)))
    try:
        content = json.loads(lines[at])
    except ValueError:
        return data
    lines[at] = json.dumps(changed(content, rng)).encode("utf-8", "replace")
    return b"\n".join(lines)


def logs(folder):
    """Return the judge of logs, most of them by themselves."""
    return lambda seed, number: read(folder, *made(seed, number))


def made(seed, number):
    """Return an input by its number: the files' bytes, the options, and whether it is audited."""
    rng = np.random.default_rng([seed, number])
    form = parquet if rng.random() < PARQUET else some(FORMS, rng)
    log, options = form(rng)
    options |= {name: some(OPTIONS[name], rng) for name in OPTIONS if rng.random() < 0.02}
    if rng.random() < 0.6:
        log = (damaged if form is parquet else spoilt)(log, rng)
    files = {}
    for name, make in TABLES.items():
        if rng.random() < 0.2:
            data, named = make(rng)
            files[name] = spoilt(data, rng) if rng.random() < 0.5 else data
            options["columns"] = {**options.get("columns", {}), **named.get("columns", {})}
    return log, files, options, rng.random() < COMMAND


def tables(folder):
    """Return the judge of files with importance and groups, beside a log that is proper."""

    def judge(seed, number):
        rng = np.random.default_rng([seed, number])
        files, options = {}, {}
        for name, make in TABLES.items():
            if name == "importance" or rng.random() < 0.5:
                data, named = make(rng)
                files[name] = spoilt(data, rng) if rng.random() < 0.8 else data
                options |= named
        clients = [name for name in NAMES if rng.random() < 0.8] or ["a"]
        if rng.random() < 0.3:  # with the core alone
            data = files["importance"]
            ending = "json" if data.lstrip()[:1] == b"{" else "csv"
            path = folder / f"importance.{ending}"
            path.write_bytes(data)
            shares = fa.importance.from_mapping(fa.importance.read_mapping(path), clients)
            return "read" if _is_distribution(shares) else Fault("no distribution")
        lines = [(1, name) for name in clients]
        return read(folder, table(("round", "client"), lines, rng), files, options, False)

    return judge


def read(folder, log, files, options, everything):
    """Read one input; return "read" or "run", or a fault."""
    from fedavot.audit import federation_of, read_log

    path = folder / "log"
    path.write_bytes(log)
    paths = {name: folder / name for name in files}
    for name, data in files.items():
        paths[name].write_bytes(data)
    if everything:
        return commanded("audit", str(path), "--out", str(folder / "audit"))
    participation = read_log(path, **options)
    federation = federation_of(participation, **paths, columns=options.get("columns"))
    wrong = _wrong_log(participation) or _wrong_log(federation.participation)
    if not _is_distribution(federation.importance):
        wrong = "the importance is no distribution"
    return Fault(wrong) if wrong else "read"


def commanded(*arguments):
    """Run a command of the command line; return how it ended."""
    from click.testing import CliRunner

    from fedavot.cli import main

    done = CliRunner().invoke(main, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    # Status 1 says that a rule's run diverged, as a wild step makes it.
    words = {0: "run", 2: "refused"} | ({1: "run"} if arguments[0] == "simulate" else {})
    return words.get(done.exit_code, Fault(f"exit status {done.exit_code}"))


def _is_distribution(shares):
    return abs(shares.sum() - 1) <= SUM_SLACK and bool(np.all(shares >= 0))


def _wrong_log(log):
    """Return what is wrong with a log, "" if it is proper."""
    offsets, times = log.offsets, log.times
    amounts = [values for values in (log.applied, log.examples) if values is not None]
    proper = {
        "clients are not distinct names": len(set(log.clients)) == log.n_clients
        and all(log.clients),
        "rounds do not fit together": offsets[0] == 0 and offsets[-1] == log.members.size,
        "a cohort is not in order": all(map(_ascends, (log.cohorts, log.available, log.unknown))),
        "times are not finite": times is None
        or (times.size == log.n_rounds and bool(np.isfinite(times).all())),
        "weights do not belong to the entries": all(
            values.size == log.n_entries and np.all(values >= 0) for values in amounts
        ),
    }
    return next((words for words, right in proper.items() if not right), "")


def _ascends(sets):
    """Return whether every cohort is ascending, and of clients that there are."""
    if sets is None:
        return True
    lines = [sets.row(t) for t in range(sets.n_cohorts)]
    inside = [
        np.all(np.diff(row) > 0) and np.all((row >= 0) & (row < sets.n_clients)) for row in lines
    ]
    return all(inside) and np.all(np.diff(sets.offsets) >= 0)
