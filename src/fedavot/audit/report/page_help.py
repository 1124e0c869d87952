"""The page's help: how to use the weights, and how the figures were computed."""

from pathlib import Path

from fedavot.audit.decision.rules import (
    AS_APPLIED,
    FEDAVG,
    HORVITZ_THOMPSON,
    ONLINE,
    SELECT,
    SELF_NORMALISED_IPW,
    VARIANCE,
    label,
)
from fedavot.audit.findings import Advice, Findings
from fedavot.audit.report.availability_words import OWED
from fedavot.audit.report.markup import text
from fedavot.audit.report.numerals import stretch
from fedavot.online import STEP

GLOSSARY = {
    "Importance": "How much each client should count in the model, as a share of the total.",
    "Owed": OWED,
    "Gap": "The share of the weight that goes to the wrong clients: the total variation distance "
    "between the weights that clients get and their importance, or what they are owed where that "
    "differs.",
    "Alignment": "Weights that depend on who else took part in the round, chosen so that over all "
    "rounds each client gets its importance. FedAVOT finds them by optimal transport.",
    "Softness": "How far the weights may stay from the importance in order to be more even; 0 is "
    "exact alignment.",
    "Effective cohort size": "The number of equally weighted clients that would average out as "
    "much noise. Uneven weights average out less.",
    "Hall ratio": "The largest ratio, over sets of clients, of the importance of the set to the "
    "share of rounds with at least one of its clients.",
    "Held out": "The last part of the log, used to judge weights fitted to the first part.",
}
"""Terms of the page and their meaning."""
RULE_GLOSSARY = {
    FEDAVG: "FedAvg with equal weights: in each round, all participants count the same.",
    HORVITZ_THOMPSON: "Inverse probability weighting (IPW): each client's importance divided by "
    "how often it takes part. The weights of a round need not sum to one.",
    SELF_NORMALISED_IPW: "The same, scaled to sum to one in each round.",
    VARIANCE: "Exact alignment with the most even weights.",
    ONLINE: "Alignment that learns its weights during training, without a log.",
    SELECT: "The server selects clients among those available, as many as took part, by weights "
    "learned during training.",
    AS_APPLIED: "The weights that were used, according to the log.",
}
"""Rules and their meaning; a page has those of its log."""


def usage(findings: Findings, folder: Path) -> str:
    """Return how to apply the recommendation, with code that reads the files in a folder."""
    advice, size = findings.advice, max(1, round(findings.mean_cohort_size))
    told = "For the names of the clients that took part in a round, in the order of their updates:"
    if advice.rule == SELECT:
        told = "In every round, from the names of the clients that are available:"
    return "".join(
        [
            f"<p>{_source(advice)}{_relative(folder)}</p>",
            "<h3>In Flower</h3>",
            _code("Python code in Flower", _flower(advice, size, folder)),
            "<h3>Anywhere else</h3>",
            f"<p>{told}</p>",
            _code("Python code anywhere else", _elsewhere(advice, size, folder)),
            "<p>In addition, keep the last update of each client.</p>"
            if advice.action == "use memory"
            else "",
        ]
    )


def _relative(folder: Path) -> str:
    """Say from where the paths in the code are valid."""
    if folder.is_absolute() or folder == Path():
        return ""
    return " Paths in the code are relative to the folder in which the audit was run."


def _literal(path: Path) -> str:
    """Return a path as a literal of Python."""
    name = path.as_posix()
    plain = name.isprintable() and not set(name) & {'"', "\\"}
    return f'"{name}"' if plain else ascii(name)


def _source(advice: Advice) -> str:
    """Say where the weights come from."""
    if advice.action in ("nothing to do", "collect more rounds"):
        kept = "weights in use" if advice.rule == AS_APPLIED else "plain average"
        return (
            f"Keep the {kept} for now. If you want other weights all the same, these are the "
            "closest that this log gives."
        )
    if not advice.online:
        until = "Until then, the" if advice.action == "change selection" else "The"
        return f"{until} weights are in <code>alignment.json</code>, beside this page."
    why = (
        "they belong to the selection of this log, not to the new one"
        if advice.rule == SELECT
        else "fitted to the first part of this log, they did not carry over well enough to the last"
    )
    return (
        "Let the strategy learn the weights during training; it only needs the importance, which "
        "is in <code>clients.csv</code>. <strong>Do not use the fixed weights in "
        f"<code>alignment.json</code></strong>: {why}."
    )


