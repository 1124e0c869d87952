"""What a page says beside what was found: how to use the weights, and how figures were made."""

from fedavot.audit.findings import Findings
from fedavot.audit.markup import text
from fedavot.audit.numerals import count

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
}
"""Words of the page, explained."""


def usage(findings: Findings) -> str:
    """Return how to put the recommendation into practice, with code."""
    advice = findings.advice
    parts = []
    if advice.action in ("nothing to do", "collect more rounds"):
        parts.append(
            "<p>Keep the plain average for now. Should you want weights all the same, these are "
            "the nearest this log gives.</p>"
        )
    elif advice.online:
        parts.append(
            "<p>Let the strategy learn the weights while training goes on; it needs the importance "
            "alone, which is in <code>clients.csv</code>.</p>"
        )
    else:
        parts.append("<p>The weights are in <code>alignment.json</code>, beside this page.</p>")
    parts += [
        "<h3>In Flower</h3>",
        _code("Python code in Flower", _flower(findings)),
        "<h3>Anywhere else</h3>",
        "<p>For the clients that took part in a round, in the order of their updates:</p>",
        _code(
            "Python code anywhere else",
            "import json\n"
            "import fedavot as fa\n\n"
            'alignment = fa.Alignment.load("alignment.json")\n'
            'with open("alignment.json", encoding="utf-8") as file:\n'
            '    place = {name: at for at, name in enumerate(json.load(file)["clients"])}\n'
            "weights = alignment.weights([place[name] for name in who_took_part])",
        ),
    ]
    return "".join(parts)


def method(findings: Findings) -> str:
    """Return how the figures were made, and the words explained."""
    fit = findings.fit
    terms = "".join(
        f"<div><dt>{text(term)}</dt><dd>{text(meaning)}</dd></div>"
        for term, meaning in GLOSSARY.items()
    )
    judged = (
        f" They were made from the first {count(fit.fitted)} rounds and judged on the last "
        f"{count(fit.held_out)}."
        if fit.held_out
        else ""
    )
    return (
        '<ul class="told">'
        "<li>Figures are of this log. An interval is where the figure would be in the long run, "
        "with 95\u202f% confidence: rounds are drawn again in blocks that follow each other, so "
        "that what lasts over several rounds is drawn together.</li>"
        "<li>Rounds in which nobody took part are left out. Where it is not known whether a client "
        "was there, it is neither counted as there nor as absent.</li>"
        "<li>What is said of held-out rounds is of weights that had not seen them."
        f"{judged}</li></ul>"
        f'<h3>Words used here</h3><dl class="glossary">{terms}</dl>'
    )


def _flower(findings: Findings) -> str:
    """Return the lines that a Flower server needs."""
    advice = findings.advice
    memory = advice.action == "use memory"
    options = []
    if memory:
        options.append("memory=True")
    if advice.action == "change selection":
        options.append(f"cohort_size={max(1, round(findings.mean_cohort))}")
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
        "from flwr.serverapp.strategy import FedAvg\n"
        f"from fedavot.flower import {names}\n\n"
        f"strategy = FedAVOT(\n{lines})"
    )


def _code(label: str, lines: str) -> str:
    return f'<pre tabindex="0" role="region" aria-label="{label}"><code>{text(lines)}</code></pre>'
