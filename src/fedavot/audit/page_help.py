"""What a page says beside what was found: how to use the weights, and how figures were made."""

from fedavot.audit.availability_words import has_held_out
from fedavot.audit.findings import Advice, Findings
from fedavot.audit.markup import text
from fedavot.audit.telling import stretch
from fedavot.audit.words import SELECTION
from fedavot.online import STEP

GLOSSARY = {
    "Plain average": "FedAvg with equal weights: in each round everyone who took part counts the "
    "same. Also written 1/|S|.",
    "Importance": "What each client should count in the model, as a share of the whole.",
    "Gap": "How much of the weight goes to the wrong clients, from 0 (none) to 1 (all). It is the "
    "total variation distance between what clients count and what they should.",
    "Alignment": "Weights that depend on who else took part in the round, made so that over the "
    "rounds each client counts what it should. FedAVOT finds them by optimal transport.",
    "Softness": "How much closeness is given up for even weights; 0 is exact alignment.",
    "Effective cohort size": "How many equally weighted clients average as well. Uneven weights "
    "average out less noise.",
    "Hall ratio": "How many times too important the worst set of clients is: the importance it "
    "holds, over the share of rounds with any of them.",
    "Held out": "The last part of the log, on which weights made from the first part are judged.",
    "IPW": "Each client's importance over how often it takes part. The weights of a round need not "
    "sum to one; self-normalised, they are scaled so that they do.",
    "Least variance": "Exact alignment with the evenest weights there are.",
    "Online": "Alignment that learns its weights while training goes on, without a log.",
    "Online selection": "The server chooses whom of the available to ask, as many as took part, by "
    "weights learned on the way.",
    "As applied": "The weights that were really used, as the log tells them.",
}
"""Words of the page, explained."""
SOME = ("IPW", "Least variance", "Online", "Online selection", "As applied")
"""Words for rules that not every log has."""


def usage(findings: Findings) -> str:
    """Return how to put the recommendation into practice, with code."""
    advice, size = findings.advice, max(1, round(findings.mean_cohort))
    told = "For the clients that took part in a round, in the order of their updates:"
    if advice.rule == SELECTION:
        told = "In every round, from the names of the clients that are available:"
    return "".join(
        [
            f"<p>{_source(advice)}</p>",
            "<h3>In Flower</h3>",
            _code("Python code in Flower", _flower(advice, size)),
            "<h3>Anywhere else</h3>",
            f"<p>{told}</p>",
            _code("Python code anywhere else", _elsewhere(advice, size)),
            "<p>The last update of each client has to be kept beside.</p>"
            if advice.action == "use memory"
            else "",
        ]
    )


def _source(advice: Advice) -> str:
    """Say where the weights come from."""
    if advice.action in ("nothing to do", "collect more rounds"):
        kept = "weights in use" if advice.rule == "as applied" else "plain average"
        return (
            f"Keep the {kept} for now. Should you want other weights all the same, these are the "
            "nearest this log gives."
        )
    if not advice.online:
        until = "Until then, the" if advice.action == "change selection" else "The"
        return f"{until} weights are in <code>alignment.json</code>, beside this page."
    why = (
        "they are for clients asked as they were, not as they will be"
        if advice.rule == SELECTION
        else "made from the first part of this log, they did not carry over well enough to the last"
    )
    return (
        "Let the strategy learn the weights while training goes on; it needs the importance alone, "
        "which is in <code>clients.csv</code>. <strong>Do not fix the weights in "
        f"<code>alignment.json</code></strong>: {why}."
    )


