"""What a chaos run came to, and how it is told."""

from tests.support.chaos import schedule

LOG_LINES = 25
# Of the steps. Another fault may be quicker than a few that need the server; a run that comes to fewer than this says has
# not met what its schedule promises, because something is wrong with the faults.
MISSED_MAX = 0.2


class Outcome:
    def __init__(self, plan, steps, verdict, final, failures, missed, memory, relays):
        self.plan, self.steps, self.failures = plan, steps, failures
        self.verdict, self.final = verdict, final
        self.missed, self.memory, self.relays = missed, memory, relays

    def by_fault(self):
        """[(Fault, duplicates that it explains)]"""
        return list(zip(self.verdict.faults, self.verdict.duplicates_by_fault))

    def worst(self, kinds):
        """(duplicates, in flight, kind) of the worst fault whose name begins so; None when there was none."""
        found = [(number, fault.in_flight, fault.what) for fault, number in self.by_fault() if fault.what.startswith(kinds)]
        return max(found, default=None)

    def summary(self):
        """One line."""
        counts = self.verdict.counts
        kill, other = self.worst("relay.kill"), self.worst("")
        memory = "{:+.1f}kB/min over {:.0f}s".format(*self.memory.slope()) if self.plan.program else "not measured"
        kills = sum(fault.what == "relay.kill" for fault in self.verdict.faults)
        return (f"chaos sink={self.plan.sink} seed={self.plan.seed} seconds={self.plan.seconds:g}"
                f" events={counts['produced']} dead={counts['dead']} receipts={len(self.verdict.receipts)}"
                f" faults={len(self.steps)} violations={len(self.verdict.violations) + len(self.failures)}"
                f" duplicates={self.verdict.duplicates} kills={kills}"
                f" worst_kill={f'{kill[0]}/{kill[1]}' if kill else 'none'}"
                f" worst_fault={f'{other[0]}/{other[1]}({other[2]})' if other else 'none'}"
                f" memory={memory} missed={len(self.missed)} stalls={len(self.memory.stalls)}")

    def too_many_missed(self):
        """As text; empty when they are few enough."""
        if len(self.missed) <= MISSED_MAX * len(self.steps):
            return []
        return [f"{len(self.missed)} of {len(self.steps)} faults were not done, and {MISSED_MAX:.0%} may be"]

    def report(self):
        lines = [self.summary(), *self.failures, *self.too_many_missed(), self.verdict.report(),
                 f"PGCOURIER_CHAOS_SEED={self.plan.seed} PGCOURIER_CHAOS_SECONDS={self.plan.seconds:g} repeat this schedule:",
                 schedule.text(self.steps)]
        lines += [f"not done: {step.kind} at {step.at_s} s: {why}" for step, why in self.missed]
        for relay in self.relays:
            lines += [f"-- {relay.config_path}, exit code {relay.exit_code}", relay.process.log_tail(LOG_LINES)]
        return "\n".join(lines)

    def require(self):
        if self.failures or self.too_many_missed() or not self.verdict.ok:
            raise AssertionError(self.report())
        return self
