"""Memories on the clients: the run of the steady rule, whatever becomes of replies."""

import dataclasses

import formulas_steady
import numpy as np
import pytest

import fedavot as fa
from fedavot.errors import FileFormatError, ImportanceError, OptionError, RuleError
from fedavot.rules.held import ClientMemory, ServerMemory

AGREE = 1e-10
"""Room for the rounding of sixty rounds in another order; models are of order one."""
N, ROUNDS = 8, 60
P = np.array([0.25, 0.05, 0.2, 0.1, 0.1, 0.05, 0.15, 0.1])
RNG = np.random.default_rng(5)
CURVES, TARGETS = RNG.uniform(0.3, 1.5, (N, 6)), RNG.normal(size=(N, 6))
LOCAL_STEPS = 3


def parts(model):
    """Return a flat model as arrays of no and of two dimensions."""
    return [model[0].reshape(()), model[1:].reshape(5, 1)]


def flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


def trained(client, model, step, drift):
    """Return the model after local steps on ½ Σ curve (θ − target)²."""
    for _ in range(LOCAL_STEPS):
        model = model - step * (CURVES[client] * (model - TARGETS[client]) + drift)
    return model


@dataclasses.dataclass
class Turn:
    """A round as the formulas see it."""

    cohort: list
    started: np.ndarray
    ended: dict
    step: float
    local_steps: int = LOCAL_STEPS


class Federation:
    """The same rounds twice: memories on the clients, and by formula on the server."""

    def __init__(self, weigh=None, **constants):
        self.server = ServerMemory.start(P, parts(np.zeros(6)), **constants)
        self.clients = {client: ClientMemory() for client in range(N)}
        shares = weigh or (lambda cohort: [1 / len(cohort)] * len(cohort))
        beta = constants.pop("share", 0.5)
        self.formula = formulas_steady.Steady(P, shares, beta=beta, **constants)
        self.weigh = {} if weigh is None else {"weigh": weigh}
        self.model = self.expected = np.zeros(6)

    def answers(self, asked, step):
        """Return the replies of those asked, to this round."""
        told = {}
        for client in asked:
            request = self.server.request(client)
            held = self.clients[client]
            path = held.correction(request)
            update = parts(trained(client, self.model, step, flat(path)) - self.model)
            told[client] = held.answer(request, update, span=LOCAL_STEPS * step, path=path)
        return told

    def close(self, replies, step, accepted=None):
        """Close the round on both sides, by formula with those accepted."""
        change = self.server.close(replies, **self.weigh)
        self.model = self.model + LOCAL_STEPS * step * flat(change)
        cohort = list(replies) if accepted is None else accepted
        ended = {i: trained(i, self.expected, step, self.formula.correction(i)) for i in cohort}
        started = dict.fromkeys(cohort, self.expected)
        self.expected = self.formula.aggregate(self.expected, Turn(cohort, started, ended, step))

    def assert_agrees(self):
        np.testing.assert_allclose(self.model, self.expected, rtol=AGREE, atol=AGREE)


CONSTANTS = [
    {},
    {"trust": 1.0, "share": 0.3},
    {"trust": 0.6, "damping": 4.0, "correction": 0.5},
    {"damping": 0.0, "correction": 0.0},
]


@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_with_replies_lost_late_or_excluded_the_run_is_that_of_the_server_side(seed, constants):
    rng, late = np.random.default_rng(seed), {}
    federation = Federation(**constants)
    for number in range(ROUNDS):
        step = 0.1 / (1 + number / 30)
        asked = np.flatnonzero(rng.random(N) < 0.5).tolist()
        told = federation.answers(asked, step)
        kept = [client for client in asked if rng.random() < 0.7]
        replies = {client: told[client] for client in kept}
        # Replies to earlier rounds come along with those in time.
        stale = {client: reply for client, reply in late.items() if client not in replies}
        federation.close({**stale, **replies}, step, accepted=kept)
        late = {client: reply for client, reply in told.items() if client not in kept}
        federation.assert_agrees()
        # Either side may be restarted between rounds.
        if number % 7 == 3:
            federation.server = ServerMemory.from_state(federation.server.state_dict())
            federation.clients = {
                client: ClientMemory.from_state(held.state_dict())
                for client, held in federation.clients.items()
            }


