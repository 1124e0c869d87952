"""What clients should count: whom the log never names is added, whom it alone names is refused."""

import csv
import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavot.audit import Participation, read_log
from fedavot.audit.federation import NO_GROUP, federation_of
from fedavot.audit.reading.files.blocks import NULLS
from fedavot.audit.sample import truth, write_sample
from fedavot.errors import FedavotError, FileFormatError, ImportanceError, OptionError
from logs import compressed

ROUNDING = 1e-15


def log_of(*cohorts, clients=("a", "b", "c"), **more):
    """Return a log with these cohorts of client numbers."""
    return Participation(clients, *entries(cohorts), **more)


def entries(cohorts):
    offsets = np.concatenate(([0], np.cumsum([len(cohort) for cohort in cohorts])))
    members = np.array([i for cohort in cohorts for i in cohort], dtype=np.int32)
    return offsets.astype(np.int64), members


def named_cohorts(log):
    return [{log.clients[i] for i in log.cohort(t)} for t in range(log.n_rounds)]


def named_rows(log, sets):
    return [{log.clients[i] for i in sets.row(t)} for t in range(log.n_rounds)]


def saved(folder, content, name="table.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


LOG = log_of([0, 1], [2])


def by_name(federation):
    clients = federation.participation.clients
    return dict(zip(clients, federation.importance.tolist(), strict=True))


def group_by_name(federation):
    names = [federation.groups[at] for at in federation.group_of]
    return dict(zip(federation.participation.clients, names, strict=True))


def test_by_default_all_clients_of_the_log_count_alike():
    federation = federation_of(LOG)
    assert federation.participation is LOG
    assert by_name(federation) == dict.fromkeys("abc", 1 / 3)
    assert (federation.groups, federation.group_of) == ((), None)


@pytest.mark.parametrize("importance", [{"a": 3, "b": 1, "c": 0}, {"c": 0.0, "b": 7, "a": 21.0}])
def test_a_mapping_is_taken_by_name_and_on_any_scale(importance):
    assert by_name(federation_of(LOG, importance=importance)) == {"a": 0.75, "b": 0.25, "c": 0.0}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("i.csv", "client,importance\nb,1\na,3\nc,0\n"),
        ("i.csv", "client,examples,city\na,30,Rome\nb,10,Pisa\nc,0,Lodi\n"),
        ("i.json", '{"a": 3, "b": 1, "c": 0}'),
    ],
)
def test_an_importance_file_is_read_as_everywhere(tmp_path, name, content):
    federation = federation_of(LOG, importance=saved(tmp_path, content, name))
    assert by_name(federation) == {"a": 0.75, "b": 0.25, "c": 0.0}
    assert federation.groups == ()


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (("12.5%", "37.5 %", "50%"), (0.125, 0.375, 0.5)),
        (("12,5%", "37,5%", "50%"), (12.5, 37.5, 50)),
        (("1.234%", "2.5%", "3%"), (1.234, 2.5, 3)),
        (("1,234,567", "1,234", "12"), (1234567, 1234, 12)),
        (("1,234.5", "999", "1,000"), (1234.5, 999, 1000)),
        (("1.234,5", "999", "1.000"), (1234.5, 999, 1000)),
        (("1.234.567", "1.000", "5"), (1234567, 1000, 5)),
        (("1 234", "12 345 678", "5"), (1234, 12345678, 5)),
        (("1\u00a0234,5", "1\u202f234", "5"), (1234.5, 1234, 5)),
        (("1'234", "1\u2019234.5", "5"), (1234, 1234.5, 5)),
        (("1_234", "12", "5"), (1234, 12, 5)),
        (("0,25", "0,250", ",5"), (0.25, 0.25, 0.5)),
        (("1,234", "0,5", "2"), (1.234, 0.5, 2)),
        (("2,5e3", "1,0", "1"), (2500, 1, 1)),
    ],
)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_numbers_are_read_as_people_write_them(tmp_path, numbers, expected, separator):
    with (tmp_path / "i.csv").open("w", encoding="utf-8", newline="") as stream:
        rows = zip("abc", numbers, strict=True)
        csv.writer(stream, delimiter=separator).writerows([("client", "importance"), *rows])
    found = by_name(federation_of(LOG, importance=tmp_path / "i.csv"))
    shares = np.array(expected) / sum(expected)
    assert found == pytest.approx(dict(zip("abc", shares.tolist(), strict=True)))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (("1,234", "5,678", "9"), r"line 2: .*'a' is '1,234'.*1234 or 1\.234"),
        (("7", "1,234", "1.234"), r"line 3: .*'b' is '1,234'.*1234 or 1\.234"),
        (("1.5", "2", "2,5"), r"line 4: .*'c' is '2,5'.*as in '1\.5'"),
        (("50%", "25%", "25"), r"line 4: .*'c' is '25'.*as in '50%'"),
        (("1,5", "many", "2"), r"line 3: .*'b' is 'many'; it must be a finite"),
        (("1,5", "-1,5", "2"), r"line 3: .*'b' is '-1,5'; it must be a finite"),
        (("12,34,567", "1", "2"), r"line 2: .*'a' is '12,34,567'"),
        (("1 2", "1", "2"), r"line 2: .*'a' is '1 2'"),
    ],
)
def test_numbers_that_may_mean_two_things_are_refused(tmp_path, numbers, words):
    rows = "".join(f"{name};{number}\n" for name, number in zip("abc", numbers, strict=True))
    path = saved(tmp_path, f"client;importance\n{rows}")
    with pytest.raises(ImportanceError, match=words):
        federation_of(LOG, importance=path)


