"""A user's own examples, importance and log are read in every form, or refused with the place."""

import zipfile

import numpy as np
import pytest
from tiny import ARRAYS, LOG, arrays, configured, refused

from fedavot.errors import FedavotError
from fedavot.training.examples import read_examples


@pytest.mark.parametrize(
    ("changes", "where", "match"),
    [
        ({"features": None}, "task.file", r"has targets of shape .* it needs features"),
        ({"targets": np.zeros(11)}, "task.file", r"targets of shape \(11,\)"),
        ({"features": np.zeros(12)}, "task.file", r"features of shape \(12,\)"),
        ({"features": np.full((12, 3), np.nan)}, "task.file", r"client .* not finite"),
        ({"clients": None}, "task.n_clients", r"is missing: .* an integer from 1 to 12"),
    ],
)
def test_arrays_that_do_not_make_a_task_are_refused(tmp_path, changes, where, match):
    arrays(tmp_path, **changes)
    refused(tmp_path, where, match, task=ARRAYS)


@pytest.mark.parametrize(
    ("task", "partition", "where", "match"),
    [
        ("n_clients = 3", None, "task.n_clients", r"not used"),
        ("examples = 2", "kind = 'by-group'", "task.examples", r"not used"),
        ("n_clients = 13", "kind = 'iid'", "task.n_clients", r"is 13, .* the 12 there are"),
        ("n_clients = 5\nexamples = 3", "kind = 'iid'", "task.n_clients", r"3 examples each"),
        ("n_clients = 3", "kind = 'two-digits'", "task.examples", r"'two-digits' needs it"),
        ("n_clients = 3", "kind = 'dirichlet'", "partition.concentration", r"'dirichlet' needs"),
        ("n_clients = 2\nexamples = 3", "kind = 'two-digits'", "partition.kind = 'two-digits'",
         r"examples_per_client is 3; it must be a multiple"),
        ("n_clients = 2", "kind = 'iid'\nconcentration = 1", "partition.concentration",
         r"belongs to kind = 'dirichlet'"),
    ],
)  # fmt: skip
def test_examples_that_cannot_be_dealt_as_asked_are_refused(
    tmp_path, task, partition, where, match
):
    arrays(tmp_path)
    refused(tmp_path, where, match, task=f"{ARRAYS}\n{task}", partition=partition)


@pytest.mark.parametrize(
    ("loss", "targets", "match"),
    [
        ("hinge", np.arange(12) % 2, r"label 0.0; the hinge loss takes labels -1 and 1"),
        ("softmax", np.zeros(12), r"labels of type float64; they must be integers"),
        ("softmax", np.arange(12) + 10, r"label 21 among 12 examples"),
    ],
)
def test_targets_that_do_not_suit_the_loss_are_refused(tmp_path, loss, targets, match):
    arrays(tmp_path, targets=targets)
    refused(tmp_path, "task.file", match, task=ARRAYS.replace("squares", loss))


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "mine.npz").write_bytes(content)
    refused(tmp_path, "task.file", r"not an .npz of plain arrays", task=ARRAYS)


def test_a_damaged_archive_is_refused_or_harmless(tmp_path):
    path, times_refused = tmp_path / "mine.npz", 0
    np.savez_compressed(path, features=np.arange(60.0).reshape(20, 3), targets=np.zeros(20))
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            assert read_examples(path).features.shape == (20, 3)
        except FedavotError:
            times_refused += 1
    assert times_refused > len(content) / 2


def test_a_single_array_is_refused(tmp_path):
    with (tmp_path / "mine.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    refused(tmp_path, "task.file", r"not an .npz", task=ARRAYS)


def test_an_array_with_a_header_of_python_2_is_refused_without_a_warning(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1L, 1L), }\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr("features.npy", array)
    refused(tmp_path, "task.file", r"Python 2", task=ARRAYS)


