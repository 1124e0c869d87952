"""Logs and files of importance in every form that an audit reads, and ways to spoil them.

A form is a function of a random generator that returns bytes and the options to read them with;
most are proper. What is spoilt are cells, lines, separators, bytes and JSON values.
"""

import csv
import gzip
import io
import json

import polars as pl

from attacks import mutations

NAMES = (
    "a",
    "b",
    "north 7",
    "007",
    "é🐝",
    'q"u',
    "x,y;z",
    "=cmd",
    " a",
    "<b>",
    "NA",
    "12",
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
    *(
        "round",
        "client",
        "status",
        "time",
        "ts",
        "JOB_STATE",
        "clients",
        "event",
        "weight",
        "start",
    ),
    *("end", "state", "num_examples", "importance", "group", "share", "exit_code", "failed", "id"),
    *("", " ", "client", "a.b", "known_until", "x" * 300, "é"),
)
PLAIN = {
    "status": ("ok", "failed", "timeout", "offline", "unknown", "Completed"),
    "time": tuple(f"2024-05-01T12:0{minute}:00Z" for minute in range(10)),
    "amount": (1, 3, 0.5, "2.5", 7),
}
"""What most logs have in their columns, so that most of them are read."""
OPTIONS = {
    "columns": (
        *(
            {"client": "node"},
            {"status": ""},
            {"event": ""},
            {"round": "nope"},
            {"client": "clients"},
        ),
        *({"status": "failed"}, {"importance.client": "site"}, {"bad": "x"}, {"time": ""}),
    ),
    "where": ({"event": "train_reply"}, {"event": ["a", "b"]}, {"nope": "x"}, {"round": "1"}, {}),
    "statuses": (
        {"0": "ok"},
        {"*": "failed"},
        {"gut": "ok"},
        {"1": "bad"},
        {"": "ok", "*": "unknown"},
    ),
    "dates": ("day-first", "month-first", "year"),
    "period": (600, 1, 1e9, 0, 1e-9),
    "state": ("on", "nope"),
    "cohort_size": (1, 3),
}
SEPARATORS = ",;\t| "


def some(values, rng):
    """Return one of the values."""
    return values[int(rng.integers(len(values)))]