@pytest.mark.parametrize("name", ["Total", "SUM", "all", "Grand total"])
@pytest.mark.parametrize("amount", ["10", "10.04"])
def test_a_row_with_the_sum_of_the_others_is_no_client(tmp_path, name, amount):
    path = saved(tmp_path, f"client,importance\na,5\nb,3\nc,2\n{name},{amount}\n")
    with pytest.raises(ImportanceError, match=f"line 5: '{name}' has {amount}.*sum to 10.*remove"):
        federation_of(LOG, importance=path)
    path = saved(tmp_path, f"client,importance\na,5\nb,3\n{name},8\n")
    known = federation_of(log_of([0, 1, 2], clients=("a", "b", name)), importance=path)
    assert by_name(known)[name] == 0.5


def test_two_rows_with_the_sum_of_the_others_do_not_hide_each_other(tmp_path):
    path = saved(tmp_path, "client,importance\na,1\nb,2\ntotal,3\nall,3\n")
    with pytest.raises(ImportanceError, match="'total' has 3, and the others sum to 3"):
        federation_of(LOG, importance=path)


def test_shares_that_sum_to_one_have_no_total(tmp_path):
    groups = {"a": "all", "b": "all", "c": "x"}
    found = federation_of(LOG, groups=groups, targets={"all": 0.5, "x": 0.5})
    assert by_name(found) == {"a": 0.25, "b": 0.25, "c": 0.5}


def test_a_group_that_is_a_null_is_no_group(tmp_path):
    path = saved(tmp_path, "client,importance,group\na,1,NULL\nb,1,x\nc,1,x\n")
    found = federation_of(LOG, importance=path)
    assert "NULL" not in found.groups
    path = saved(tmp_path, "client,group\na,x\nb,\\N\nc,x\n")
    with pytest.raises(FileFormatError, match="line 3: no group"):
        federation_of(LOG, groups=path)


def test_tables_that_accompany_a_log_are_single_files(tmp_path):
    with pytest.raises(FileFormatError, match="is a folder; give a table of importance as one"):
        federation_of(LOG, importance=tmp_path)


def test_numbers_and_text_may_stand_together_in_json(tmp_path):
    path = saved(tmp_path, '{"a": 5, "b": "1,000", "c": "2,000,000"}', "importance.json")
    found = by_name(federation_of(LOG, importance=path))
    assert found == pytest.approx({"a": 5 / 2_001_005, "b": 1000 / 2_001_005, "c": 2e6 / 2_001_005})


def test_a_client_called_all_with_an_importance_of_its_own_is_a_client():
    found = by_name(federation_of(LOG, importance={"a": 1, "b": 1, "c": 1, "All": 1}))
    assert found["All"] == 0.25