def method(findings: Findings) -> str:
    """Return how the figures were made, and the words explained."""
    fit, rules = findings.fit, {one.rule.lower() for one in findings.price.standings}
    judged = (
        "<li>What is said of held-out rounds is of weights that had not seen them: they were made "
        f"from {stretch('first', fit.fitted)} and judged on {stretch('last', fit.held_out)}. "
        "Weights learned on the way had seen the rounds before each.</li>"
        if has_held_out(findings)
        else ""
    )
    terms = "".join(
        f"<div><dt>{text(term)}</dt><dd>{text(meaning)}</dd></div>"
        for term, meaning in GLOSSARY.items()
        if (term not in SOME or term.lower() in rules) and (judged or term != "Held out")
    )
    return (
        '<ul class="told">'
        "<li>Figures are of this log. An interval is where the figure would be in the long run, "
        "with 95\u202f% confidence: rounds are drawn again in blocks that follow each other, so "
        "that what lasts over several rounds is drawn together.</li>"
        "<li>Rounds in which nobody took part are left out. Where it is not known whether a client "
        "was there, it is neither counted as there nor as absent; only to judge what is possible "
        "its state is drawn.</li>"
        f"{judged}</ul>"
        f'<h3>Words used here</h3><dl class="glossary">{terms}</dl>'
    )


def _flower(advice: Advice, size: int) -> str:
    """Return the lines that a Flower server needs."""
    memory = advice.action == "use memory"
    options = []
    if memory:
        options.append("memory=True")
    if advice.rule == SELECTION:
        options.append(f"cohort_size={size}")
    if advice.online and advice.softness > 0:
        options.append(f"softness={advice.softness:.3g}")
    if advice.online:
        learned = f"weighting=Weighting({', '.join(options)})" if options else ""
        arguments = ['importance="clients.csv"', *filter(None, [learned])]
    else:
        given = ", ".join(['"alignment.json"', *options])
        arguments = [f"weighting=Weighting.load({given})"]
    if memory:
        arguments.append('folder="run"')
    names = "FedAVOT, Weighting" if any("Weighting" in one for one in arguments) else "FedAVOT"
    lines = "".join(f"    {one},\n" for one in ["FedAvg()", *arguments])
    return (
        "# Clients must have the log's names: register nodes under them, or add\n"
        "# introduce(app) of fedavot.flower to the ClientApp.\n"
        "from flwr.serverapp.strategy import FedAvg\n"
        f"from fedavot.flower import {names}\n\n"
        f"strategy = FedAVOT(\n{lines})"
    )


def _elsewhere(advice: Advice, size: int) -> str:
    """Return the lines that weigh a round without Flower."""
    if not advice.online:
        return (
            "import json\n"
            "import fedavot as fa\n\n"
            'alignment = fa.Alignment.load("alignment.json")\n'
            'with open("alignment.json", encoding="utf-8") as file:\n'
            '    place = {name: at for at, name in enumerate(json.load(file)["clients"])}\n'
            "weights = alignment.weights([place[name] for name in who_took_part])"
        )
    soft = f"softness={advice.softness:.3g}, " if advice.softness > 0 else ""
    start = (
        "import numpy as np\n"
        "import fedavot as fa\n\n"
        'importance = fa.importance.read_mapping("clients.csv")  # beside this page\n'
        "place = {name: at for at, name in enumerate(importance)}\n"
        "shares = fa.importance.from_mapping(importance, list(place))\n"
        "start = np.log(np.maximum(shares, 1e-12))\n"
        f"aligner = fa.{'Soft' if soft else ''}OnlineAligner(\n"
        f"    shares, {soft}step={STEP:g}, potentials=start\n"
        ")\n\n"
        "# in every round; aligner.save(path) keeps what it has learned\n"
    )
    if advice.rule != SELECTION:
        return f"{start}weights = aligner.observe([place[name] for name in who_took_part])"
    return (
        f"{start}"
        "there = [place[name] for name in who_is_available]\n"
        f"chosen, weights = fa.select(aligner.weights(there), {size}, np.random.default_rng())\n"
        "asked = [who_is_available[at] for at in chosen]\n"
        "# should some not reply, observe those who did, with their weights scaled to sum to one\n"
        "aligner.observe([place[name] for name in asked], weights)"
    )


def _code(label: str, lines: str) -> str:
    return f'<pre tabindex="0" role="region" aria-label="{label}"><code>{text(lines)}</code></pre>'
