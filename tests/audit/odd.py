"""Findings whose names are out to break a page, and of more clients than a page shows."""

from dataclasses import replace

import made
import numpy as np

from fedavot.audit.findings import Shares

NAMES = (
    "<script>document.title = 'owned'</script>",
    '"quoted", with a comma',
    "👩‍🔬 laboratory",
    "long" * 75,
    "مستشفى القاهرة 7",
    "two\nlines\tand a tab",
    "\x1b[31mred\x00",
    "$x^2$ & <b>co</b>",
    "   ",
    "</style></script><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "{{ braces }} %s \\n",
)


def named(**changes):
    """Return findings whose every name is odd: clients, groups, the log's and a note."""
    groups = ("<b>bold</b>", "مستشفى", "g" * 200)
    fields = {"clients": NAMES, "groups": groups, "source": "<i>log</i>.csv", "notes": NAMES[:1]}
    return made.infeasible(**{**fields, **changes})


def many(n_clients=700, n_groups=0):
    """Return findings of many clients, each off by its own amount."""
    rng = np.random.default_rng(3)
    wanted, implied, first = (rng.dirichlet(np.full(n_clients, 3.0)) for _ in range(3))
    shares = Shares(wanted, wanted, implied, (wanted + implied) / 2, rng.random(n_clients))
    found = made.infeasible()
    weak = np.arange(100)
    reach = replace(found.reach, deficient=found.reach.deficient._replace(clients=weak))
    alone = {"groups_by_hour": None, "group_after_presence": None, "group_after_absence": None}
    calm = replace(found.behaviour, **alone)
    calm = replace(calm, implied_first_half=first, implied_last_half=implied)
    fields = {"groups": (), "group_of": None, "by_group": None}
    if n_groups:
        group_of = np.arange(n_clients) % n_groups
        sums = [
            np.bincount(group_of, getattr(shares, name), n_groups)
            for name in ("importance", "owed", "implied", "attained")
        ]
        fields = {
            "groups": tuple(f"region {at}" for at in range(n_groups)),
            "group_of": group_of,
            "by_group": Shares(*[*sums, np.full(n_groups, 0.5)]),
        }
        after, without = rng.random(n_groups), rng.random(n_groups)
        calm = replace(calm, groups_by_hour=rng.random((n_groups, 24)))
        calm = replace(calm, group_after_presence=after, group_after_absence=without)
    clients = tuple(f"client-{at}" for at in range(n_clients))
    return replace(found, clients=clients, by_client=shares, reach=reach, behaviour=calm, **fields)
