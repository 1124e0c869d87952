"""The synthetic federation: its files, its habits, and the truth stated about it."""

import csv
import math
import os
from collections import Counter
from datetime import datetime, timedelta
from itertools import combinations, compress, product

import numpy as np
import pytest

import fedavot as fa
from fedavot.audit import read_log, sample
from fedavot.audit.sample import (
    GROUPS,
    NAMES,
    STATUSES,
    SampleFiles,
    client_names,
    population,
    truth,
    write_sample,
)
from fedavot.errors import OptionError
from fedavot.importance import by_group, from_mapping, read_mapping

AHEAD = {"eu": 1, "am": -5, "as": 8}
SCATTER = 5.0
"""Standard errors a log may be off the truth; rounds differ by hour, so they scatter less."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def rows(files):
    return table(files.log)


@pytest.fixture(scope="module")
def facts():
    return truth()


@pytest.fixture(scope="module")
def log(files):
    return read_log(files.log)


def table(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def contents(files):
    return [path.read_bytes() for path in files]


def local(row):
    ahead = timedelta(hours=AHEAD[row["client"][:2]])
    return datetime.strptime(row["time"], "%Y-%m-%dT%H:%M:%SZ") + ahead


def in_order(facts, log):
    """Return where the log's clients stand in the truth."""
    return [facts.clients.index(name) for name in log.clients]


def of_group(facts, log, name):
    return np.array(facts.groups)[in_order(facts, log)] == name


def test_the_same_seed_gives_the_same_bytes(tmp_path, files):
    assert contents(write_sample(tmp_path / "again")) == contents(files)


def test_another_seed_draws_another_log_of_the_same_federation(tmp_path, files):
    other = write_sample(tmp_path, seed=1)
    assert other.log.read_bytes() != files.log.read_bytes()
    assert contents(other)[1:4] == contents(files)[1:4]


def test_a_longer_log_begins_with_the_shorter_one(tmp_path, files):
    short = write_sample(tmp_path, days=2).log.read_text(encoding="utf-8")
    assert files.log.read_text(encoding="utf-8").startswith(short)


def test_the_files_have_their_names_and_columns(files):
    assert [path.name for path in files] == [
        *("log.csv", "importance.csv", "groups.csv", "targets.csv", "README.txt")
    ]
    headers = [path.read_text(encoding="utf-8").partition("\n")[0] for path in files[:4]]
    assert headers == [
        *("round,client,time,status", "client,importance,group", "client,group", "group,share")
    ]


def test_rounds_are_half_an_hour_apart_and_all_there(rows):
    times = {int(row["round"]): row["time"] for row in rows}
    assert list(times) == list(range(1, 14 * 48 + 1))
    assert times[1] == "2024-01-08T00:00:00Z"
    assert times[48] == "2024-01-08T23:30:00Z"
    assert times[14 * 48] == "2024-01-21T23:30:00Z"
    assert len({(row["round"], row["time"]) for row in rows}) == len(times)


def test_a_few_of_those_asked_fail_or_are_late(rows):
    counts = Counter(row["status"] for row in rows)
    assert counts.keys() == STATUSES.keys()
    for status, chance in STATUSES.items():
        spread = SCATTER * math.sqrt(chance * (1 - chance) / len(rows))
        assert counts[status] / len(rows) == pytest.approx(chance, abs=spread)


def test_at_most_ten_clients_are_asked_each_once(rows):
    asked = Counter(row["round"] for row in rows)
    assert max(asked.values()) == 10
    assert min(asked.values()) < 10
    assert len({(row["round"], row["client"]) for row in rows}) == len(rows)


@pytest.mark.parametrize("place", AHEAD)
def test_phones_take_part_at_night_in_their_own_time_zone(rows, place):
    hours = Counter(local(row).hour for row in rows if row["client"].startswith(f"{place}-phone"))
    night = sum(hours[hour] for hour in range(6)) / 6
    day = sum(hours[hour] for hour in range(9, 21)) / 12
    assert night > 2 * day


