"""The page that explains a sample: its files, what is assumed, and what is true."""

import numpy as np

from fedavot.audit.sample.truth import (
    CLINICS,
    COHORT,
    GROUPS,
    HABITS,
    IN_OFFICE,
    OFFICE_HOURS,
    START,
    STATUSES,
    WEEKDAY,
    WEEKEND,
    Truth,
)

README = """\
A synthetic federation
======================
{size} clients, {days} days, seed {seed}. Nothing here was measured: every number below is an
assumption, or follows from one. The same seed and sizes give the same files, byte for byte.

The files
---------
log.csv         round, client, time (UTC), status: one row for each client that was asked
importance.csv  client, importance, group: what each client should count; it sums to one
groups.csv      client, group
targets.csv     group, share: what each group should count
groups.csv and targets.csv together say the same as importance.csv: a group's share is split equally
among its clients.

What is assumed
---------------
Rounds.   Every 30 minutes, day and night, from {start}.
Places.   Europe (UTC+1), America (UTC-5) and Asia (UTC+8), without summer time. A client's name
          begins with its place: eu, am, as.
Phones.   Online while charging, mostly at night, with the probability below by local hour. That
          is for the first phone of a group: the second has {second} of it, the third {third}, the
          fourth all of it again, and so on.
Clinics.  In Europe. Online from Monday to Friday, {office} local time, with probability
          {in_office} in each round, and never else.
Chance.   Given the hour, clients are online independently of each other and of the round before.
Cohort.   Up to {cohort} of the clients online, drawn uniformly; all of them if they are fewer. A
          round in which nobody is online leaves no row.
Status.   Of those asked, {replied} replied and so took part, {late} were late, and {failed} failed,
          whoever they are. Clients that were online and not asked have no row.

    local   weekdays  weekend
{hours}

What is true
------------
Computed exactly from the assumptions, for logs of this length; a log drawn from them scatters
around it.

group             clients  importance  online  takes part  in average  reached
{table}

online      expected share of the time that a client of the group is online
takes part  probability that a client of the group takes part in a round
in average  the group's expected share in the plain average of the replies
reached     probability that at least one client of the group takes part in a round

The plain average gives {gap} of the weight to the wrong clients (the gap, in total variation).
The clinics hold {share} of the importance and get {average} of the plain average. At least one
of them takes part in {reach} of the rounds.
{verdict}
"""


def readme(facts: Truth, *, seed: int, days: int) -> str:
    """Write the page of a log that was drawn with a seed, of so many days."""
    of_group = {group.name: np.array(facts.groups) == group.name for group in GROUPS}
    table = [
        f"{group.name:17} {of.sum():7} {group.share:11.1%} {facts.online[of].mean():7.1%} "
        f"{facts.inclusion[of].mean():11.1%} {facts.average[of].sum():11.1%} "
        f"{facts.reach[group.name]:8.1%}"
        for group, of in zip(GROUPS, of_group.values(), strict=True)
    ]
    scarce = GROUPS[CLINICS]
    meets = facts.reach[scarce.name] >= scarce.share
    return README.format(
        size=len(facts.clients),
        days=days,
        seed=seed,
        start=f"Monday {START:%Y-%m-%d %H:%M} UTC",
        cohort=COHORT,
        **{word: f"{chance:.0%}" for word, chance in STATUSES.items()},
        office=f"{OFFICE_HOURS[0]}:00 to {OFFICE_HOURS[1]}:00",
        in_office=f"{IN_OFFICE:.0%}",
        second=f"{HABITS[1]:.0%}",
        third=f"{HABITS[2]:.0%}",
        hours="\n".join(
            f"    {hour:02d}:00  {weekday:8.0%} {weekend:8.0%}"
            for hour, (weekday, weekend) in enumerate(zip(WEEKDAY, WEEKEND, strict=True))
        ),
        table="\n".join(table),
        gap=f"{facts.gap:.1%}",
        share=f"{scarce.share:.0%}",
        average=f"{facts.average[of_group[scarce.name]].sum():.1%}",
        reach=f"{facts.reach[scarce.name]:.1%}",
        verdict=(
            "They are there often enough to be given their importance."
            if meets
            else "Weights that sum to one over a round's replies cannot give them more than that."
        ),
    )