def method(findings: Findings) -> str:
    """Return how the figures were computed, and a glossary."""
    fit, rules = findings.fit, {one.rule for one in findings.price.standings}
    judged = (
        "<li>Held-out figures are for weights fitted to other rounds: to "
        f"{stretch('first', fit.fitted_rounds)}, and judged on "
        f"{stretch('last', fit.held_out_rounds)}. Weights learned during training depend on the "
        "rounds before each round.</li>"
        if findings.has_held_out
        else ""
    )
    unused = {"" if judged else "Held out", "" if findings.owes_otherwise else "Owed"}
    explained = {
        **{term: words for term, words in GLOSSARY.items() if term not in unused},
        **{_heading(rule): words for rule, words in RULE_GLOSSARY.items() if rule in rules},
    }
    terms = "".join(
        f"<div><dt>{text(term)}</dt><dd>{text(words)}</dd></div>"
        for term, words in explained.items()
    )
    return (
        '<ul class="told">'
        "<li>Figures describe this log. An interval contains the figure's long-run value with "
        "95\u202f% confidence. It comes from a bootstrap of blocks of consecutive rounds, so that "
        "rounds that resemble each other are drawn together.</li>"
        "<li>Rounds without participants are left out. A client in an unknown state counts neither "
        "as present nor as absent; only to judge whether exact alignment is possible is its state "
        "drawn at random.</li>"
        f"{judged}</ul>"
        f'<h3>Glossary</h3><dl class="glossary">{terms}</dl>'
    )


def _heading(rule: str) -> str:
    """Return a rule's label with a capital."""
    return label(rule)[0].upper() + label(rule)[1:]


def _flower(advice: Advice, size: int, folder: Path) -> str:
    """Return the code for a Flower server."""
    memory = advice.action == "use memory"
    options = []
    if advice.rule == SELECT:
        options.append(f"cohort_size={size}")
    if advice.online and advice.softness > 0:
        options.append(f"softness={advice.softness:.3g}")
    if advice.online:
        learned = f"weighting=Weighting({', '.join(options)})" if options else ""
        arguments = [f"importance={_literal(folder / 'clients.csv')}", *filter(None, [learned])]
    else:
        given = ", ".join([_literal(folder / "alignment.json"), *options])
        arguments = [f"weighting=Weighting.load({given})"]
    if memory:
        arguments += ['memory="server"', 'folder="run"']
    names = "FedAVOT, Weighting" if any("Weighting" in one for one in arguments) else "FedAVOT"
    lines = "".join(f"    {one},\n" for one in ["FedAvg()", *arguments])
    return (
        "# Clients need the names they have in the log: register nodes under them,\n"
        "# or add fedavot.flower.introduce(app) to the ClientApp.\n"
        "from flwr.serverapp.strategy import FedAvg\n"
        f"from fedavot.flower import {names}\n\n"
        f"strategy = FedAVOT(\n{lines})"
    )


def _elsewhere(advice: Advice, size: int, folder: Path) -> str:
    """Return the code that weights a round without Flower."""
    if not advice.online:
        return (
            "import fedavot as fa\n\n"
            f"alignment = fa.Alignment.load({_literal(folder / 'alignment.json')})\n"
            "weights = alignment.weights(who_took_part)"
        )
    soft = f"softness={advice.softness:.3g}, " if advice.softness > 0 else ""
    start = (
        "import numpy as np\n"
        "import fedavot as fa\n\n"
        f"importance = fa.importance.read_mapping({_literal(folder / 'clients.csv')})\n"
        "start = np.log(np.maximum(list(importance.values()), 1e-12))\n"
        f"aligner = fa.{'Soft' if soft else ''}OnlineAligner(\n"
        f"    importance, {soft}step={STEP:g}, potentials=start\n"
        ")\n\n"
        "# In every round; aligner.save(path) keeps what was learned.\n"
    )
    if advice.rule != SELECT:
        return f"{start}weights = aligner.observe(who_took_part)"
    return (
        f"{start}"
        "shares = aligner.weights(who_is_available)\n"
        f"chosen, weights = fa.select(shares, {size}, np.random.default_rng())\n"
        "selected = [who_is_available[at] for at in chosen]\n"
        "# If some do not reply, observe the others, with their weights scaled to sum to one.\n"
        "aligner.observe(selected, weights)"
    )


def _code(label: str, lines: str) -> str:
    return f'<pre tabindex="0" role="region" aria-label="{label}"><code>{text(lines)}</code></pre>'