def test_phones_take_part_more_by_day_at_the_weekend(tmp_path):
    rows = table(write_sample(tmp_path, days=28).log)
    by_day = [
        moment.weekday()
        for row in rows
        if "phone" in row["client"] and (moment := local(row)).hour in range(7, 10)
    ]
    weekend = sum(day >= 5 for day in by_day) / 2
    assert weekend > 1.5 * sum(day < 5 for day in by_day) / 5


def test_clinics_are_asked_in_office_hours_on_weekdays_alone(rows):
    moments = [local(row) for row in rows if "clinic" in row["client"]]
    assert {moment.weekday() for moment in moments} == set(range(5))
    assert {moment.hour for moment in moments} == set(range(8, 17))


def test_the_scarce_group_is_nine_clinics_with_a_quarter_of_the_importance(files):
    clinics = [row for row in table(files.importance) if row["group"] == "clinics"]
    assert [row["client"] for row in clinics] == [f"eu-clinic-{i:03d}" for i in range(1, 10)]
    assert math.fsum(float(row["importance"]) for row in clinics) == pytest.approx(0.25, abs=1e-15)


def test_importance_sums_to_one(files):
    assert math.fsum(read_mapping(files.importance).values()) == pytest.approx(1.0, abs=1e-15)


def test_groups_and_targets_say_the_same_as_the_importance(files):
    groups = {row["client"]: row["group"] for row in table(files.groups)}
    targets = {row["group"]: float(row["share"]) for row in table(files.targets)}
    assert {row["client"]: row["group"] for row in table(files.importance)} == groups
    expected = by_group(list(groups.values()), targets)
    assert list(read_mapping(files.importance).values()) == expected.tolist()


def test_the_log_is_read_without_an_odd_note(log, facts):
    assert sorted(log.clients) == sorted(facts.clients)
    assert log.n_rounds == 14 * 48
    assert np.diff(log.times).tolist() == [1800.0] * (log.n_rounds - 1)
    assert [note.partition(":")[0] for note in log.notes] == ["status"]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.prefix)
def test_the_log_scatters_around_the_stated_participation(log, facts, group):
    of = of_group(facts, log, group.name)
    expected = facts.inclusion[in_order(facts, log)][of].mean()
    spread = SCATTER * math.sqrt(expected / (of.sum() * log.n_rounds))
    assert log.inclusion()[of].mean() == pytest.approx(expected, abs=spread)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.prefix)
def test_the_log_scatters_around_the_stated_reach(log, facts, group):
    of, expected = of_group(facts, log, group.name), facts.reach[group.name]
    reached = np.mean([of[log.cohort(t)].any() for t in range(log.n_rounds)])
    spread = SCATTER * math.sqrt(expected * (1 - expected) / log.n_rounds)
    assert reached == pytest.approx(expected, abs=spread)


def test_the_log_scatters_around_the_stated_average(log, facts):
    shares = np.zeros(log.n_clients)
    for t in range(log.n_rounds):
        shares[log.cohort(t)] += 1 / log.cohort(t).size / log.n_rounds
    for group in GROUPS:
        of = of_group(facts, log, group.name)
        expected = facts.average[in_order(facts, log)][of].sum()
        spread = SCATTER * math.sqrt(expected * (1 - expected) / log.n_rounds)
        assert shares[of].sum() == pytest.approx(expected, abs=spread)


def test_the_truth_is_that_of_enumerating_who_is_online(monkeypatch):
    """Six clients, three of them in a group, and a cohort of two."""
    online = np.linspace(0.1, 0.8, 168)[:, None] * [1.0, 0.8, 0.6, 0.5, 0.25, 0.125]
    group_of = np.array([0, 0, 0, 1, 2, 3])
    monkeypatch.setattr(sample, "population", lambda n_clients: (group_of, online))
    monkeypatch.setattr(sample, "COHORT", 2)
    facts = truth(days=7)
    chances = enumerated(online, 0.88)
    happens = 1 - (1 - online).prod(axis=1).mean()
    inclusion, average, reach = np.zeros(6), np.zeros(6), np.zeros(4)
    for cohort, chance in chances.items():
        inclusion[list(cohort)] += chance / happens
        average[list(cohort)] += chance / len(cohort)
        reach[np.unique(group_of[list(cohort)])] += chance / happens
    np.testing.assert_allclose(facts.inclusion, inclusion, rtol=1e-12)
    np.testing.assert_allclose(facts.average, average / average.sum(), rtol=1e-12)
    np.testing.assert_allclose(list(facts.reach.values()), reach, rtol=1e-12)


