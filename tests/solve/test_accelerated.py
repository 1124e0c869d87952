"""Alignment where the clients lie: the same answers on an accelerator as on the host."""

import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedavot as fa
from fedavot import _device
from fedavot.errors import ImportanceError, LawError, TooLargeError, UnavailableError
from fedavot.solve import accelerated


@pytest.fixture
def held(monkeypatch):
    """Treat every JAX array as one on an accelerator, and return how to make one."""

    def is_held(values):
        return isinstance(values, jax.Array)

    monkeypatch.setattr("fedavot._device.is_held", is_held)
    monkeypatch.setattr("fedavot.laws.independent.is_held", is_held)

    def make(values):
        with jax.enable_x64(True):
            return jnp.asarray(values)

    return make


def skewed(n_clients, spread=0.25, seed=0):
    rng = np.random.default_rng(seed)
    importance = np.exp(spread * rng.normal(size=n_clients))
    return importance / importance.sum()


def rates(n_clients, size=5.0, seed=1):
    return size / n_clients * np.random.default_rng(seed).uniform(0.9, 1.1, n_clients)


def mixture(make, n_clients=700):
    laws = [
        fa.IndependentClients(make(4 * rates(n_clients, seed=seed) * (0.5 + seed)))
        for seed in range(3)
    ]
    return fa.Mixture(laws, [0.2, 0.3, 0.5])


def test_clients_on_a_device_get_the_weights_that_they_get_on_the_host(held):
    importance, chances = skewed(2_000), rates(2_000)
    law = fa.IndependentClients(held(chances))
    found = fa.align(held(importance), law)
    usual = fa.align(importance, fa.IndependentClients(chances))
    assert (found.status, usual.status) == ("exact", "exact")
    assert isinstance(found.potentials, _device.DeviceVector)
    np.testing.assert_allclose(np.asarray(found.potentials), usual.potentials, atol=1e-4)
    cohort = [17, 4, 1_999]
    np.testing.assert_allclose(found.weights(cohort), usual.weights(cohort), atol=1e-6)
    assert found.effective_cohort_size == pytest.approx(usual.effective_cohort_size, rel=1e-6)
    # The host's own evaluation finds the residual that the device reports.
    attained = fa.IndependentClients(chances).expected_weights(np.asarray(found.potentials))
    assert np.abs(attained - importance).sum() == pytest.approx(found.residual, abs=1e-13)
    assert found.gap <= 1e-9
    assert fa.certify(held(importance), law).feasible
    assert law.nonempty == pytest.approx(fa.IndependentClients(chances).nonempty, rel=1e-12)


def test_a_mixture_on_a_device_is_aligned_as_on_the_host(held):
    importance = skewed(700)
    found = fa.align(held(importance), mixture(held))
    usual = fa.align(importance, mixture(np.asarray))
    assert found.status == "exact"
    np.testing.assert_allclose(np.asarray(found.potentials), usual.potentials, atol=1e-5)
    assert found.effective_cohort_size == pytest.approx(usual.effective_cohort_size, rel=1e-6)


def test_many_clients_of_numpy_go_to_the_device_and_come_back(monkeypatch):
    monkeypatch.setattr("fedavot.solve._align.pays", lambda n_clients: True)
    importance, law = skewed(2_000), fa.IndependentClients(rates(2_000))
    found = fa.align(importance, law)
    assert type(found.potentials) is np.ndarray
    assert np.abs(law.expected_weights(found.potentials) - importance).sum() <= 1e-9
    assert found.iterations <= 4


@pytest.mark.parametrize("seed", range(12))
def test_sums_on_a_device_prove_feasibility_only_where_it_is_true(seed, held, monkeypatch):
    rng = np.random.default_rng(seed)
    importance = skewed(400, spread=rng.uniform(0.05, 1.2), seed=seed)
    chances = rates(400, size=rng.uniform(1.5, 8), seed=seed)
    truth = fa.certify(importance, fa.IndependentClients(chances))
    found = fa.certify(held(importance), fa.IndependentClients(held(chances)))
    assert found.feasible == truth.feasible
    assert found.deficiency == pytest.approx(truth.deficiency, abs=1e-12)
    monkeypatch.setattr("fedavot.feasibility._certify", lambda *_: SimpleNamespace(clients=None))
    if not truth.feasible:
        with pytest.raises(TypeError, match="dataclass"):  # the proof was left to the host
            fa.certify(held(importance), fa.IndependentClients(held(chances)))


