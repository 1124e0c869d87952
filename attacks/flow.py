"""The maximum flow from clients to their cohorts, in integers of any size."""

from collections.abc import Sequence


def max_flow(
    supplies: Sequence[int], capacities: Sequence[int], cohorts: Sequence[Sequence[int]]
) -> tuple[int, list[int]]:
    """Send as much as possible from clients to the cohorts that have them, by Dinic's method.

    Returns
    -------
    int
        The amount that arrives.
    list of int
        The clients on the source's side of the smallest minimum cut.
    """
    network = _Network(supplies, capacities, cohorts)
    while network.reach():
        for client, left in enumerate(network.left):
            if left:
                network.left[client] -= network.push(client, left)
    reached = [client for client, depth in enumerate(network.client_depth) if depth >= 0]
    return sum(supplies) - sum(network.left), reached


class _Network:
    """Amounts that clients have left, that cohorts have room for, and that was sent."""

    def __init__(
        self, supplies: Sequence[int], capacities: Sequence[int], cohorts: Sequence[Sequence[int]]
    ) -> None:
        self.left, self.room = list(supplies), list(capacities)
        self.sent = [dict.fromkeys(cohort, 0) for cohort in cohorts]
        self.cohorts_of: list[list[int]] = [[] for _ in supplies]
        for number, cohort in enumerate(cohorts):
            for client in cohort:
                self.cohorts_of[client].append(number)

    def reach(self) -> bool:
        """Find how far clients and cohorts are from anything left; say if any in reach has room."""
        self.client_depth = [0 if left else -1 for left in self.left]
        self.cohort_depth = [-1] * len(self.room)
        self.untried = [iter(cohorts) for cohorts in self.cohorts_of]
        self.current = [next(untried, None) for untried in self.untried]
        layer, depth, found = [i for i, left in enumerate(self.left) if left], 0, False
        while layer and not found:
            met = {a for i in layer for a in self.cohorts_of[i] if self.cohort_depth[a] < 0}
            for cohort in met:
                self.cohort_depth[cohort] = depth + 1
                found = found or self.room[cohort] > 0
            layer = list(
                {j for a in met for j, x in self.sent[a].items() if x and self.client_depth[j] < 0}
            )
            depth += 2
            for client in layer:
                self.client_depth[client] = depth
        return found

    def push(self, client: int, amount: int) -> int:
        """Send up to an amount onward from a client along shortest ways; return what arrived."""
        arrived = 0
        while (cohort := self.current[client]) is not None:
            if self.cohort_depth[cohort] == self.client_depth[client] + 1:
                arrived += self._through(client, cohort, amount - arrived)
                if arrived == amount:
                    break
            self.current[client] = next(self.untried[client], None)
        return arrived

    def _through(self, client: int, cohort: int, amount: int) -> int:
        arrived = min(amount, self.room[cohort])
        self.room[cohort] -= arrived
        for other, given in list(self.sent[cohort].items()):
            if arrived == amount:
                break
            if given and self.client_depth[other] == self.cohort_depth[cohort] + 1:
                moved = self.push(other, min(amount - arrived, given))
                self.sent[cohort][other] -= moved
                arrived += moved
        self.sent[cohort][client] += arrived
        return arrived