def test_shares_may_be_those_of_an_alignment():
    aligned = fa.align(P, fa.UniformCohorts(N, 3))
    federation, rng = Federation(aligned.weights), np.random.default_rng(0)
    for _ in range(20):
        asked = np.sort(rng.choice(N, 3, replace=False)).tolist()
        federation.close(federation.answers(asked, 0.1), 0.1)
    federation.assert_agrees()


def test_memories_are_the_formulas_once_their_acceptance_is_known():
    federation = Federation()
    for cohort in ([0, 1, 2], [2, 3], [0, 2], [1, 3, 0]):
        federation.close(federation.answers(cohort, 0.1), 0.1)
    for client in range(4):
        held = federation.clients[client]
        memory = held.recall(federation.server.request(client))
        np.testing.assert_allclose(
            flat(memory), federation.formula.y[client], rtol=AGREE, atol=AGREE
        )


def test_the_server_keeps_one_model_whatever_the_number_of_clients():
    shapes = []
    for n_clients in (3, 1000):
        server = ServerMemory.start(np.full(n_clients, 1 / n_clients), parts(np.zeros(6)))
        held = server.state_dict()
        models = [name for name, value in held.items() if isinstance(value, list)]
        arrays = {k: v.ndim for k, v in held.items() if isinstance(v, np.ndarray)}
        shapes.append((models, arrays))
    assert shapes[0] == shapes[1]
    assert shapes[0][0] == ["mean"]
    assert set(shapes[0][1].values()) == {1}


def test_a_client_uploads_its_memory_only_where_trust_is_not_one():
    for trust, sends in ((1.0, False), (0.5, True)):
        federation = Federation(trust=trust)
        federation.close(federation.answers([0], 0.1), 0.1)
        (reply,) = federation.answers([0], 0.1).values()
        assert (reply.memory is not None) == sends


def test_a_client_that_is_asked_again_in_the_same_round_says_the_same():
    federation = Federation()
    federation.close(federation.answers([0, 1], 0.1), 0.1)
    request = federation.server.request(0)
    one = federation.clients[0].answer(request, parts(np.ones(6)))
    other = federation.clients[0].answer(request, parts(np.full(6, 7.0)))
    np.testing.assert_array_equal(flat(one.innovation), flat(other.innovation))
    assert one.products == other.products


@pytest.mark.parametrize("constants", [{"trust": 1.0}, {"trust": 0.5}, {}], ids=str)
@pytest.mark.parametrize("kept", ["nothing", "an old memory"])
def test_the_mean_stands_for_a_memory_that_was_lost(kept, constants):
    federation = Federation(**constants)
    before = federation.clients[0].state_dict()
    for number in range(3):
        federation.close(federation.answers([0, 1], 0.1), 0.1)
        if number == 0 and kept == "an old memory":
            before = federation.clients[0].state_dict()
    federation.clients[0] = ClientMemory.from_state(before)
    server = federation.server
    reply = federation.answers([0], 0.1)[0]
    assert (reply.since, reply.memory) == (0, None)
    # The same round for a client that has the mean as its memory, and gain 1.
    mean, heard, trust = flat(server.mean), server.heard, server.trust
    said, weight = flat(reply.innovation), (server.step({0: reply})).weights[0]
    stands = heard if constants == {} else 1.0
    change = server.close({0: reply})
    np.testing.assert_allclose(
        flat(change), trust * stands * mean + weight * (said - trust * mean), rtol=AGREE
    )
    assert server.heard == pytest.approx(heard)
    np.testing.assert_allclose(flat(server.mean), mean + P[0] * (said - mean) / heard, rtol=AGREE)
    assert federation.answers([0], 0.1)[0].since == 4


class Faded:
    """Memories that fade, by formula: what is left of y_i counts, the rest is as never seen."""

    def __init__(self, life):
        self.y, self.mass = np.zeros((N, 6)), np.zeros(N)
        self.left, self.seen, self.round = 0.5 ** (1 / life), np.zeros(N), 0

    def change(self, cohort, said, trust, damping, share=0.5):
        self.round += 1
        self.y, self.mass = self.left * self.y, self.left * self.mass
        absent = [i for i in range(N) if i not in cohort]
        unseen = sum(P[i] * (1 - self.mass[i]) for i in absent)
        part = (1 - trust * (1 - share)) * (1 - P[cohort].sum() - unseen) + unseen
        change = trust * P @ self.y
        for i in cohort:
            weight = P[i] + part / len(cohort)
            change = change + weight * (said[i] - trust * self.y[i])
            absence = self.round - self.seen[i]
            gain = absence / (absence + damping) if self.seen[i] else 1.0
            self.y[i] += gain * (said[i] - self.y[i])
            self.mass[i] += gain * (1 - self.mass[i])
            self.seen[i] = self.round
        return change