def test_a_long_text_that_is_no_number_is_refused_at_once(tmp_path):
    path = saved(tmp_path, f"client;importance\na;{'9' * 200_000}x\nb;1,5\nc;1\n")
    with pytest.raises(ImportanceError, match="importance of client 'a' is"):
        federation_of(LOG, importance=path)


def test_a_file_may_be_called_uniform_if_it_has_a_folder(tmp_path, monkeypatch):
    saved(tmp_path, "client,importance\na,1\nb,0\nc,0\n", "uniform")
    monkeypatch.chdir(tmp_path)
    assert by_name(federation_of(LOG, importance="./uniform"))["a"] == 1.0
    assert by_name(federation_of(LOG, importance="uniform"))["a"] == 1 / 3


def test_a_client_with_importance_that_never_appears_is_added_with_a_note():
    federation = federation_of(LOG, importance={"a": 1, "b": 1, "c": 1, "aa": 1})
    log = federation.participation
    assert log.clients == ("a", "aa", "b", "c")
    assert named_cohorts(log) == [{"a", "b"}, {"c"}]
    assert log.notes == ("1 client has importance but is not in the log: 'aa'",)
    np.testing.assert_array_equal(log.inclusion(), [0.5, 0.0, 0.5, 0.5])


@pytest.mark.parametrize("importance", ["uniform", {"a": 1, "b": 1, "c": 1}])
def test_weights_in_a_log_without_importance_have_a_note(importance):
    log = log_of([0, 1], [2], applied=np.array([0.3, 0.7, 1.0]))
    notes = federation_of(log, importance=importance).participation.notes
    assert ["no importance" in note for note in notes] == [True] * (importance == "uniform")
    assert federation_of(log_of([0, 1], [2])).participation.notes == ()


def test_many_added_clients_are_counted_and_the_first_named():
    more = {f"z{i}": 1.0 for i in range(9)}
    federation = federation_of(LOG, importance={"a": 1, "b": 1, "c": 1, **more})
    assert federation.participation.notes == (
        "9 clients have importance but are not in the log: 'z0', 'z1', 'z2', 'z3', 'z4' and 4 more",
    )


def test_a_client_without_importance_that_never_appears_is_left_out():
    federation = federation_of(LOG, importance={"a": 1, "b": 1, "c": 1, "d": 0})
    assert federation.participation is LOG


def everything_known():
    """Return a log over numbers, which other names put in another order: 10, 2, 9."""
    offsets, members = entries([[0, 1, 2], [], [1, 2]])
    return Participation(
        ("2", "9", "10"),
        offsets,
        members,
        times=np.array([0.0, 1.0, 2.0]),
        available=compressed([[0, 1, 2], [0], [1, 2]], 3),
        unknown=compressed([[], [1, 2], [0]], 3),
        applied=np.array([0.2, 0.9, 0.1, 0.09, 0.91]),
        notes=("odd",),
    )


def test_every_array_follows_the_clients_to_their_new_places():
    before = everything_known()
    after = federation_of(before, importance={"2": 1, "9": 1, "10": 1, "x": 1}).participation
    assert after.clients == ("10", "2", "9", "x")
    assert named_cohorts(after) == named_cohorts(before)
    assert named_rows(after, after.available) == named_rows(before, before.available)
    assert named_rows(after, after.unknown) == named_rows(before, before.unknown)
    assert after.applied.tolist() == [0.1, 0.2, 0.9, 0.91, 0.09]
    assert after.times.tolist() == [0.0, 1.0, 2.0]
    assert after.notes[0] == "odd"
    assert after.members.dtype == np.int32


@given(
    st.lists(st.sets(st.integers(0, 4)), min_size=1, max_size=5),
    st.sets(st.sampled_from(["0", "7", "-3", "10", "x", "é"]), min_size=1),
)
def test_a_wider_log_has_the_same_cohorts_each_ascending(cohorts, added):
    clients = ("1", "2", "5", "8", "11")
    before = log_of(*map(sorted, cohorts), clients=clients)
    federation = federation_of(before, importance=dict.fromkeys([*clients, *added], 1.0))
    after = federation.participation
    assert set(after.clients) == {*clients, *added}
    assert named_cohorts(after) == named_cohorts(before)
    for t in range(after.n_rounds):
        assert np.all(np.diff(after.cohort(t)) > 0)
    assert abs(federation.importance.sum() - 1) < ROUNDING


