"""The terms of a report and what they mean, wherever they are explained."""

from fedavot.audit.recommended import Need
from fedavot.audit.statistics import rules

MEANT = {
    rules.FEDAVG: "the plain average",
    rules.BY_EXAMPLES: "the average by number of examples",
    rules.AS_APPLIED: "the weights in the log",
    rules.IMPORTANCE_AVERAGE: "the average by importance",
    rules.FEDAVGM: "the average by importance with momentum on the server",
    rules.HORVITZ_THOMPSON: "weights by inverse probability",
    rules.SELF_NORMALISED_IPW: "weights by inverse probability that sum to one",
    rules.FEDAVOT: "weights fitted to the log",
    rules.SOFT: "soft weights fitted to the log",
    rules.VARIANCE: "the most even exact weights",
    rules.ONLINE: "weights learned during training",
    rules.SOFT_ONLINE: "soft weights learned during training",
    rules.SELECT: "selection by weights learned during training",
    rules.STEADY: "the steady rule",
    rules.FULL: "full participation",
}
"""The rules within a sentence."""
EXPLAINED = {
    rules.FEDAVG: "FedAvg with equal weights: in each round, all participants count the same.",
    rules.BY_EXAMPLES: "FedAvg as it is usually run: participants count by their numbers of "
    "examples.",
    rules.AS_APPLIED: "The weights that were used, according to the log.",
    rules.IMPORTANCE_AVERAGE: "Participants count in proportion to their importance.",
    rules.FEDAVGM: "The average by importance, with momentum of 0.9 on the server.",
    rules.HORVITZ_THOMPSON: "Each client's importance divided by how often it takes part (inverse "
    "probability weighting, IPW). The weights of a round need not sum to one.",
    rules.SELF_NORMALISED_IPW: "Inverse probability weighting, scaled to sum to one in each round.",
    rules.FEDAVOT: "Weights that depend on who else takes part, so that over all rounds each "
    "client gets its importance as far as that is possible; found by optimal transport.",
    rules.SOFT: "FedAVOT, but closer to equal weights, which average out more noise.",
    rules.VARIANCE: "FedAVOT with the most even weights that are exact over the log.",
    rules.ONLINE: "FedAVOT with weights that are learned during training, without a log.",
    rules.SOFT_ONLINE: "FedAVOT, soft, with weights that are learned during training.",
    rules.SELECT: "The server asks as many of the available clients as took part, chosen by "
    "weights learned during training.",
    rules.STEADY: "Remembers the last update of every client, and lets those present speak for "
    "those absent in part.",
    rules.FULL: "All clients in every round: no rule can have that; it is a yardstick.",
}
"""What each rule does."""
NEEDS: dict[Need, str] = {
    "memory-clients": "storage for one model on each client",
    "memory-server": "storage for one model per client on the server",
    "select": "a server that chooses which of the available clients it asks",
}
LAWS = {
    "explicit": "cohorts like those in the log",
    "independent": "clients that are available independently of each other",
    "mixture": "clients that are available independently, given the time of day",
}
"""What each law assumes about availability, within a sentence."""
OWED = (
    "What a client is owed is its importance, counted only in rounds in which its state is known; "
    "in the other rounds it is owed nothing, and the other clients share its importance."
)
GAP = (
    "The share of the weight that goes to the wrong clients: the total variation distance between "
    "the clients' mean weights and their importance, or what they are owed where that differs."
)
EFFECTIVE = (
    "The number of equally weighted clients that would average out as much noise, in each round."
)
FITTED = "Over the first part of the log, which the weights are fitted to."
HELD_OUT = "In the last part of the log, with weights fitted to the first part."
CLOSEST = "With the weights that come as close to the importance as any can over these rounds."
LOSS = (
    "Excess loss, the loss above the smallest possible one, in the last part of the log, relative "
    "to that of what is in use now; behind it, the smallest and the largest over all variants."
)
CLEARLY = "Better than what is in use now in every variant, by more than chance."