def test_memories_fade_on_both_sides_by_formula():
    server = ServerMemory.start(P, parts(np.zeros(6)), correction=0.0, damping=3.0, half_life=4.0)
    clients = [ClientMemory() for _ in P]
    formula, rng, model = Faded(4.0), np.random.default_rng(3), np.zeros(6)
    for _ in range(40):
        cohort = np.flatnonzero(rng.random(N) < 0.3).tolist()
        trust = server.trust
        said = {i: trained(i, model, 0.1, 0.0) - model for i in cohort}
        replies = {i: clients[i].answer(server.request(i), parts(said[i])) for i in cohort}
        change = flat(server.close(replies))
        if cohort:
            expected = formula.change(np.array(cohort), said, trust, 3.0)
            np.testing.assert_allclose(change, expected, rtol=AGREE, atol=AGREE)
            mean = P @ formula.y / (P @ formula.mass)
            np.testing.assert_allclose(flat(server.mean), mean, rtol=AGREE, atol=AGREE)
        else:
            formula.round += 1
            formula.y, formula.mass = formula.left * formula.y, formula.left * formula.mass
        model = model + change
    assert 0.2 < server.heard < 0.9


def test_what_was_lost_fades():
    off = {}
    for life in (None, 5.0):
        server = ServerMemory.start(
            P, parts(np.zeros(6)), correction=0.0, damping=0.0, half_life=life
        )
        clients, rng = [ClientMemory() for _ in P], np.random.default_rng(0)
        for number in range(60):
            if number == 10:  # client 0 loses its memory, and says something else from now on
                clients[0] = ClientMemory()
            said = [TARGETS[i] + (number < 10) * (i == 0) for i in range(N)]
            some = 12 <= number < 59
            cohort = np.flatnonzero(rng.random(N) < (0.7 if some else 2.0)).tolist()
            server.close({i: clients[i].answer(server.request(i), parts(said[i])) for i in cohort})
        off[life] = np.abs(flat(server.mean) - P @ TARGETS).max()
    assert off[None] > 0.05
    assert off[5.0] < 0.01


@pytest.mark.parametrize("constants", CONSTANTS, ids=str)
def test_if_all_have_lost_their_memories_the_mean_is_right_again(constants):
    federation, rng = Federation(**constants), np.random.default_rng(1)
    for number in range(80):
        if number == 20:
            federation.clients = {client: ClientMemory() for client in range(N)}
        cohort = sorted(rng.choice(N, 3, replace=False).tolist())
        replies = federation.answers(cohort, 0.1)
        step = federation.server.step(replies)
        assert step.begins_anew == (number == 20)
        federation.close(replies, 0.1)
    server, clients = federation.server, federation.clients
    remembered = np.zeros(6)
    for client, held in clients.items():
        memory = held.recall(server.request(client))
        remembered += P[client] * flat(memory)
    np.testing.assert_allclose(flat(server.mean), remembered, rtol=AGREE, atol=AGREE)


def test_one_that_has_lost_its_memory_does_not_make_the_others_forget():
    federation = Federation()
    for _ in range(2):
        federation.close(federation.answers([0, 1, 2], 0.1), 0.1)
    federation.clients[0] = ClientMemory()
    assert not federation.server.step(federation.answers([0], 0.1)).begins_anew
    federation.clients[1] = ClientMemory()
    assert not federation.server.step(federation.answers([0, 1, 2], 0.1)).begins_anew
    step = federation.server.step(federation.answers([0, 1], 0.1))
    assert step.begins_anew
    assert federation.server.accepted[2] == 2
    federation.server.accept(step)
    assert federation.server.accepted.tolist() == [3, 3, 0, 0, 0, 0, 0, 0]


def test_a_client_that_keeps_nothing_is_used_and_not_remembered():
    federation = Federation()
    federation.close(federation.answers([1, 2], 0.1), 0.1)
    server = federation.server
    before, replies = server.state_dict(), federation.answers([0, 1], 0.1)
    step = server.step({**replies, 0: dataclasses.replace(replies[0], keeps=False)})
    kept = server.step(replies)
    np.testing.assert_array_equal(flat(step.change), flat(kept.change))
    assert step.cohort.tolist() == [1]
    np.testing.assert_equal(server.state_dict(), before)
    server.accept(step)
    assert (server.accepted[0], server.masses[0]) == (0, 0.0)
    heard = before["importance"] @ before["masses"]
    new = P[1] * server.gains[1] * flat(replies[1].innovation)
    after = np.exp(-step.rate) * (flat(before["mean"]) + new / heard)
    np.testing.assert_allclose(flat(server.mean), after, rtol=AGREE)