FILE = "kind = 'file'\nfile = '{}'"


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("p.csv", "client,importance\n0,1\n1,1\n2,1\n", r"'3'.*unlisted"),
        ("p.csv", "client,importance\n0,1\n1,x\n", r"line 3: .*'x'"),
        ("p.csv", "client,importance\n0,1\n1,1\n2,1\n3,1\n4,1\n", r"without examples, '4'"),
        ("p.csv", "client,importance\n0,1\n0,2\n", r"line 3: client '0' .* second time"),
        ("p.csv", "client,importance\n0,-1\n", r"line 2: .*-1"),
        ("p.csv", "client,importance\n0,0\n1,0\n2,0\n3,0\n", r"no client an importance above 0"),
        ("p.csv", "1\n2\n3\n4\n", r"line 1: the columns are '1'"),
        ("p.json", "[1, 2, 3", r"a JSON list"),
        ("p.json", "[1, 2, 3, 4]", r"a JSON list"),
        ("p.json", '{"0": true}', r"True"),
        ("p.json", f'{{"0": {10**400}}}', r"401 digits"),
    ],
)
def test_an_importance_file_with_a_mistake_is_refused_with_the_place(tmp_path, name, text, match):
    (tmp_path / name).write_text(text, encoding="utf-8")
    refused(tmp_path, "importance", match, importance=FILE.format(name))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", "client,importance\n3,1\n2,2\n1,3\n0,4\n"),
        ("p.csv", "group,client,examples\na,0,40\nb,1,30\na,2,20\na,3,10\n"),
        ("p.json", '{"3": 1, "1": 3, "2": 2, "0": 4}'),
    ],
)
def test_every_form_of_an_importance_file_gives_the_same(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    setting = configured(tmp_path, importance=FILE.format(name))
    np.testing.assert_allclose(setting.importance, [0.4, 0.3, 0.2, 0.1])


def test_clients_that_a_file_does_not_list_count_what_unlisted_says(tmp_path):
    (tmp_path / "p.csv").write_text("client,importance\n1,3\n2,1\n", encoding="utf-8")
    setting = configured(tmp_path, importance=f"{FILE.format('p.csv')}\nunlisted = 2")
    np.testing.assert_allclose(setting.importance, np.array([2, 3, 1, 2]) / 8)


@pytest.mark.parametrize("targets", ["{day = 0.25, night = 0.75}", "'targets.csv'"])
def test_groups_share_the_importance_as_their_targets_say(tmp_path, targets):
    (tmp_path / "groups.csv").write_text("client,group\n0,day\n1,day\n2,night\n3,day\n")
    (tmp_path / "targets.csv").write_text("group,share\nday,0.25\nnight,0.75\n")
    text = f"kind = 'groups'\ngroups = 'groups.csv'\ntargets = {targets}"
    setting = configured(tmp_path, importance=text)
    np.testing.assert_allclose(setting.importance, [1 / 12, 1 / 12, 3 / 4, 1 / 12])


@pytest.mark.parametrize(
    ("groups", "targets", "match"),
    [
        ("client,group\n0,day\n1,day\n2,day\n3,day\n", "{day = 0.5}", r"0\.5, not 1"),
        ("client,group\n0,day\n1,day\n2,day\n", "{day = 1}", r"'3'.*unlisted"),
        ("client,group\n0,day\n1,day\n2,day\n3,dusk\n", "{day = 1}", r"'dusk'"),
        ("client,group\n0,day\n1,day\n2,day\n3,day\n33,day\n", "{day = 1}", r"'33'.*'3'"),
        ("client,group\n0,day\n0,day\n", "{day = 1}", r"line 3: client '0' a second time"),
    ],
)
def test_groups_with_a_mistake_are_refused(tmp_path, groups, targets, match):
    (tmp_path / "groups.csv").write_text(groups, encoding="utf-8")
    text = f"kind = 'groups'\ngroups = 'groups.csv'\ntargets = {targets}"
    refused(tmp_path, "importance", match, importance=text)


def test_groups_of_a_file_become_clients_in_the_order_of_their_names(tmp_path):
    arrays(tmp_path)
    setting = configured(tmp_path, task=ARRAYS)
    with np.load(tmp_path / "mine.npz") as held:
        expected = held["features"].reshape(3, 4, 3)[[1, 2, 0]]
    np.testing.assert_array_equal(setting.instances[0].problem.task.data[0], expected)


@pytest.mark.parametrize(
    ("task", "partition", "counts"),
    [
        ("n_clients = 5", "kind = 'iid'", [2, 2, 2, 3, 3]),
        ("n_clients = 3\nexamples = 2", "kind = 'iid'", [2, 2, 2]),
        ("n_clients = 3\nexamples = 4", "kind = 'two-digits'", [4, 4, 4]),
        ("n_clients = 3\nexamples = 4", "kind = 'dirichlet'\nconcentration = 1", [4, 4, 4]),
    ],
)
def test_examples_are_dealt_in_the_sizes_asked_for(tmp_path, task, partition, counts):
    arrays(tmp_path)
    setting = configured(tmp_path, task=f"{ARRAYS}\n{task}", partition=partition)
    found = setting.instances[0].problem.task
    sizes = np.full(found.n_clients, found.n_examples) if found.counts is None else found.counts
    assert sorted(sizes.tolist()) == counts


def test_groups_are_asked_for_only_where_the_file_has_them(tmp_path):
    arrays(tmp_path, clients=None)
    match = r"no array 'clients'; it must be one of 'iid', 'two-digits', 'dirichlet'"
    refused(tmp_path, "partition.kind", match, task=ARRAYS, partition="kind = 'by-group'")


def test_clients_of_uneven_size_can_count_by_their_examples(tmp_path):
    arrays(tmp_path, clients=np.repeat([0, 1, 2], [6, 4, 2]))
    setting = configured(tmp_path, task=ARRAYS, importance="kind = 'by-examples'")
    np.testing.assert_allclose(setting.importance, [1 / 2, 1 / 3, 1 / 6])


def test_files_name_the_clients_of_the_examples(tmp_path):
    arrays(tmp_path, clients=np.repeat(["porto", "lyon", "berlin"], 4))
    (tmp_path / "p.csv").write_text("client,importance\nlyon,1\nporto,2\nberlin,1\n")
    (tmp_path / "rounds.csv").write_text("round,client\n1,porto\n1,lyon\n2,berlin\n")
    files = {"importance": FILE.format("p.csv"), "availability": LOG}
    setting = configured(tmp_path, task=ARRAYS, **files)
    assert setting.instances[0].problem.task.clients == ("berlin", "lyon", "porto")
    np.testing.assert_allclose(setting.importance, [0.25, 0.25, 0.5])
    np.testing.assert_allclose(setting.inclusion, [0.5, 0.5, 0.5])
    (tmp_path / "rounds.csv").write_text("round,client\n1,porto\n1,lion\n")
    files["importance"] = "kind = 'uniform'"
    refused(tmp_path, "availability.file", "'lion'; did you mean 'lyon'", task=ARRAYS, **files)
