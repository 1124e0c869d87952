"""Logs as other systems write them: each form gives the log that its plain form gives."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta, timezone
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot._reading import SEPARATORS
from fedavot.audit import federation_of, read_log
from fedavot.audit.reading.columns import plain
from fedavot.audit.reading.files import blocks
from fedavot.errors import FedavotError, FileFormatError, Option, OptionError

NOON = datetime(2024, 5, 17, 12, tzinfo=UTC).timestamp()
MOST_STEPS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("forms")


def written(folder, content, name="log"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(*objects):
    return "".join(f"{json.dumps(item)}\n" for item in objects)


def cohorts(log):
    return [{log.clients[i] for i in log.cohort(t)} for t in range(log.n_rounds)]


def available(log):
    return [{log.clients[i] for i in log.available.row(t)} for t in range(log.n_rounds)]


def followed(read, **options):
    """Read by doing what refusals suggest first, and return what is read and the options."""
    for _ in range(MOST_STEPS):
        try:
            return read(**options), options
        except FedavotError as error:
            parts = error.args
        name, value = next((p.name, p.value) for p in parts if isinstance(p, Option) and p.value)
        options[name] = {**options.get(name, {}), **value} if isinstance(value, dict) else value
    raise AssertionError(f"still refused with {options}")


ROWS = [("1", "north clinic"), ("1", 'the "old" one'), ("2", "a,b;c|d\te")]


@pytest.mark.parametrize("separator", list(SEPARATORS))
@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize("header", [("round", "client"), ("alpha", "beta gamma")])
def test_any_separator_quotes_and_column_names_are_read(folder, separator, quoting, header):
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, quoting=quoting).writerows([header, *ROWS])
    path = written(folder, stream.getvalue())
    log, options = followed(lambda **options: read_log(path, **options))
    assert cohorts(log) == [{ROWS[0][1], ROWS[1][1]}, {ROWS[2][1]}]
    named = {} if header[0] == "round" else {"columns": {"round": "alpha", "client": "beta gamma"}}
    assert options == named


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.text("ab;, é\n", min_size=1).filter(str.strip)), min_size=1
    ),
    separator=st.sampled_from(list(SEPARATORS)),
    block=st.integers(5, 200),
)
def test_quoted_fields_are_read_alike_in_bulk_and_one_by_one(folder, rows, separator, block):
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("round", "client"), *rows])
    with mock.patch.object(blocks, "BLOCK", block):
        log = read_log(written(folder, stream.getvalue()))
    expected = {}
    for label, client in rows:
        expected.setdefault(label, set()).add(client)
    assert cohorts(log) == [expected[label] for label in sorted(expected)]


@pytest.mark.parametrize(
    ("header", "role"),
    [
        ("roundNumber,deviceId", "none"),
        ("ROUND,NODE", "none"),
        ("Server Round;site", "none"),
        ("round,meta.client_id", "none"),
        ("round,node,ts", "time"),
        ("round,node,created_at", "time"),
        ("round,node,JOB_STATE", "status"),
        ("round,node,taskStatus", "status"),
        ("round,node,num-examples", "examples"),
    ],
)
def test_usual_names_are_recognised_however_they_are_spelt(folder, header, role):
    value = {"none": "", "time": ",5", "status": ",COMPLETED", "examples": ",7"}[role]
    row = f"1,a{value}".replace(",", ";" if ";" in header else ",")
    log = read_log(written(folder, f"{header}\n{row}\n"))
    assert cohorts(log) == [{"a"}]
    assert (log.times is not None) == (role == "time")
    assert (log.available is not None) == (role == "status")
    assert (log.examples is not None) == (role == "examples")


def test_names_are_compared_by_their_words():
    spelt = ["clientId", "CLIENT_ID", "Client Id", " client-id ", "client.id", "client__id"]
    assert {plain(name) for name in spelt} == {"client_id"}


@pytest.mark.parametrize(
    "form", ["round_{}", "r{}", "Round {}", "exp-2/r{:03d}", "{} of 10", "run 7, round {} (lab)"]
)
def test_rounds_numbered_within_the_same_text_are_in_the_order_of_the_numbers(folder, form):
    numbers = [10, 2, 1, 11]
    rows = "".join(f'"{form.format(number)}",c{number}\n' for number in numbers)
    log = read_log(written(folder, f"round,client\n{rows}"))
    assert cohorts(log) == [{f"c{number}"} for number in sorted(numbers)]
    assert any("7 round numbers between 1 and 11" in note for note in log.notes)


@pytest.mark.parametrize(
    "labels", [("warm-up", "r2", "r1"), ("b10", "a2"), ("r1.5", "r1"), ("r2a", "r1b")]
)
def test_other_rounds_are_in_order_of_first_appearance_and_that_is_noted(folder, labels):
    rows = "".join(f"{label},c{place}\n" for place, label in enumerate(labels))
    log = read_log(written(folder, f"round,client\n{rows}"))
    assert cohorts(log) == [{f"c{place}"} for place in range(len(labels))]
    assert any("order in which they first appear" in note for note in log.notes)


CODED = "round,client,{}\n1,a,0\n1,b,1\n2,a,0\n"


@pytest.mark.parametrize("name", ["status", "result", "outcome", "failed"])
def test_codes_are_never_guessed_and_both_readings_are_shown(folder, name):
    path = written(folder, CODED.format(name))
    with pytest.raises(FileFormatError, match=r"'0' does, 2 of 3 rows.*'1' does, 1 of 3") as found:
        read_log(path)
    first, second, _ = (part.value for part in found.value.args if isinstance(part, Option))
    assert cohorts(read_log(path, statuses=first)) == [{"a"}, {"a"}]
    assert cohorts(read_log(path, statuses=second)) == [{"b"}, set()]
    assert available(read_log(path, statuses=first)) == [{"a", "b"}, {"a"}]


@pytest.mark.parametrize(
    ("name", "first"), [("exit_code", {"a"}), ("returnCode", {"a"}), ("success", {"b"})]
)
def test_a_columns_name_may_say_what_its_codes_mean(folder, name, first):
    log = read_log(written(folder, CODED.format(name)))
    assert cohorts(log)[0] == first
    assert any("'0' (2 rows)" in note and "'1' (1 row)" in note for note in log.notes)


@pytest.mark.parametrize(
    "words", [("true", "false"), ("yes", "no"), ("True", "FALSE"), ("t", "f"), ("Y", "N")]
)
def test_flags_are_read_unless_the_column_speaks_of_failure(folder, words):
    content = CODED.replace("0", words[0]).replace(",1\n", f",{words[1]}\n")
    assert cohorts(read_log(written(folder, content.format("status")))) == [{"a"}, {"a"}]
    path = written(folder, content.format("dropped"))
    with pytest.raises(FileFormatError, match=f"'dropped' has '{words[0]}'"):
        read_log(path)
    log = read_log(path, statuses={words[1]: "ok"})
    assert cohorts(log) == [{"b"}, set()]


@pytest.mark.parametrize("others", [("R",), ("CD", "TO"), ("Y",)])
def test_letters_among_other_words_are_asked_for(folder, others):
    rows = "".join(f"1,c{word},{word}\n" for word in ("T", "F", *others))
    with pytest.raises(FileFormatError, match="'status' has 'T'.*not certain"):
        read_log(written(folder, f"round,client,status\n{rows}"))


@pytest.mark.parametrize(
    ("word", "took_part"),
    [
        ("SUCCESS", True),
        ("TaskStatus.COMPLETED", True),
        ("Took Part", True),
        ("TIMED_OUT", False),
        ("Timed out", False),
        ("ConnectionResetError", False),
        ("error: out of memory", False),
        ("FAILED (exit 3)", False),
    ],
)
def test_words_are_read_in_any_spelling(folder, word, took_part):
    log = read_log(written(folder, f"round,client,status\n1,a,ok\n1,b,{word}\n"))
    assert cohorts(log) == [{"a", "b"} if took_part else {"a"}]
    assert available(log) == [{"a", "b"}]


def test_a_word_that_is_not_known_is_asked_for(folder):
    path = written(folder, "round,client,status\n1,a,ok\n1,b,gut\n2,c,mies\n")
    with pytest.raises(FileFormatError, match=r"'gut' \(1 row\) and 'mies' \(1 row\)"):
        read_log(path)
    log = read_log(path, statuses={"gut": "ok", "mies": "offline"})
    assert (cohorts(log), available(log)) == ([{"a", "b"}, set()], [{"a", "b"}, set()])
    log = read_log(path, statuses={"*": "unknown"})
    assert cohorts(log) == [{"a"}, set()]
    assert log.unknown.members.tolist() == [1, 2]
    with pytest.raises(OptionError, match="'good' for 'gut'"):
        read_log(path, statuses={"gut": "good"})


@pytest.mark.parametrize(
    "time",
    [
        *("2024-05-17T12:00:00Z", "2024-05-17 12:00:00 UTC", "2024-05-17 12:00 GMT"),
        *("2024-05-17T14:00:00+02:00", "2024-05-17 14:00:00 +0200", "2024-05-17T06:00-06"),
        *("2024-05-17T14:00:00+02:00[Europe/Berlin]", "2024-05-17 14:00 Europe/Berlin"),
        *("2024-05-17T12:00:00.000000000Z", "2024-05-17T12:00:00,000Z", "2024/05/17 12:00:00Z"),
        *("Fri, 17 May 2024 12:00:00 GMT", "17/May/2024:12:00:00 +0000"),
        "Fri May 17 12:00:00 UTC 2024",
    ],
)
def test_times_with_a_zone_are_read_in_any_form(folder, time):
    path = written(folder, f"round;client;ts\n1;a;{time}\n")
    log = read_log(path)
    assert log.times.tolist() == [NOON]
    assert log.notes == ()


@pytest.mark.parametrize(
    "time",
    [
        *("2024-05-17 12:00", "2024/5/17 12:00:00", "17.05.2024 12:00", "17.5.2024, 12:00:00.0"),
        *("17/05/2024 12:00", "05/17/2024 12:00:00 PM", "17-05-2024 12.00", "20240517120000"),
        *("202405171200", "17 May 2024 12:00:00", "May 17, 2024 12:00:00"),
    ],
)
def test_times_without_a_zone_are_in_utc_and_that_is_noted(folder, time):
    log = read_log(written(folder, f"round;client;ts\n1;a;{time}\n"))
    assert log.times.tolist() == [NOON]
    assert any("taken to be in UTC" in note for note in log.notes)


@pytest.mark.parametrize(
    ("factor", "unit"), [(1, ""), (10**3, "milli"), (10**6, "micro"), (10**9, "nano")]
)
def test_epochs_from_seconds_to_nanoseconds_are_told_by_their_size(folder, factor, unit):
    log = read_log(written(folder, f"round,client,ts\n1,a,{int(NOON) * factor}\n"))
    assert log.times.tolist() == [NOON]
    assert [unit in note for note in log.notes] == [True] * bool(unit)


@given(
    moment=st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1)),
    minutes=st.integers(-14 * 60, 14 * 60),
    form=st.sampled_from(
        ["%Y-%m-%dT%H:%M:%S.%f%z", "%Y/%m/%d %H:%M:%S.%f %z", "%d.%m.%Y %H:%M:%S,%f%z"]
    ),
)
def test_any_moment_with_an_offset_comes_through_any_form(folder, moment, minutes, form):
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    log = read_log(written(folder, f"round;client;time\n1;a;{zoned.strftime(form)}\n"))
    assert log.times.tolist() == [zoned.timestamp()]


def test_a_day_and_a_month_in_either_order_are_told_by_other_dates_or_asked_for(folder):
    head = "round,client,date\n1,a,03/04/2024\n"
    path = written(folder, head)
    with pytest.raises(FileFormatError, match="3 April 2024 or 4 March 2024"):
        read_log(path)
    first = datetime(2024, 4, 3, tzinfo=UTC).timestamp()
    assert read_log(path, dates="day-first").times.tolist() == [first]
    second = datetime(2024, 3, 4, tzinfo=UTC).timestamp()
    assert read_log(path, dates="month-first").times.tolist() == [second]
    assert read_log(written(folder, head + "2,a,13/04/2024\n")).times[0] == first
    assert read_log(written(folder, head + "2,a,04/13/2024\n")).times[0] == second
    with pytest.raises(FileFormatError, match="line 4: date is '13/04/2024'|line 4: time is"):
        read_log(written(folder, head + "2,a,04/13/2024\n3,a,13/04/2024\n"))
    with pytest.raises(OptionError, match="'first'"):
        read_log(path, dates="first")


@pytest.mark.parametrize(
    "time", ["2024-05-17 12:00 Mars/Phobos", "32.01.2024", "5/17/24 12:00", "13:00 PM 1/1/2024"]
)
def test_what_is_no_time_is_refused_by_line(folder, time):
    with pytest.raises(FileFormatError, match="line 2: time is"):
        read_log(written(folder, f"round;client;ts\n1;a;{time}\n"))


PER_ROUND = {
    "lists": [{"round": 1, "clients": ["a", "b"]}, {"round": 2, "clients": []}],
    "objects": [
        {"round": 1, "participants": [{"id": "a"}, {"id": "b", "loss": 3}]},
        {"round": 2, "participants": []},
    ],
    "keys": [{"round": 1, "clients": {"a": "ok", "b": "ok"}}, {"round": 2, "clients": {}}],
    "nested": [
        {"round": 1, "info": {"clients": {"a": {"status": "ok"}, "b": {"status": "ok"}}}},
        {"round": 2, "info": {"clients": {}}},
    ],
}


@pytest.mark.parametrize("form", PER_ROUND)
def test_one_line_per_round_has_its_clients_and_a_round_may_have_none(folder, form):
    log = read_log(written(folder, lines(*PER_ROUND[form])))
    assert cohorts(log) == [{"a", "b"}, set()]


STATUSES = {
    "lists": {"round": 1, "clients": ["a", "b"], "status": ["ok", "failed"]},
    "objects": {
        "round": 1,
        "clients": [{"id": "a", "status": "ok"}, {"id": "b", "status": "late"}],
    },
    "keys": {"round": 1, "clients": {"a": "ok", "b": "failed"}},
    "nested": {
        "round": 1,
        "nodes": {"a": {"result": {"status": "ok"}}, "b": {"result": {"status": "late"}}},
    },
}


@pytest.mark.parametrize("form", STATUSES)
def test_clients_of_one_line_may_have_statuses(folder, form):
    log = read_log(written(folder, lines(STATUSES[form])))
    assert (cohorts(log), available(log)) == ([{"a"}], [{"a", "b"}])


def test_numbers_of_examples_go_along_with_the_clients_of_a_line(folder):
    row = {"round": 1, "clients": {"b": {"num_examples": 30}, "a": {"num_examples": 10}}}
    log = read_log(written(folder, lines(row)))
    assert dict(zip(log.clients, log.examples, strict=True)) == {"a": 10, "b": 30}


def test_of_several_lists_the_one_of_the_clients_is_asked_for(folder):
    path = written(folder, lines({"round": 1, "clients": ["a", "b"], "completed": ["a"]}))
    with pytest.raises(FileFormatError, match="'clients' and 'completed' are all lists"):
        read_log(path)
    log, options = followed(lambda **options: read_log(path, **options))
    assert options == {"columns": {"client": "completed"}}
    assert cohorts(log) == [{"a"}]
    assert cohorts(read_log(path, columns={"client": "clients"})) == [{"a", "b"}]


@pytest.mark.parametrize(
    "cell", ["a;b", "a|b", '"a,b"', "\"['a', 'b']\"", '"[""a"", ""b""]"', "a; b"]
)
def test_a_cell_of_csv_may_list_the_clients_of_a_round(folder, cell):
    log = read_log(written(folder, f"round,clients\n1,{cell}\n2,\n3,c\n"))
    assert cohorts(log) == [{"a", "b"}, set(), {"c"}]


def test_a_nested_status_is_read(folder):
    rows = [
        {"round": 1, "client": c, "result": {"status": s}} for c, s in (("a", "ok"), ("b", "late"))
    ]
    assert cohorts(read_log(written(folder, lines(*rows)))) == [{"a"}]


def test_two_nested_columns_of_one_name_are_asked_for(folder):
    row = {"round": 1, "client": "a", "fit": {"status": "ok"}, "eval": {"status": "failed"}}
    path = written(folder, lines(row))
    with pytest.raises(FileFormatError, match=r"'fit.status' and 'eval.status'"):
        read_log(path)
    assert cohorts(followed(lambda **options: read_log(path, **options))[0]) == [{"a"}]


EVENTS = [
    {"event": "round_start", "round": 1, "sampled": 2},
    {"event": "train_reply", "round": 1, "client": "a", "ok": True},
    {"event": "eval_reply", "round": 1, "client": "b", "ok": True},
    {"event": "train_reply", "round": 2, "client": "c", "ok": True},
]


def test_mixed_events_are_read_by_those_that_matter(folder):
    path = written(folder, lines(*EVENTS))
    log, options = followed(lambda **options: read_log(path, **options))
    assert options == {"where": {"event": "train_reply"}}
    assert cohorts(log) == [{"a"}, {"c"}]
    both = read_log(path, where={"event": ["train_reply", "eval_reply"]})
    assert cohorts(both) == [{"a", "b"}, {"c"}]
    assert any("3 of 4 rows" in note for note in both.notes)


def test_events_that_all_have_clients_are_not_all_taken_for_replies(folder):
    path = written(folder, "round,client,event\n1,a,train_reply\n1,b,eval_reply\n")
    with pytest.raises(OptionError, match=r"'train_reply' \(1 row\) and 'eval_reply' \(1 row\)"):
        read_log(path)
    assert cohorts(read_log(path, where={"event": "train_reply"})) == [{"a"}]
    assert cohorts(read_log(path, columns={"event": ""})) == [{"a", "b"}]


def test_events_that_are_statuses_are_statuses(folder):
    rows = [(1, "a", "selected"), (1, "b", "selected"), (1, "a", "replied")]
    content = "".join(f"{t},{client},{event}\n" for t, client, event in rows)
    log = read_log(written(folder, f"round,client,event\n{content}"))
    assert (cohorts(log), available(log)) == ([{"a"}], [{"a", "b"}])


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_rows_are_chosen_in_files_of_every_kind(folder, kind):
    frame = pl.DataFrame(
        {"round": [1, 1, 2], "client": ["a", "b", "c"], "phase": ["fit", "eval", "fit"]}
    )
    path = folder / "chosen"
    if kind == "parquet":
        frame.write_parquet(path)
    elif kind == "json":
        frame.write_ndjson(path)
    else:
        frame.write_csv(path)
    assert cohorts(read_log(path, where={"phase": "fit"})) == [{"a"}, {"c"}]
    with pytest.raises(OptionError, match="no row has phase 'train'; phase is 'fit' and 'eval'"):
        read_log(path, where={"phase": "train"})
    with pytest.raises(FileFormatError, match="no column 'step'"):
        read_log(path, where={"step": "fit"})
    with pytest.raises(OptionError, match="where has 'phase'"):
        read_log(path, where={"phase": 3})


def test_weights_and_examples_of_a_log_are_kept_with_their_clients(folder):
    content = "round,client,weight,num_examples\n2,b,1,30\n1,b,0.75,30\n1,a,0.25,10\n"
    log = read_log(written(folder, content))
    assert log.applied.tolist() == [0.25, 0.75, 1.0]
    assert log.examples.tolist() == [10, 30, 30]
    relative = read_log(written(folder, content.replace("0.75", "3").replace("0.25", "1")))
    np.testing.assert_allclose(relative.applied, log.applied)
    gaps = read_log(written(folder, content.replace(",10\n", ",\n")))
    assert gaps.examples is None
    assert any("'num_examples'" in note for note in gaps.notes)


AMOUNTS = [("a", "3", "east"), ("b", "1", "west")]


@pytest.mark.parametrize("separator", list(SEPARATORS))
@pytest.mark.parametrize(
    "header", [("client", "importance", "group"), ("site", "n_train", "region")]
)
def test_importance_is_read_with_any_separator_and_column_names(folder, separator, header):
    log = read_log(written(folder, "round,client\n1,a\n1,b\n"))
    rows = "".join(f"{separator.join(row)}\n" for row in [header, *AMOUNTS])
    path = written(folder, rows, "importance")
    found, options = followed(lambda **options: federation_of(log, importance=path, **options))
    assert found.importance.tolist() == [0.75, 0.25]
    if header[0] == "site":
        assert options == {"columns": {"importance.importance": "n_train"}}
        options["columns"]["group"] = "region"
    found = federation_of(log, importance=path, **options)
    assert found.groups == ("east", "west")


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "csv"])
def test_tables_of_groups_and_shares_are_read_from_files_of_every_kind(folder, kind):
    log = read_log(written(folder, "round,client\n1,a\n1,b\n"))
    groups, shares = {"a": "east", "b": "west"}, {"east": 0.9, "west": 0.1}
    paths = []
    for name, (key, value), table in (
        ("groups", ("client", "group"), groups),
        ("targets", ("group", "share"), shares),
    ):
        path = folder / f"{name}.{kind}"
        frame = pl.DataFrame({key: list(table), value: list(table.values())})
        if kind == "json":
            path.write_text(json.dumps(table))
        elif kind == "jsonl":
            frame.write_ndjson(path)
        elif kind == "csv":
            frame.write_csv(path, separator="|")
        else:
            frame.write_parquet(path)
        paths.append(path)
    found = federation_of(log, groups=paths[0], targets=paths[1])
    assert found.importance.tolist() == pytest.approx([0.9, 0.1])


def test_names_of_columns_of_the_log_do_not_stand_in_the_way_of_other_files(folder):
    log = read_log(written(folder, "round,machine\n1,a\n"), columns={"client": "machine"})
    path = written(folder, "client;importance\na;1\n", "importance")
    columns = {"client": "machine"}
    assert federation_of(log, importance=path, columns=columns).importance.tolist() == [1.0]
    with pytest.raises(FileFormatError, match="no column 'who' for the client"):
        federation_of(log, importance=path, columns={"importance.client": "who"})


SUGGESTED = {
    "unknown columns": "x;y\n1;a\n",
    "codes": "round,client,status\n1,a,0\n1,b,3\n",
    "words": "round,client,status\n1,a,gut\n1,b,mies\n",
    "only failures": "round,client,status\n1,a,failed\n1,b,\n",
    "a flag of failure": "round,client,timed_out\n1,a,true\n1,b,false\n",
    "either date": "round,client,date\n1,a,01/02/2024\n",
    "events": lines(*EVENTS),
    "lists": lines({"round": 1, "selected": ["a", "b"], "completed": ["a"]}),
    "intervals": "client,start,end\na,0,900\n",
    "states": "client,start,end,state\na,0,900,on\nb,0,900,off\n",
    "twice": lines({"round": 1, "client": "a", "u": {"status": "ok"}, "v": {"status": "ok"}}),
    "too many rounds": "client,start,end\na,0,90000000000\n",
}


@pytest.mark.parametrize("form", SUGGESTED)
def test_what_a_refusal_suggests_works_when_it_is_done(folder, form):
    path = written(folder, SUGGESTED[form])
    options = {"period": 0.001} if form == "too many rounds" else {}
    with pytest.raises(FedavotError, match="log|period"):
        read_log(path, **options)
    log, options = followed(lambda **options: read_log(path, **options), **options)
    assert log.n_clients >= 1
    assert options


@pytest.mark.parametrize(
    ("column", "there", "away"),
    [
        ("f_status", "success", "failed"),
        ("state", "COMPLETED", "timed_out"),
        ("payload.ok", "true", "false"),
        ("completed", "1", "0"),
        ("reply.success", "True", "False"),
    ],
)
def test_a_column_that_says_who_took_part_is_not_left_unread(folder, column, there, away):
    text = f"round,client,{column}\n1,a,{there}\n1,b,{away}\n2,b,{there}\n"
    log = read_log(written(folder, text))
    assert cohorts(log) == [{"a"}, {"b"}]
    assert cohorts(read_log(folder / "log", columns={"status": ""})) == [{"a", "b"}, {"b"}]


def test_codes_that_are_not_certain_are_asked_for_whatever_their_column_is_called(folder):
    path = written(folder, "round,client,reply_status\n1,a,200\n1,b,503\n2,b,200\n")
    with pytest.raises(FileFormatError, match="'reply_status' has '200'.*not certain"):
        read_log(path)
    log = read_log(path, statuses={"200": "ok", "503": "failed"})
    assert cohorts(log) == [{"a"}, {"b"}]


HTTP = "round,client,{}\n1,a,200\n1,b,202\n1,c,503\n1,d,\n"


@pytest.mark.parametrize("name", ["http_status", "reply.HTTP Code", "status_code", "response_code"])
@pytest.mark.parametrize("statuses", [{}, {"200": "ok"}])
def test_every_code_of_success_is_success_if_the_name_says_http(folder, name, statuses):
    log = read_log(written(folder, HTTP.format(name)), statuses=statuses)
    assert (cohorts(log), available(log)) == ([{"a", "b"}], [{"a", "b", "c"}])
    assert cohorts(read_log(folder / "log", statuses={"202": "failed"})) == [{"a"}]


def test_a_name_says_http_wherever_it_is_nested_and_codes_may_be_decimals(folder):
    path = written(
        folder,
        lines(
            {"round": 1, "client": "a", "http": {"status": 200}},
            {"round": 1, "client": "b", "http": {"status": 503}},
        ),
    )
    assert cohorts(read_log(path)) == [{"a"}]
    path = written(folder, "round,client,http_status\n1,a,200.0\n1,b,503.0\n")
    assert cohorts(read_log(path)) == [{"a"}]


@pytest.mark.parametrize(
    "labels", [["0.5s", "0.25s", "0.125s"], ["v1.5", "v1.25"], ["round-1", "round 2", "round-10"]]
)
def test_labels_that_differ_in_more_than_a_whole_number_stay_in_order(folder, labels):
    rows = "".join(f"{label},c{at}\n" for at, label in enumerate(labels))
    log = read_log(written(folder, f"round,client\n{rows}"))
    assert cohorts(log) == [{f"c{at}"} for at in range(len(labels))]
    assert any("in which they first appear" in note for note in log.notes)


def test_a_null_among_the_clients_of_a_line_is_refused(folder):
    with pytest.raises(FileFormatError, match="line 2: no client, which is what 'nan' means"):
        read_log(written(folder, "round,clients\n1,a;nan;b\n"))
    log = read_log(written(folder, "round,clients\n1,a;b\n2,NULL\n"))
    assert cohorts(log) == [{"a", "b"}, set()]


def test_codes_that_fail_because_another_means_success_are_counted_in_a_note(folder):
    log = read_log(written(folder, HTTP.format("status")), statuses={"200": "ok"})
    assert cohorts(log) == [{"a"}]
    (note,) = [note for note in log.notes if note.startswith("status")]
    _, failed, _ = note.split(";")
    assert "'202' (1 row) and '503' (1 row)" in failed


@pytest.mark.parametrize("codes", [("0", "200"), ("7", "100"), ("200", "2000")])
def test_a_status_code_that_may_be_no_http_is_asked_for(folder, codes):
    rows = "".join(f"1,c{code},{code}\n" for code in codes)
    with pytest.raises(FileFormatError, match="'status_code' has .*not certain"):
        read_log(written(folder, f"round,client,status_code\n{rows}"))


@pytest.mark.parametrize("null", ["\\N", "NULL", "None", "NaN", "n/a", ""])
@pytest.mark.parametrize("separator", [",", "\t"])
def test_nulls_of_databases_are_missing_values(folder, null, separator):
    def path(*rows, header="round,client,status,weight,num_examples"):
        text = "".join(f"{row}\n" for row in (header, *rows)).replace(",", separator)
        return written(folder, text)

    log = read_log(path("1,a,ok,1,5", f"1,b,{null},{null},{null}", f"2,a,ok,1,{null}"))
    assert (cohorts(log), available(log)) == ([{"a"}, {"a"}], [{"a"}, {"a"}])
    assert log.unknown.members.tolist() == [1]
    assert (log.applied.tolist(), log.examples) == ([1, 1], None)
    with pytest.raises(FileFormatError, match="line 3: no client"):
        read_log(path("1,a,ok,1,5", f"1,{null},ok,1,5"))
    with pytest.raises(FileFormatError, match="line 2: no round"):
        read_log(path(f" {null},a,ok,1,5"))
    with pytest.raises(FileFormatError, match="line 2: time is"):
        read_log(path(f"1,a,{null}", header="round,client,time"))
    assert cohorts(read_log(path("1,a", f"2,{null}", header="round,clients"))) == [{"a"}, set()]


def test_of_several_columns_that_may_say_who_took_part_one_is_asked_for(folder):
    path = written(folder, "round,client,net_state,app_state\n1,a,ok,ok\n1,b,ok,failed\n")
    with pytest.raises(FileFormatError, match="'net_state' and 'app_state' may each say"):
        read_log(path)
    assert cohorts(read_log(path, columns={"status": "app_state"})) == [{"a"}]


@pytest.mark.parametrize("column", ["clients", "who", "selected_clients"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("written_as", ["[{}]", "[{}] "], ids=["list", "padded"])
@pytest.mark.parametrize("separator", [", ", "; ", " ", ","])
def test_lists_in_brackets_are_lists_in_any_column(folder, column, kind, written_as, separator):
    rows = [(1, ["a", "b"]), (2, ["b"]), (3, ["a", "c", "d"])]
    cells = [written_as.format(separator.join(names)) for _, names in rows]
    frame = pl.DataFrame({"round": [number for number, _ in rows], column: cells})
    path = folder / f"lists.{kind}"
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    log = read_log(path, columns={"client": column})
    assert cohorts(log) == [set(names) for _, names in rows]


def test_runs_that_may_have_been_merged_are_named(folder):
    rows = [f"{run},{number},a" for run in "xy" for number in (1, 2)]
    path = written(folder, "\n".join(["run_id,round,client", *rows]) + "\n")
    (note,) = [it for it in read_log(path).notes if "repeat" in it]
    assert "'run_id'" in note
    assert not [it for it in read_log(path, where={"run_id": "x"}).notes if "repeat" in it]


@pytest.mark.parametrize(
    ("header", "suggested"),
    [
        ("job,f_role,iteration_no,party_code", {"round": "iteration_no", "client": "party_code"}),
        ("ts,round,a,b", {"client": "NAME"}),
        ("id,fl_round_no,edge_device", {"round": "fl_round_no", "client": "edge_device"}),
    ],
)
def test_a_suggested_column_is_a_likely_one_or_none(folder, header, suggested):
    with pytest.raises(FileFormatError) as refused:
        read_log(written(folder, f"{header}\n{','.join('1' for _ in header.split(','))}\n"))
    (option,) = [part for part in refused.value.args if isinstance(part, Option)]
    assert option.value == suggested