def enumerated(online, replies):
    """Return how likely each cohort takes part: every set online, every pair, every reply."""
    chances = Counter()
    for there in product([False, True], repeat=online.shape[1]):
        chance = np.where(there, online, 1 - online).prod(axis=1).mean()
        present = np.flatnonzero(there).tolist()
        pairs = list(combinations(present, min(2, len(present))))
        for asked, answers in product(pairs, product([False, True], repeat=2)):
            cohort = tuple(compress(asked, answers))
            weight = math.prod(replies if answer else 1 - replies for answer in answers)
            chances[cohort] += chance * weight / len(pairs)
    del chances[()]
    return chances


def test_the_plain_average_is_visibly_off_the_importance(facts):
    clinics = np.array(facts.groups) == "clinics"
    assert facts.gap > 0.2
    assert facts.average[clinics].sum() < 0.05


def test_a_certificate_on_the_log_finds_the_clinics_deficient(files, log):
    rounds = np.repeat(np.arange(log.n_rounds), np.diff(log.offsets))
    law = fa.Cohorts.from_log(rounds, log.members, n_clients=log.n_clients)
    importance = from_mapping(read_mapping(files.importance), log.clients)
    found = fa.certify(importance, law)
    assert found.verify(importance, law)
    assert {log.clients[i] for i in found.deficient} == {
        name for name in log.clients if "clinic" in name
    }


def test_the_page_states_the_truth(files, facts):
    page = files.readme.read_text(encoding="utf-8")
    assert f"gives {facts.gap:.1%} of the weight to the wrong clients" in page
    assert f"takes part in {facts.reach['clinics']:.1%} of the rounds" in page
    assert "cannot give them more than that" in page
    assert all(f"\n{group.name} " in page for group in GROUPS)
    assert max(map(len, page.splitlines())) <= 100


def test_the_page_of_a_log_without_a_weekend_finds_the_clinics_often_enough(tmp_path):
    assert truth(days=5).reach["clinics"] > 0.25
    page = write_sample(tmp_path, days=5).readme.read_text(encoding="utf-8")
    assert "often enough to be given their importance" in page


@pytest.mark.parametrize("n_clients", [20, 33, 500])
def test_a_federation_has_as_many_clients_as_asked_for_in_every_group(n_clients):
    group_of, online = population(n_clients)
    assert online.shape == (168, n_clients)
    assert (np.bincount(group_of) > 0).tolist() == [True] * 4
    assert len(set(client_names(group_of))) == n_clients


@pytest.mark.parametrize("name", NAMES)
def test_no_file_is_overwritten(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(OptionError, match=f"already has {name}; choose another folder, or remove"):
        write_sample(tmp_path, days=1)
    assert [path.name for path in tmp_path.iterdir()] == [str(name)]
    assert (tmp_path / name).read_text() == "mine"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(OptionError, match="taken is a file; name a folder"):
        write_sample(tmp_path / "taken", days=1)


def test_a_folder_that_is_not_there_is_made(tmp_path):
    files = write_sample(tmp_path / "new" / "folder", days=1)
    assert isinstance(files, SampleFiles)
    assert all(path.parent == tmp_path / "new" / "folder" for path in files)


def test_a_failure_part_way_leaves_no_file(tmp_path, monkeypatch):
    kept, calls = os.replace, []

    def full(source, target):
        calls.append(target)
        if len(calls) == 3:
            raise OSError("no space left")
        kept(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_sample(tmp_path, days=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"seed": 0.5}, "seed must be an integer, found 0.5"),
        ({"days": 0}, "days is 0; it must be at least 1 and at most 366"),
        ({"days": 367}, "days is 367; it must be at least 1 and at most 366"),
        ({"days": float("nan")}, "days must be an integer, found nan"),
        ({"n_clients": 19}, "n_clients is 19; it must be at least 20 and at most 500"),
        ({"n_clients": 501}, "n_clients is 501; it must be at least 20 and at most 500"),
        ({"n_clients": "120"}, "n_clients must be an integer, found '120'"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        write_sample(tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()
