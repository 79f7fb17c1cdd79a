"""A whole what-if question, answered.

Owns `run_whatif`: the cluster as it is, scheduled once without the changes and once with them; then, where
wanted, the same by a stock scheduler's rules, and a search through everything that could be. What is
compared is always two results of scheduling, so that the difference is the change's and nothing else's.
"""

from __future__ import annotations

from plimsoll.schedule.settings import Settings
from plimsoll.tools.picture import Picture
from plimsoll.tools.picture.files import Tick, silent
from plimsoll.tools.whatif.outcome import compare
from plimsoll.tools.whatif.plan import Plan
from plimsoll.tools.whatif.report import Prediction, WhatifReport
from plimsoll.tools.whatif.stock import OURS, find_stock
from plimsoll.tools.whatif.totals import add_up, changed_nodes, rooms_of
from plimsoll.tools.whatif.whatif import Whatif


def run_whatif(
    picture: Picture, plan: Plan, *, settings: Settings | None = None, tick: Tick = silent
) -> WhatifReport:
    """What would be if the plan were carried out; the picture stays as it is."""
    settings = settings or Settings.default()
    stocks = [find_stock(name) for name in dict.fromkeys(plan.versus) if name != OURS]
    whatif = Whatif(picture, settings=settings)
    now = {name: standing.node for name, standing in whatif.state().items()}
    with whatif.branch() as before:
        before.schedule(preempt=plan.preempt, tick=tick)
        state_before = before.state()
        rooms_before = rooms_of(before.picture.snapshot)
        totals_before = add_up(before.picture, rooms_before)
    with whatif.branch() as after:
        plan.carry_out(after)
        outcome = after.schedule(preempt=plan.preempt, tick=tick)
        state_after = after.state()
        rooms_after = rooms_of(after.picture.snapshot)
        report = WhatifReport(
            plan=plan,
            origin=picture.origin,
            before=totals_before,
            after=add_up(after.picture, rooms_after),
            now=now,
            states=(state_before, state_after),
            difference=compare(state_before, state_after),
            outcome=outcome,
            evicted=after.evicted,
            nodes=changed_nodes(rooms_before, rooms_after),
            passed_by=tuple(after.passed_by),
        )
    for stock in stocks:
        other = Whatif(stock.picture(picture), settings=stock.settings(settings))
        plan.carry_out(other)
        other.schedule(preempt=plan.preempt, tick=tick)
        report.predictions.append(Prediction(stock.name, stock.about, other.state()))
    return report
