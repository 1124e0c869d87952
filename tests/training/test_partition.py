"""Every partition gives distinct examples, as many as asked for, or says why it cannot."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedavot.errors import TaskError
from fedavot.training.partition import by_group, dirichlet, iid, two_digits

TEN_OF_500 = np.repeat(np.arange(10), 500)
seeds = st.integers(0, 2**32)


def generator(seed=0):
    return np.random.default_rng(seed)


def assert_distinct(parts, n_examples):
    given_out = np.concatenate(parts)
    assert given_out.dtype == np.int64
    assert np.unique(given_out).size == given_out.size
    assert given_out.min() >= 0
    assert given_out.max() < n_examples


def labels_of(class_sizes, seed):
    """Return labels with gaps between them, in random order."""
    labels = np.repeat(3 * np.arange(len(class_sizes)) - 4, class_sizes)
    return generator(seed).permutation(labels)


@given(st.integers(1, 60), st.integers(1, 60), seeds)
def test_an_even_split_gives_every_example_once_in_sizes_that_differ_by_one(n, more, seed):
    parts = iid(n + more, n, rng=generator(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n + more))
    assert len(parts) == n
    assert np.ptp([part.size for part in parts]) <= 1


@given(st.lists(st.sampled_from(["ann", "bob", "carl", "di"]), min_size=1, max_size=30))
def test_groups_become_clients_in_the_order_of_their_names(groups):
    parts = by_group(groups)
    assert len(parts) == len(set(groups))
    for part, name in zip(parts, sorted(set(groups)), strict=True):
        assert part.tolist() == [place for place, group in enumerate(groups) if group == name]


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(1, 4),
    seeds,
)
def test_each_client_holds_exactly_its_classes_in_equal_parts(sizes, n_clients, each, share, seed):
    labels = labels_of(sizes, seed)
    portions = [min(size // share, n_clients) for size in sizes]
    arguments = {
        "examples_per_client": each * share,
        "rng": generator(seed),
        "classes_per_client": each,
    }
    if len(sizes) < each or sum(portions) < n_clients * each:
        with pytest.raises(TaskError, match=r"the labels have \d+"):
            two_digits(labels, n_clients, **arguments)
        return
    parts = two_digits(labels, n_clients, **arguments)
    assert len(parts) == n_clients
    assert_distinct(parts, labels.size)
    holders = dict.fromkeys(np.unique(labels).tolist(), 0)
    for part in parts:
        kinds, counts = np.unique(labels[part], return_counts=True)
        assert kinds.size == each
        assert (counts == share).all()
        for kind in kinds.tolist():
            holders[kind] += 1
    # A class with fewer holders than another less one has no portion left to give.
    most = max(holders.values())
    for portion, held in zip(portions, holders.values(), strict=True):
        assert held >= most - 1 or held == portion


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(1, 10),
    st.integers(1, 20),
    st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
    seeds,
)
def test_a_mix_of_given_size_has_that_size_as_long_as_there_is_data(sizes, n, size, alpha, seed):
    labels = labels_of(sizes, seed)
    assume(labels.size >= n * size)
    parts = dirichlet(labels, n, concentration=alpha, examples_per_client=size, rng=generator(seed))
    assert [part.size for part in parts] == [size] * n
    assert_distinct(parts, labels.size)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(1, 40),
    st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
    seeds,
)
def test_an_uneven_mix_gives_out_everything_and_leaves_nobody_empty(sizes, n, alpha, seed):
    labels = labels_of(sizes, seed)
    assume(labels.size >= n)
    parts = dirichlet(labels, n, concentration=alpha, examples_per_client=None, rng=generator(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(labels.size))
    assert len(parts) == n
    assert min(part.size for part in parts) >= 1


@pytest.mark.parametrize("size", [100, None])
def test_the_concentration_decides_how_much_the_clients_differ(size):
    def spread(alpha):
        parts = dirichlet(
            TEN_OF_500, 20, concentration=alpha, examples_per_client=size, rng=generator(1)
        )
        shares = [np.bincount(TEN_OF_500[part], minlength=10) / part.size for part in parts]
        return np.mean(np.max(shares, axis=1))

    # The largest share of one class: near 1 for a tiny concentration, near 1/10 for a large one.
    assert spread(1e4) < 0.2
    assert spread(0.01) > 0.5


def test_the_mean_mix_is_the_dirichlet_mean_and_its_variance_the_dirichlet_variance():
    # Plenty of data, so that no class runs out: a count is then Dirichlet-multinomial.
    labels = np.repeat(np.arange(4), 50_000)
    alpha, size, n = 0.5, 50, 1000
    parts = dirichlet(labels, n, concentration=alpha, examples_per_client=size, rng=generator(2))
    counts = np.array([np.bincount(labels[part], minlength=4) for part in parts])
    variance = size * (1 / 4) * (3 / 4) * (size + 4 * alpha) / (1 + 4 * alpha)
    # Five standard errors of a mean over a thousand clients; the variance is that of a mean square.
    np.testing.assert_allclose(counts.mean(axis=0), size / 4, atol=5 * np.sqrt(variance / n))
    np.testing.assert_allclose(counts.var(axis=0), variance, rtol=0.25)


@pytest.mark.parametrize(
    "deal",
    [
        lambda rng: iid(100, 7, rng=rng),
        lambda rng: two_digits(TEN_OF_500, 100, examples_per_client=50, rng=rng),
        lambda rng: dirichlet(TEN_OF_500, 30, concentration=0.3, examples_per_client=40, rng=rng),
        lambda rng: dirichlet(TEN_OF_500, 30, concentration=0.3, examples_per_client=None, rng=rng),
    ],
    ids=["iid", "two digits", "mix of given size", "uneven mix"],
)
def test_the_same_seed_deals_the_same_and_another_differently(deal):
    first, again, other = (np.concatenate(deal(generator(seed))) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