def test_what_needs_levels_is_solved_on_the_host(held):
    importance = np.full(50, 0.4 / 49)
    importance[0] = 0.6
    law = fa.IndependentClients(held(np.full(50, 0.2)))
    assert fa.align(held(importance), law).status == "nearest"


def test_clients_without_importance_are_solved_on_the_host(held):
    importance = np.append(skewed(49), 0.0)
    found = fa.align(held(importance), fa.IndependentClients(held(np.full(50, 0.2))))
    usual = fa.align(importance, fa.IndependentClients(np.full(50, 0.2)))
    assert np.array_equal(found.levels, usual.levels)
    assert found.levels[-1] > 0


def test_what_needs_levels_is_refused_for_more_clients_than_the_host_can_search(held, monkeypatch):
    monkeypatch.setattr(accelerated, "_MOST_ON_HOST", 40)
    importance = np.full(50, 0.4 / 49)
    importance[0] = 0.6
    with pytest.raises(UnavailableError, match="50 clients cannot be attained in one level"):
        fa.align(held(importance), fa.IndependentClients(held(np.full(50, 0.2))))


def test_clients_that_do_not_fit_are_refused_with_what_they_need(held, monkeypatch):
    small = SimpleNamespace(platform="small", memory_stats=lambda: {"bytes_limit": 10_000})
    monkeypatch.setattr(jax, "devices", lambda: [small])
    with pytest.raises(TooLargeError, match="3,000 clients in 1 states need about 0 GB"):
        fa.align(held(skewed(3_000)), fa.IndependentClients(held(rates(3_000))))


@pytest.mark.parametrize(
    ("place", "value", "match"),
    [(3, np.nan, "client 3 is nan"), (5, -0.1, "client 5 is -0.1"), (1, 0.9, "sums to 1.8")],
)
def test_a_wrong_importance_is_found_on_the_device(held, place, value, match):
    importance = np.full(10, 0.1)
    importance[place] = value
    with pytest.raises(ImportanceError, match=match):
        fa.align(held(importance), fa.IndependentClients(held(np.full(10, 0.5))))


def test_an_importance_of_other_clients_is_refused(held):
    with pytest.raises(ImportanceError, match="10 entries, but there are 9 clients"):
        fa.align(held(np.full(10, 0.1)), fa.IndependentClients(held(np.full(9, 0.5))))


@pytest.mark.parametrize(
    ("chances", "match"),
    [([0.5, 1.5], "client 1 is 1.5"), ([0.0, 0.0], "every probability is 0")],
)
def test_wrong_probabilities_are_found_on_the_device(held, chances, match):
    with pytest.raises(LawError, match=match):
        fa.IndependentClients(held(np.array(chances)))


def test_a_matrix_on_a_device_is_refused(held):
    with pytest.raises(LawError, match=r"shape \(2, 2\)"):
        fa.IndependentClients(held(np.ones((2, 2))))


def test_vectors_on_a_device_are_indexed_and_copied_as_arrays_are(held):
    vector = _device.DeviceVector(held(np.arange(7.0)))
    assert (len(vector), vector.shape) == (7, (7,))
    assert vector[[6, 0]].tolist() == [6.0, 0.0]
    assert vector[1:6:2].tolist() == [1.0, 3.0, 5.0]
    assert np.asarray(vector).tolist() == list(range(7))
    assert "7 entries" in repr(vector)


SHARDED = """
import jax, numpy as np, fedavot as fa
from fedavot.solve.accelerated import align_accelerated
from fedavot.solve.climbing import StoppingRule
rng = np.random.default_rng(0)
importance = np.exp(0.25 * rng.normal(size=20_001))
importance /= importance.sum()
law = fa.IndependentClients(rng.uniform(0.9, 1.1, 20_001) * 5 / 20_001)
found = align_accelerated(importance, law, StoppingRule(1e-9, 100, "auto"))
assert len(jax.devices()) == {count}
np.save({path!r}, np.stack([found.potentials, found.attained]))
"""


def test_clients_spread_over_eight_devices_get_the_same_potentials(tmp_path):
    found = []
    for count in (1, 8):
        path = str(tmp_path / f"{count}.npy")
        flags = f"--xla_force_host_platform_device_count={count}"
        environment = {"PATH": "", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        code = SHARDED.format(count=count, path=path)
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        found.append(np.load(path))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-12)