def test_clients_of_the_log_without_importance_are_refused_by_name_and_count():
    clients = tuple(f"c{i}" for i in range(9))
    log = log_of(range(9), clients=clients)
    message = (
        "8 clients are not in the mapping importance: 'c1', 'c2', 'c3', 'c4', 'c5' "
        r"and 3 more; add what is missing, or use unlisted=0"
    )
    with pytest.raises(ImportanceError, match=message):
        federation_of(log, importance={"c0": 1})


@pytest.mark.parametrize(
    ("listed", "hint"),
    [
        ({"A": 1, "b": 1, "c": 1}, r"it has 'A': .*'a'"),
        ({" a": 1, "b": 1, "c": 1}, r"it has ' a': .*'a'"),
        ({"x": 1, "y": 1}, r"it has 'x' and 'y' instead"),
        ({}, "'a', 'b' and 'c'; add"),
    ],
)
def test_the_refusal_tells_what_the_names_may_have_been_meant_for(listed, hint):
    with pytest.raises(ImportanceError, match=hint):
        federation_of(LOG, importance=listed)


def test_a_name_in_the_log_with_spaces_around_it_is_pointed_out():
    log = log_of([0, 1, 2], clients=("a", "a ", "B"))
    with pytest.raises(ImportanceError, match="'a ' is 'a' but for spaces: remove them"):
        federation_of(log, importance={"a": 1, "B": 1})
    log = log_of([0, 1], clients=("B ", "B"))
    with pytest.raises(ImportanceError, match="it has 'b': if that is 'B',"):
        federation_of(log, importance={"b": 1})


def test_a_name_with_a_missing_digit_is_pointed_out():
    log = log_of([0, 1], clients=("eu-clinic-001", "eu-clinic-002"))
    listed = {"eu-clinic-01": 1, "eu-clinic-002": 1}
    with pytest.raises(ImportanceError, match="it has 'eu-clinic-01'.* if it should not count"):
        federation_of(log, importance=listed)


def test_a_similar_name_that_is_in_the_log_itself_is_not_pointed_out():
    log = log_of([0, 1], clients=("eu-clinic-001", "eu-clinic-002"))
    with pytest.raises(ImportanceError, match="'eu-clinic-001'; add"):
        federation_of(log, importance={"eu-clinic-002": 1})


@pytest.mark.parametrize(
    ("unlisted", "expected"), [(0, [0.75, 0.25, 0.0]), (4, [3 / 8, 1 / 8, 0.5])]
)
def test_unlisted_is_on_the_scale_of_the_importance(unlisted, expected):
    federation = federation_of(LOG, importance={"a": 3, "b": 1}, unlisted=unlisted)
    np.testing.assert_allclose(federation.importance, expected, atol=ROUNDING)
    (note,) = federation.participation.notes
    assert "'c'" in note
    assert note.endswith(f" {unlisted}")


def test_groups_are_taken_from_the_importance_file(tmp_path):
    content = "client,importance,Group\na,1,east\nb,1,\nc,1,west\nd,1,east\ne,0,north\n"
    federation = federation_of(LOG, importance=saved(tmp_path, content))
    assert federation.groups == ("east", "west", NO_GROUP)
    assert group_by_name(federation) == {"a": "east", "b": NO_GROUP, "c": "west", "d": "east"}


def test_groups_given_go_before_those_of_the_importance_file(tmp_path):
    path = saved(tmp_path, "client,importance,group\na,1,east\nb,1,east\nc,1,west\n")
    federation = federation_of(LOG, importance=path, groups={"a": "g"})
    assert group_by_name(federation) == {"a": "g", "b": NO_GROUP, "c": NO_GROUP}


def test_groups_alone_count_everybody_alike_those_never_seen_too(tmp_path):
    path = saved(tmp_path, "client,group\nd,west\nb,east\na,west\n")
    federation = federation_of(LOG, groups=path)
    assert by_name(federation) == dict.fromkeys("abcd", 0.25)
    assert federation.groups == ("east", "west", NO_GROUP)
    assert group_by_name(federation) == {"a": "west", "b": "east", "c": NO_GROUP, "d": "west"}