def table(header, rows, rng):
    """Return CSV, with any separator and quotes."""
    stream = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if rng.random() < 0.4 else csv.QUOTE_MINIMAL
    end = "\n" if rng.random() < 0.8 else "\r\n"
    separator = some(SEPARATORS, rng)
    writer = csv.writer(stream, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerows([header, *rows])
    return stream.getvalue().encode()


def rows(rng):
    """Return rows of rounds and clients, with other columns."""
    pools = {
        **{"status": STATUSES, "JOB_STATE": STATUSES, "exit_code": STATUSES, "time": TIMES},
        **{
            "ts": TIMES,
            "event": ("train_reply", "eval_reply", "ok", ""),
            "weight": ("1", "0.5", ""),
        },
    }
    more = [name for name in pools if rng.random() < 0.3]
    few = {name: [some(pools[name], rng) for _ in range(2)] for name in more}
    found = [
        (t, some(NAMES, rng), *(some(few[name], rng) for name in more))
        for t in range(int(rng.integers(1, 8)))
        for _ in range(int(rng.integers(1, 4)))
    ]
    return table(("round", "client", *more), found, rng), {}


def intervals(rng):
    """Return intervals of availability."""
    found = []
    for _ in range(int(rng.integers(1, 12))):
        start = int(rng.integers(0, 9000))
        length = int(rng.integers(-5, 4000)) if rng.random() < 0.05 else int(rng.integers(0, 4000))
        found.append((some(NAMES, rng), start, start + length, some(("on", "off"), rng)))
    width = 4 if rng.random() < 0.4 else 3
    options = {"period": 600} | ({"state": "on"} if width == 4 else {})
    head = ("client", "start", "end", "state")
    return table(head[:width], [row[:width] for row in found], rng), options


def objects(rng):
    """Return JSON lines: of rows, of rounds with their clients, or of events."""
    found = []
    way, odd = int(rng.integers(6)), rng.random() < 0.3
    for t in range(int(rng.integers(1, 8))):
        names = list(dict.fromkeys(some(NAMES, rng) for _ in range(int(rng.integers(0, 4)))))
        status = some(STATUSES if odd else PLAIN["status"], rng)
        found += [
            [{"round": t, "client": name, "status": status} for name in names],
            [{"round": t, "clients": names, "time": some(TIMES if odd else PLAIN["time"], rng)}],
            [{"round": t, "clients": [{"id": name, "status": status} for name in names]}],
            [{"round": t, "nodes": dict.fromkeys(names, status)}],
            [{"round": t, "client": name, "result": {"status": status}} for name in names],
            [{"event": "start", "round": t}]
            + [{"event": "train_reply", "round": t, "client": name} for name in names],
        ][way]
    events = {"where": {"event": "train_reply"}} if way == 5 and rng.random() < 0.8 else {}
    return "".join(f"{json.dumps(item)}\n" for item in found).encode(), events


def flower(rng):
    """Return the log of the Flower strategy."""
    found = []
    for t in range(int(rng.integers(1, 5))):
        names = list(dict.fromkeys(some(NAMES, rng) for _ in range(3)))
        line = {"format": "fedavot-participation", "version": 1, "round": t, "available": names}
        line |= {"replied": names, "weights": dict.fromkeys(names, 0.5), "time": some(TIMES, rng)}
        found.append(json.dumps(line))
    return "\n".join(found).encode() + b"\n", {}


def parquet(rng):
    """Return a Parquet file."""
    n_rows, odd = int(rng.integers(1, 9)), rng.random() < 0.3
    columns = {
        "round": [int(rng.integers(5)) for _ in range(n_rows)],
        "client": [some(NAMES, rng) for _ in range(n_rows)],
        "status": [some(STATUSES if odd else PLAIN["status"], rng) for _ in range(n_rows)],
    }
    stream = io.BytesIO()
    pl.DataFrame(columns).write_parquet(stream)
    return stream.getvalue(), {}


def importance(rng):
    """Return importance by client."""
    pool = (*PLAIN["amount"], "many", "", "1e308", "-1") if rng.random() < 0.2 else PLAIN["amount"]
    amounts = [(name, some(pool, rng)) for name in NAMES]
    head = some((("client", "importance"), ("site", "n_train"), ("client", "examples")), rng)
    if rng.random() < 0.2:
        return json.dumps(dict(amounts)).encode(), {}
    named = {"columns": {"importance": "n_train"}} if head[0] == "site" else {}
    return table(head, amounts, rng), named


def groups(rng):
    """Return the group of each client."""
    found = [(name, some(("east", "west", "é"), rng)) for name in NAMES if rng.random() < 0.99]
    return table(("client", "group"), found, rng), {}


LOGS = (rows, rows, intervals, objects, objects, flower)
TABLES = {"importance": importance, "groups": groups}


def spoilt(data, rng):
    """Return the bytes after some changes, or as they are."""
    for _ in range(int(rng.integers(1, 4))):
        if not data:
            break
        data = some((_cells, _lines, _bytes, _separators, _json, _cells), rng)(data, rng)
    if rng.random() < 0.05:
        data = gzip.compress(data, mtime=0)
        if rng.random() < 0.5:
            data = some((mutations.flipped, mutations.mangled), rng)(data, rng)
    return data


def options(rng):
    """Return options of `read_log`, most of which do not fit."""
    chosen = [name for name in OPTIONS if rng.random() < 0.02]
    return {name: some(OPTIONS[name], rng) for name in chosen}


def _bytes(data, rng):
    return some((mutations.flipped, mutations.mangled), rng)(data, rng)


def _cells(data, rng):
    """Put odd text in the place of cells of CSV, and of columns' names."""
    text = data.decode("utf-8", "replace")
    separator = some(SEPARATORS, rng)
    lines = text.split("\n")
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
        lines.insert(
            first, some((b"", b"   ", b"\xef\xbb\xbf", b"#", b"{}", b"[]", b'"', b"null"), rng)
        )
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
    changed = mutations.changed(content, rng)
    lines[at] = json.dumps(changed).encode("utf-8", "replace")
    return b"\n".join(lines)
