"""Audit a federation of phones that train while they charge: uniform importance, and skewed.

    python phones.py DATA [--out FOLDER]

DATA has two tables: flash300_intervals.csv (client, state, start_s, end_s) and
flash300_coverage.csv (client, obs_start_s, last_event_s). Rounds are every ten minutes, with up to
ten of the phones that are charging. Skewed importance is in proportion to 1 / s, where s is the
share of a phone's observed time that it spends charging, at least 0.05; a phone that was observed
for no time at all gets the median share.

Writes the skewed importance and a report per audit into FOLDER, and prints Markdown.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np

from fedavot.audit import Findings, Participation, audit, federation_of, read_log, write_audit
from fedavot.audit.statistics.rules import label

INTERVALS, COVERAGE = "flash300_intervals.csv", "flash300_coverage.csv"
STATE, PERIOD, COHORT = "charging", 600, 10
FLOOR = 0.05
"""Smallest share of charging time that is used for the importance."""


def percent(value: float, digits: int = 0) -> str:
    """Return a share in per cent, with a narrow space before the sign."""
    return f"{100 * value:.{digits}f}\u202f%"


def charging_shares(data: Path) -> dict[str, float]:
    """Return the share of its observed time that each phone spends charging."""
    charging: dict[str, float] = defaultdict(float)
    with (data / INTERVALS).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["state"] == STATE:
                charging[row["client"]] += float(row["end_s"]) - float(row["start_s"])
    with (data / COVERAGE).open(encoding="utf-8", newline="") as file:
        observed = {
            row["client"]: float(row["last_event_s"]) - float(row["obs_start_s"])
            for row in csv.DictReader(file)
        }
    shares = {phone: charging[phone] / time for phone, time in observed.items() if time > 0}
    usual = median(shares.values())
    return {phone: shares.get(phone, usual) for phone in observed}


def write_importance(data: Path, path: Path) -> None:
    """Write an importance that favours phones that seldom charge."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("client", "importance"))
        rows.writerows(
            (phone, f"{1 / max(share, FLOOR):.6g}")
            for phone, share in charging_shares(data).items()
        )


def unknown_share(log: Participation, first: float, last: float) -> float:
    """Return the share of phones whose state is unknown, between two fractions of the log."""
    if log.unknown is None:
        return 0.0
    low, high = (round(part * log.n_rounds) for part in (first, last))
    hidden = log.unknown.between(low, high).members.size
    return float(hidden / (max(high - low, 1) * log.n_clients))


def table(findings: Findings) -> str:
    """Return the rules' losses in training on the log, and the gaps of those that are weights."""
    lines = [
        "| rule | excess loss, last third | over all variants | gap, last third | 95 % interval "
        "| effective cohort size, last third | gap, whole log |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    advice = findings.recommendation
    advised = [choice.rule for choice in (advice.best, advice.second) if choice is not None]
    trained = findings.replay.trained if findings.replay else ()
    for one in sorted(trained, key=lambda one: one.held_out_to_plain.value):
        name = f"**{label(one.rule)}**" if one.rule in advised else label(one.rule)
        loss, rule = one.held_out_to_plain, findings.price.find(one.rule)
        cells = [name, percent(loss.value), f"{percent(loss.low)} to {percent(loss.high)}"]
        if rule is None:
            cells += ["–"] * 4
        else:
            gap, size = rule.held_out_gap, rule.held_out_effective_cohort_size
            cells += [percent(gap.value), f"{percent(gap.low)} to {percent(gap.high)}"]
            cells += [f"{size:.1f}", percent(rule.gap)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def told(findings: Findings) -> str:
    """Return the other findings, and what to do."""
    laws = ", ".join(
        f"{score.law} {percent(score.held_out_gap.value)}" for score in findings.fit.scores
    )
    short = findings.reach.deficiency
    return (
        f"Gap of FedAVOT in the last third, by the law it is fitted to: {laws}. Importance out of "
        f"reach of any weights: {percent(short.value, 1)}, and {percent(short.low, 1)} to "
        f"{percent(short.high, 1)} in the "
        f"long run.\n\nRecommended: {findings.recommendation.action}."
    )


def main() -> None:
    """Audit twice, write both reports, and print the tables of the page."""
    summary, _, details = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the two tables")
    parser.add_argument(
        "--out", type=Path, default=Path("results/phones"), help="folder for the reports"
    )
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    skewed = chosen.out / "importance.csv"
    write_importance(chosen.data, skewed)
    log = read_log(
        chosen.data / INTERVALS,
        period=PERIOD,
        cohort_size=COHORT,
        state=STATE,
        observed=chosen.data / COVERAGE,
    )
    there = log.available.sizes if log.available is not None else np.zeros(1)
    print(
        f"{log.n_clients} phones, {log.n_rounds} rounds, {int((there == 0).sum())} of them without "
        f"participants; {there.mean():.0f} charging on average. Unknown states: "
        f"{percent(unknown_share(log, 0, 2 / 3))} in the first two thirds, "
        f"{percent(unknown_share(log, 2 / 3, 1))} in the last third, "
        f"{percent(unknown_share(log, 0.9, 1))} in the last tenth."
    )
    for name, importance in (("uniform", "uniform"), ("skewed", skewed)):
        findings = audit(federation_of(log, importance=importance), source=INTERVALS)
        write_audit(findings, chosen.out / name)
        print(f"\nImportance {name}:\n\n{table(findings)}\n\n{told(findings)}")


if __name__ == "__main__":
    main()