def test_a_client_with_a_group_and_nothing_else_is_left_out_with_a_note():
    groups = {"a": "east", "z": "east", "y": "north"}
    federation = federation_of(LOG, importance={"a": 1, "b": 1, "c": 1}, groups=groups)
    assert federation.participation.clients == ("a", "b", "c")
    assert federation.groups == ("east", NO_GROUP)
    assert federation.participation.notes == (
        "2 clients have a group, but neither importance nor a row in the log: left out",
    )


def test_a_share_is_split_equally_among_a_groups_clients_seen_or_not():
    groups = {"a": "east", "b": "west", "c": "west", "d": "west", "e": "west"}
    federation = federation_of(LOG, groups=groups, targets={"west": 0.4, "east": 0.6})
    found = by_name(federation)
    assert found == pytest.approx({"a": 0.6, "b": 0.1, "c": 0.1, "d": 0.1, "e": 0.1})
    assert federation.groups == ("west", "east")


def test_targets_are_read_from_a_file(tmp_path):
    groups = saved(tmp_path, "client,group\na,east\nb,west\nc,west\n", "g.csv")
    for numbers in (("0.5", "5e-1", "0"), ("50%", "50.0 %", "0%"), ('"0,5"', '"0,50"', "0")):
        shares = "".join(map("{},{}\n".format, ("east", "west", "north"), numbers))
        targets = saved(tmp_path, f"group,share\n{shares}", "t.csv")
        federation = federation_of(LOG, groups=groups, targets=targets)
        assert by_name(federation) == {"a": 0.5, "b": 0.25, "c": 0.25}
        assert federation.groups == ("east", "west")


def test_with_targets_a_client_without_a_group_is_refused():
    with pytest.raises(ImportanceError, match="1 client is not in the mapping groups: 'c'"):
        federation_of(LOG, groups={"a": "g", "b": "g"}, targets={"g": 1})


def test_with_targets_unlisted_zero_takes_clients_without_a_group_and_groups_without_a_share():
    federation = federation_of(LOG, groups={"a": "g", "b": "h"}, targets={"g": 1}, unlisted=0)
    assert by_name(federation) == {"a": 1.0, "b": 0.0, "c": 0.0}
    assert federation.groups == ("g", "h", NO_GROUP)


def test_the_samples_files_say_the_same_in_two_ways(tmp_path):
    files = write_sample(tmp_path / "sample", days=1, n_clients=20)
    log = read_log(files.log)
    direct = federation_of(log, importance=files.importance)
    split = federation_of(log, groups=files.groups, targets=files.targets)
    facts = truth(n_clients=20, days=1)
    assert by_name(direct) == pytest.approx(dict(zip(facts.clients, facts.importance, strict=True)))
    assert by_name(split) == pytest.approx(by_name(direct))
    assert group_by_name(split) == group_by_name(direct)
    assert group_by_name(direct) == dict(zip(facts.clients, facts.groups, strict=True))


NAMES = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\r\x00"), min_size=1, max_size=8
).filter(lambda name: name.strip() not in NULLS)


@given(st.dictionaries(NAMES, NAMES, min_size=1, max_size=6))
def test_any_names_come_through_files_of_groups_and_shares(tmp_path_factory, groups):
    folder = tmp_path_factory.mktemp("names")
    shares = {group: 1 / len({*groups.values()}) for group in groups.values()}
    for name, head, rows in (
        ("g.csv", ["client", "group"], groups.items()),
        ("t.csv", ["group", "share"], shares.items()),
    ):
        with (folder / name).open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([head, *rows])
    log = log_of(range(len(groups)), clients=tuple(sorted(groups)))
    federation = federation_of(log, groups=folder / "g.csv", targets=folder / "t.csv")
    assert group_by_name(federation) == groups
    assert set(federation.groups) == {*groups.values()}


ODD = '<b>"x"</b>, 🐝'


def test_odd_names_are_the_logs_names(tmp_path):
    path = saved(tmp_path, '\ufeffclient,importance,group\n"<b>""x""</b>, 🐝",1,"e, ""w"""\n')
    federation = federation_of(log_of([0], clients=(ODD,)), importance=path)
    assert by_name(federation) == {ODD: 1.0}
    assert federation.groups == ('e, "w"',)


