"""Solvers called from potentials, a tolerance and a number of evaluations alone."""

from fedavot.solve import dual
from fedavot.solve import ipfp as scaling
from fedavot.solve import newton as climbing


def _from_potentials(solver):
    def solve(problem, potentials, *, tol, max_iter, **options):
        start, stop = dual.Iterate.start(potentials), dual.StoppingRule(tol, max_iter)
        return solver(problem, start, stop, budget=max_iter, **options)

    return solve


newton = _from_potentials(climbing.newton)
ipfp = _from_potentials(scaling.ipfp)
accelerated = _from_potentials(scaling.accelerated)