def test_clients_may_join_and_importance_may_change():
    grown = ServerMemory.start([1.0], parts(np.zeros(6)), correction=0.0)
    whole = ServerMemory.start(P, parts(np.zeros(6)), correction=0.0)
    sides = [(grown, [ClientMemory() for _ in range(N)]), (whole, [ClientMemory() for _ in P])]
    rng = np.random.default_rng(1)
    for number in range(1, 30):
        known = min(number, N)
        grown.reach(P[:known] / P[:known].sum())
        cohort = [i for i in range(known) if rng.random() < 0.6]
        for server, clients in sides:
            server.close(
                {
                    i: clients[i].answer(server.request(i), parts(TARGETS[i] / number))
                    for i in cohort
                }
            )
    # Memories are weighed by importance relative to one another, so the mean is the same.
    np.testing.assert_allclose(grown.heard, whole.heard)
    np.testing.assert_array_equal(grown.accepted, whole.accepted)
    np.testing.assert_allclose(flat(grown.mean), flat(whole.mean), rtol=AGREE)


def test_a_server_that_starts_anew_makes_clients_do_so():
    federation = Federation()
    for _ in range(2):
        federation.close(federation.answers([0, 1], 0.1), 0.1)
    federation.server = ServerMemory.start(P, parts(np.zeros(6)))
    assert federation.answers([0], 0.1)[0].since == 0


def test_clients_without_importance_are_left_out():
    server = ServerMemory.start([0.0, 1.0], [np.zeros(2)])
    reply = ClientMemory().answer(server.request(0), [np.ones(2)])
    np.testing.assert_array_equal(server.close({0: reply})[0], np.zeros(2))
    assert (server.rounds, server.heard) == (1, 0.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"innovation": [np.zeros(3), np.zeros((5, 1))]}, "client 0 lacks arrays"),
        ({"innovation": [np.zeros(())]}, "client 0 lacks arrays"),
        ({"innovation": parts(np.full(6, np.nan))}, "client 0 is not finite"),
        ({"memory": parts(np.full(6, np.inf))}, "client 0 is not finite"),
        ({"memory": None}, "client 0 lacks arrays"),
        ({"products": (float("nan"), 1.0, 1.0)}, "client 0 is not finite"),
    ],
)
def test_a_damaged_reply_is_refused_before_anything_changes(changes, told):
    federation = Federation()
    federation.close(federation.answers([0, 1], 0.1), 0.1)
    replies = federation.answers([0, 1], 0.1)
    before = federation.server.state_dict()
    with pytest.raises(RuleError, match=told):
        federation.server.close({**replies, 0: dataclasses.replace(replies[0], **changes)})
    np.testing.assert_equal(federation.server.state_dict(), before)


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: ServerMemory.start([0.5, 0.25], [np.zeros(2)]), ImportanceError, "sums to 0.75"),
        (lambda: ServerMemory.start(P, [np.zeros(2)], trust=2.0), OptionError, "trust is 2.0"),
        (lambda: ServerMemory.from_state({"rounds": 3}), FileFormatError, "ServerMemory"),
        (lambda: ClientMemory.from_state({"mean": []}), FileFormatError, "'mean'"),
    ],
)
def test_what_cannot_be_used_is_refused(make, error, told):
    with pytest.raises(error, match=told):
        make()


def test_a_span_of_zero_is_refused():
    server = ServerMemory.start(P, [np.zeros(2)])
    with pytest.raises(OptionError, match="span is 0.0"):
        ClientMemory().answer(server.request(0), [np.zeros(2)], span=0.0)


def test_single_precision_is_kept():
    server = ServerMemory.start([0.5, 0.5], [np.zeros(2, np.float32)])
    client = ClientMemory()
    for number in range(3):
        reply = client.answer(server.request(0), [np.full(2, number + 1, np.float32)], span=0.5)
        (change,) = server.close({0: reply})
        assert {change.dtype, server.mean[0].dtype, reply.innovation[0].dtype} == {
            np.dtype(np.float32)
        }