def test_half_a_surrogate_pair_is_spelt_as_in_a_log(tmp_path):
    log = read_log(saved(tmp_path, '{"round": 1, "client": "a\\ud800"}\n', "log.jsonl"))
    path = saved(tmp_path, '{"a\\ud800": 1}', "i.json")
    assert by_name(federation_of(log, importance=path)) == {"a\\ud800": 1.0}
    assert by_name(federation_of(log, importance={"a\ud800": 1}))


def test_a_compressed_table_of_groups_is_read(tmp_path):
    path = saved(tmp_path, gzip.compress(b"client,group\na,g\nb,g\nc,g\n"), "g.csv.gz")
    assert federation_of(LOG, groups=path).groups == ("g",)


HEAD = b"client,group\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r"table.csv is empty; a table of groups needs a header line and rows"),
        (b"\n\n", "table.csv is empty"),
        (HEAD, "has a header and no rows; add a line for each client"),
        (
            b"who,where\na,g\n",
            "columns are 'who' and 'where'; .* groups needs client and group: .*groups.client",
        ),
        (b"client,city\na,g\n", "columns={'groups.group': 'city'}"),
        (b"client,group,group\na,g,g\n", "2 columns are called 'group'; rename all but one"),
        (HEAD + b"a,g\nb,g,h\n", "line 3: 3 fields, but the header has 2"),
        (HEAD + b"a,g\nb\n", "line 3: 1 fields, but the header has 2"),
        (HEAD + b"a,g\n\nb,g\na,h\n", "line 5: client 'a' a second time, after line 2; keep one"),
        (HEAD + b"a,g\n ,g\n", "line 3: no client; fill it in, or remove the line"),
        (HEAD + b'"a\nb",g\nc,\n', "line 4: no group; fill it in, or remove the line"),
        (HEAD + b'a,g\nb,"g\n', "line 3: a quote is opened and not closed"),
        (HEAD + b'a,g\nb,"g"h\n', "line 3: ',' expected after '\"'"),
        (HEAD + b"a,g\nb,caf\xe9\n", "line 3: byte 0xe9 is not UTF-8; in Latin-1"),
        (HEAD + b"a,g\nb,caf\xc3", "line 3, the last, is cut off: dropped; write the file again"),
        ("client,group\na,g\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        (b"PK\x03\x04xxxx", "a zip archive or a spreadsheet; export the table as CSV"),
        (b"PAR1xxxxPAR1", "is damaged or not Parquet"),
        (b'{"a": ["g"]}', "'a' is a list"),
        (HEAD + b"a\0,g\n", "line 2: a NUL byte"),
        (gzip.compress(HEAD + b"a,g\n" * 9, mtime=0)[:-12], "cut off.*write the file again"),
    ],
)
def test_a_bad_table_of_groups_is_refused_with_its_line_and_a_remedy(tmp_path, content, words):
    with pytest.raises(FileFormatError, match=words):
        federation_of(LOG, groups=saved(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "group,share\ng,0.5\nh,half\n",
            "line 3: share of group 'h' is 'half'; it must be a finite",
        ),
        ("group,share\ng,1\nh,-0.5\n", "line 3: share of group 'h' is '-0.5'"),
        ("group,share\ng,nan\n", "line 2: share of group 'g' is 'nan'"),
        ("group,share\ng,50%\n", "shares of 1 group sum to 0.5, not 1"),
        ("group,share\ng,50%\nh,0.5\n", "line 3: share of group 'h' is '0.5'.*as in '50%'"),
        ('group,share\ng,"1,250"\nh,1\n', "line 2: share of group 'g' is '1,250'.*1250 or 1.25"),
        ("group,share\ng,\n", "line 2: share of group 'g' is ''"),
        ("group,share\ng,60\nh,40\n", "shares of 2 groups sum to 100, not 1; divide each"),
        ("group,share\ng,0.5\nh,0.5\ntotal,1\n", "line 4: 'total' has 1.*remove"),
        ("group,share\ng,1e308\nh,1e308\n", "sum to inf, not 1"),
        ("group,share\ng,0.9\n", "table.csv: the shares of 1 group sum to 0.9, not 1"),
        ("group,share\ng,0.5\ni,0.5\n", "has no share for 1 group: 'h'; it has 'g' and 'i'"),
        ("group,share\ng,0.5\nh,0.3\ni,0.2\n", "group 'i' has target share 0.2 and no clients"),
    ],
)
def test_bad_targets_are_refused_by_group(tmp_path, content, words):
    with pytest.raises(ImportanceError, match=words):
        federation_of(LOG, groups={"a": "g", "b": "h", "c": "g"}, targets=saved(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty; a table of importance needs a header line and rows"),
        (b"\n\n", "is empty; a table of importance needs a header line and rows"),
        (b"client,importance\n", "has a header and no rows"),
        (b"client;worth\na;1\n", "columns={'importance.importance': 'worth'}"),
        (b"client,importance\na,1\ncaf\xe9,1\n", "line 3: byte 0xe9 is not UTF-8"),
        (b'client,importance\n"a', "line 2, the last, is cut off"),
        (b"client,importance\na,0\n", "no client an importance above 0"),
        (b"client,importance\na,1\na,2\n", "line 3: client 'a' a second time, after line 2"),
        (b"PK\x03\x04xxxx", "a zip archive or a spreadsheet; export the table as CSV"),
        (b"PAR1xxxxPAR1", "is damaged or not Parquet"),
        (gzip.compress(b"client,importance\na,1\n", mtime=0)[:-9], "cut off.*write the file again"),
        (b"client,importance\n ,1\n", "line 2: no client"),
        (b"client,importance\na,many\n", "line 2: importance of client 'a' is 'many'"),
        (b"client,importance,group,group\na,1,g,g\nb,1,g,g\nc,1,g,g\n", "2 columns are called"),
    ],
)
def test_a_bad_importance_file_is_refused(tmp_path, content, words):
    with pytest.raises(FedavotError, match=words):
        federation_of(LOG, importance=saved(tmp_path, content))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"importance": {"a": 1}, "targets": {"g": 1}}, "importance and targets both"),
        ({"targets": {"g": 1}}, r"targets are shares of groups"),
        (
            {"groups": {"a": "g"}, "targets": {"g": 1}, "unlisted": 2},
            "unlisted is 2, .* unlisted=0",
        ),
        ({"unlisted": 0}, "leaves out nobody"),
        ({"importance": {"a": 1}, "unlisted": -1}, "unlisted is -1.0"),
        ({"importance": [0.5, 0.5]}, "importance is a list; it must be the path"),
        ({"importance": None}, "importance is a NoneType"),
        ({"groups": []}, "groups is a list"),
        ({"importance": {1: 1.0}}, "importance has the name 1"),
        ({"groups": {"a": 3}}, "group of client 'a' is 3; it must be a name"),
        ({"groups": {"a": " "}}, "group of client 'a' is ' '"),
        ({"importance": {"a\ud800": 1, "a\\ud800": 1}}, "the same in UTF-8"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        federation_of(LOG, **options)


@pytest.mark.parametrize("value", [-1, np.nan, np.inf, "many", None, True])
def test_a_mapping_gives_numbers_from_zero(value):
    with pytest.raises(
        ImportanceError, match="importance of client 'a' is .*; it must be a finite"
    ):
        federation_of(LOG, importance={"a": value, "b": 1, "c": 1})


def test_an_importance_of_zero_altogether_is_refused():
    with pytest.raises(ImportanceError, match="all zero over 3 clients"):
        federation_of(LOG, importance={"a": 0, "b": 0, "c": 0})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        federation_of(LOG, groups=tmp_path / "nowhere.csv")


def test_one_client_in_one_round_is_a_federation():
    federation = federation_of(log_of([0], clients=("only",)))
    assert by_name(federation) == {"only": 1.0}


def test_a_share_too_small_to_tell_from_none_counts_nothing_and_is_noted():
    found = federation_of(LOG, importance={"a": 1e308, "b": 1.0, "c": 1e307})
    assert found.importance.tolist() == pytest.approx([10 / 11, 0.0, 1 / 11])
    assert found.importance[1] == 0.0
    assert found.participation.notes == (
        "1 client has less than 1e-10 of the importance: taken as 0",
    )
