"""The relay's own code with one thing wrong at a time: each has to be found by the simulation within a bounded number of
seeds. mutants.py [NAME...] prints how soon.

A mutant is compiled by itself and linked in front of the library, so that it takes the place of the real object."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(REPO, "build", "simulation")
STRETCHES = [100, 1000, 10000, 100000, 300000]  # most are found by the first hundred, a few need one in 40,000


@dataclass(frozen=True)
class Mutant:
    name: str
    found_as: list  # what it has to be found as, one of them: a guarantee of judge.c, or what a run came to
    path: str
    old: str
    new: str
    soon: bool = False  # found by one of the first seeds: cheap enough for every run


MUTANTS = [
    Mutant("acks_what_is_in_flight", ["G1"], "relay/deliver/deliver.c",
           "while (lane->unacked && lane->unacked->delivery.verdict == VERDICT_ACKED) {", "while (lane->unacked) {", soon=True),
    Mutant("sends_before_the_ack_of_the_event_before", ["G2"], "relay/deliver/ready.c",
           "if (outlet->sink->traits & SINK_KEEPS_KEY_ORDER)\n        return SIZE_MAX;", "return SIZE_MAX;", soon=True),
    Mutant("sends_a_run_before_the_verdicts_of_the_one_before", ["G2"], "relay/deliver/deliver.c",
           "bool alone = lane->in_flight == 0 ||", "bool alone = lane->in_flight >= 0 ||"),
    Mutant("joins_events_to_no_run", ["G2"], "relay/deliver/ready.c", "d->joined = run && n > 0;", "d->joined = false;", soon=True),
    Mutant("goes_on_past_a_failed_event", ["G2"], "relay/deliver/deliver.c",
           "    send_no_more(lane);\n    /* A lane may", "    return;\n    /* A lane may", soon=True),
    Mutant("takes_a_held_back_lane_for_one_that_has_not_failed", ["G6"], "relay/deliver/deliver.c",
           "if (lane_is_lost(lane) || (lane->failed &&", "if (lane->state != LANE_OPEN && (!lane->failed ||"),
    Mutant("delivers_before_it_reads_the_connection", ["G5"], "relay/relay.c",
           "    for (size_t i = 0; i < config->queue_count; i++) {\n        claim(",
           "    for (size_t i = 0; i < config->sink_count; i++)\n"
           "        deliver_ready(relay->outlets[i], relay->ps, now, 0);\n"
           "    for (size_t i = 0; i < config->queue_count; i++) {\n        claim("),
    Mutant("stops_and_goes_on_delivering", ["spin"], "relay/relay.c",
           "        deliver_stop_all(outlet, now);\n", "        return;\n"),
    Mutant("sends_on_after_the_claim_is_lost", ["G5"], "relay/hold/orphan.c",
           "            if (lane->state < LANE_FINISHED)\n                deliver_stop(lane, 0, now);\n", "", soon=True),
    Mutant("keeps_what_a_lost_claim_has_not_settled", ["G3"], "relay/hold/orphan.c",
           "            orphan_drop(queue, batch, now);\n", "            (void)batch;\n"),
    Mutant("claims_without_a_transaction", ["G6"], "relay/claim/claim_send.c",
           "return db_send_sql(claim->db, sql_claim_begin, err) &&\n           (!round->lasting", "return (!round->lasting"),
    Mutant("commits_without_the_settlement", ["G3"], "relay/claim/claim_send.c",
           "(!job || send_settlement(claim, job, commit, &err)) &&", ""),
    Mutant("commits_before_its_session_has_the_locks", ["G3", "G5"], "relay/hold/session_lock.c",
           "    round->lock_count = list.key_count + list.keyless_count;\n", "    round->lock_count = 0;\n", soon=True),
    Mutant("claims_again_what_its_session_keeps", ["G5"], "relay/claim/claim_request.c",
           "    add_busy_batches(request, claim->batches, busy);\n",
           "    if (holding)\n        add_busy_batches(request, claim->batches, busy);\n", soon=True),
    Mutant("frees_a_lock_before_its_key_is_settled", ["G3", "G5"], "relay/hold/session_lock.c",
           "if (lane->hold == HOLD_SESSION && lane->state >= LANE_SETTLING)", "if (lane->hold == HOLD_SESSION)", soon=True),
    Mutant("loses_what_its_session_keeps_with_the_transaction", ["G5"], "relay/hold/orphan.c",
           "if (batch->hold == HOLD_SESSION && !session) {", "if (false) {"),
    Mutant("keeps_what_its_session_has_lost", ["G3", "G5"], "relay/hold/orphan.c",
           "if (batch->hold == HOLD_SESSION && !session) {", "if (batch->hold == HOLD_SESSION) {", soon=True),
    Mutant("forgets_keys_it_has_locked_and_read_nothing_of", ["G6"], "relay/claim/claim_connection.c",
           "    claim_note_laneless(claim, batch);\n", ""),
    Mutant("asks_a_lane_without_events_for_its_id", ["crashes"], "relay/queue/batch.c",
           "return lane->last ? lane->last->event.id : lane->waited_id;", "return lane->last->event.id;"),
    Mutant("ends_the_claim_while_the_side_settles", ["G3", "G5"], "relay/claim/claim.c",
           "if (batch->unsettled > batch->finished + (waits ? 0 : batch->blocked) || batch->in_settlement > 0)",
           "if (batch->unsettled - batch->in_settlement > batch->finished)", soon=True),
    Mutant("never_extends_the_claim_of_a_straggler", ["G6"], "relay/claim/claim.c",
           "    if (holding && keys > 0)\n        keys = keys_to_extend(claim, keys, now);\n", "    if (holding)\n        keys = 0;\n"),
    Mutant("blames_a_row_for_what_somebody_else_holds", ["attempts"], "relay/settle/refusal.c",
           "        way = refusal_waits;\n    else", "        way = refusal_blames;\n    else", soon=True),
    Mutant("lets_go_of_a_key_whose_row_somebody_holds", ["G3"], "relay/hold/session_lock.c",
           "batch->open + batch->blocked + batch->finished > 0", "batch->open + batch->finished > 0", soon=True),
    Mutant("forgets_what_somebody_holds", ["spin", "G6"], "relay/claim/claim.c", "    blocked_wake(queue, now);\n", "", soon=True),
    Mutant("blames_the_first_of_many_for_a_refusal", ["attempts"], "relay/settle/refusal.c",
           "    if (row_count != 1)\n        return row_count > 1 || way.waits;", "    if (row_count == 0)\n        return false;", soon=True),
    Mutant("gives_up_the_locks_when_a_settlement_is_refused", ["G3"], "relay/claim/claim_connection.c",
           "    start_rollback(claim, sql_settle_undo, sql_settle_release);",
           "    start_rollback(claim, \"rollback\", NULL);"),
    Mutant("keeps_the_savepoint_of_what_was_refused", ["savepoints"], "relay/claim/claim_connection.c",
           "    start_rollback(claim, sql_settle_undo, sql_settle_release);", "    start_rollback(claim, sql_settle_undo, NULL);"),
    Mutant("takes_halves_for_settled_when_their_claim_is_lost", ["G3"], "relay/hold/orphan.c",
           "        refusal_undo_halving(batch);\n", ""),
    Mutant("forgets_to_end_a_wait", ["G6"], "relay/settle/settle.c", "    add_resumed(s, lists, lane);\n", ""),
    Mutant("forgets_a_settlement_that_broke", ["G6", "stop"], "relay/side/side.c",
           "    if (side->round.job)\n        settle_abort(side->round.job);\n    if (side->round.arena)\n"
           "        round_done(&side->round);\n    side->state",
           "    if (side->round.arena)\n        round_done(&side->round);\n    side->state"),
    Mutant("blames_the_event_for_an_outage", ["G1", "attempts"], "relay/deliver/verdict_rule.c",
           "    case ERROR_ROUTE:\n        return BLAME_DESTINATION;", "    case ERROR_ROUTE:\n        return BLAME_EVENT;"),
    Mutant("suspects_at_the_first_failure", ["G1", "attempts"], "relay/deliver/suspect.c", "return others_taken &&", "return true ||"),
    Mutant("a_circuit_never_closes", ["G6"], "relay/deliver/circuit.c",
           "circuit->state = CIRCUIT_HALF_OPEN;", "circuit->state = CIRCUIT_OPEN;"),
    Mutant("settles_ids_that_are_still_held", ["G2"], "ordering/scan.c",
           "scan->holders[i].above < to ? scan->holders[i].above : to", "scan->holders[i].above > to ? scan->holders[i].above : to"),
    Mutant("floor_rises_over_unsettled_ids", ["G2"], "ordering/horizon.c",
           "    if (horizon->floor_to > scan->settled)\n        horizon->floor_to = scan->settled;\n", "", soon=True),
    Mutant("floor_rises_over_what_a_claim_has_seen_and_left", ["G2"], "ordering/claim_sections.c",
           "LOCK_SEEN_MIN, &missed.lo)", "LOCK_MISSED_MIN, &missed.lo)", soon=True),
    Mutant("forgets_the_keys_of_the_section_before", ["G3", "G5", "G6"], "ordering/claim_sections.c",
           "statement_add_int(&st, arena, index > 0);", "statement_add_int(&st, arena, 0);", soon=True),
    Mutant("forgets_where_a_section_had_no_place_left", ["G6"], "ordering/claim_sections.c",
           "    if (!any && !full)\n        return;\n", "    if (!full)\n        return;\n"),
    Mutant("forgets_where_a_section_had_no_rows_left", ["G2", "G6"], "ordering/claim_sections.c",
           "    if (!any && !full)\n        return;\n", "    if (!any)\n        return;\n", soon=True),
    Mutant("looks_for_no_wait_that_is_over", ["G6"], "ordering/claim_sections.c",
           "sections->waits = waits > 0;", "sections->waits = false;", soon=True),
    Mutant("tells_nobody_of_a_wait_that_is_over_and_held", ["G6"], "ordering/claim_sections.c",
           "    read_keys(&plan->missed, result_span(res, 0, LOCK_MISSED), arena);\n    enum claim_section_kind kind = plan->sections[index].kind;",
           "    enum claim_section_kind kind = plan->sections[index].kind;\n    if (kind != SECTION_DUE)\n        read_keys(&plan->missed, result_span(res, 0, LOCK_MISSED), arena);"),
    Mutant("waits_with_a_settlement_for_a_claim_that_never_comes", ["G6", "stop", "spin"], "relay/claim/claim.c",
           "bool soon = wait.reason == CLAIM_WAITS_FOR_PACE && wait.until <= claim->sent_at + SETTLE_WAIT_US;\n    return soon ? wait.until : now;",
           "return wait.until > now ? wait.until : now;"),
    Mutant("floor_rises_over_the_newest_that_a_claim_has_seen", ["G2"], "ordering/per_key.c",
           "        high = id_range_above(high, report->seen_max);\n", "", soon=True),
    Mutant("floor_rises_over_unsettled_ids_by_a_claim", ["G2"], "ordering/horizon.c",
           "bare.hi <= plan->scan.settled && ", "", soon=True),
    Mutant("takes_for_bare_what_a_claim_has_not_looked_at", ["G2"], "ordering/per_key.c",
           "        high = id_range_above(high, report->newest_left.hi);\n", "", soon=True),
    Mutant("reads_a_key_that_was_left_behind_from_the_floor_on", ["G2"], "ordering/per_key.c",
           "left_behind_add_to(&pk->base.horizon.left, arena, &read);", "left_behind_add_to(&(struct left_behind){0}, arena, &read);", soon=True),
    Mutant("forgets_what_was_left_behind_while_it_is_there", ["G2"], "ordering/horizon.c",
           "        result_bigint(res, count, 5, &ids[count]);\n", "", soon=True),
    Mutant("claims_again_the_events_that_it_is_busy_with", ["G3", "G5"], "ordering/claim_sections.c",
           "    if (sections->events)\n        statement_add_ids(&st, arena, request->busy_keyless_ids, request->busy_keyless_count);",
           "    if (sections->events)\n        statement_add_ids(&st, arena, request->busy_keyless_ids, 0);", soon=True),
    Mutant("takes_rows_for_locks_that_can_be_kept", ["G3", "G5"], "ordering/strategy.c",
           ".locks_rows = type->keyless && options->lock_rows", ".locks_rows = false", soon=True),
    Mutant("puts_events_that_wait_for_nobody_in_lanes_by_key", ["G3", "G5", "G6", "crashes"], "relay/claim/claim_send.c",
           "claim->arriving->keyless = queue->ordering->type->keyless;", "claim->arriving->keyless = false;", soon=True),
    Mutant("takes_a_claim_of_rows_for_done_while_one_straggles", ["G3", "G5"], "relay/queue/holding.c",
           "row_lock = {0};", "row_lock = {.outlives_transaction = true, .claims_beside_stragglers = true};", soon=True),
    Mutant("forgets_to_renew_its_leases", ["leases"], "relay/side/side.c", "    if (lease_is_due(queue, now)) {", "    if (false) {", soon=True),
    Mutant("settles_what_is_leased_without_its_token", ["leases"], "ordering/settler.c",
           "[SETTLE_LEASES] = s->token_count > 0,", "[SETTLE_LEASES] = false,", soon=True),
    Mutant("sends_on_when_its_terms_may_be_over", ["G5"], "relay/hold/lease.c",
           "lane = lease_is_sure(queue, batch, now) ? NULL : batch->lanes;", "lane = NULL;", soon=True),
    Mutant("lets_go_on_what_is_under_way_when_its_terms_are_over", ["G5"], "relay/hold/lease.c",
           "if (lane->hold == HOLD_LEASE && now >= over_at(queue, lane->leased_at))", "if (false)", soon=True),
    Mutant("sends_before_the_lease_is_committed", ["G5"], "relay/claim/claim_connection.c",
           "    if (claim_holding(claim)->commits_before_delivery)\n        return; /* it has arrived when it is leased */\n", "", soon=True),
    Mutant("keeps_a_lane_whose_lease_is_lost", ["G3", "G6", "leases", "spin", "stop"], "relay/hold/lease.c",
           "lost += is_under_way(lane);\n        lose(lane, now);", "lost += is_under_way(lane);"),
    Mutant("sends_on_when_the_backend_of_its_leases_is_lost", ["G5"], "relay/hold/lease.c",
           "        begin_terms(batch, now - term_us(queue));\n    lease_hold(queue, now);", "        (void)batch;"),
    Mutant("begins_what_was_leased_for_a_backend_that_is_lost", ["G5"], "relay/hold/lease.c",
           "if (queue->leases.owner_lost_at >= sent_at) {", "if (false) {"),
    Mutant("forgets_whose_wait_ends_when_it_settles_by_halves", ["leases"], "relay/settle/settle.c",
           "= lane_keyless_id(lane);", "= lane->first ? lane->first->event.id : lane->waited_id;"),
    Mutant("sends_what_is_not_due", ["not_before"], "ordering/event_row.c",
           "if (options->delays && result_bigint(res, row, column++, ret_delay_us))", "if (false)", soon=True),
    Mutant("lets_events_pass_one_that_is_not_due", ["G2"], "relay/queue/batch.c",
           "    if (lane && lane->delayed)\n        return true;\n", "    if (lane && lane->delayed)\n        lane = NULL;\n", soon=True),
    Mutant("forgets_to_look_for_what_has_become_due", ["G6"], "relay/side/upkeep.c",
           "return queue->config->columns.not_before && queue->config->delayed == DELAYED_PASS;", "return false;"),
    Mutant("counts_the_attempt_that_is_due_as_failed", ["attempts"], "ordering/event_row.c",
           "(unsigned)attempts + 1;", "(unsigned)attempts + 2;"),
    Mutant("charges_later_events_with_the_heads_attempts", ["attempts"], "ordering/event_row.c",
           "if (waited && head == event.id)", "if (waited)"),
    Mutant("sends_what_it_claimed_after_a_pause", ["pause"], "relay/claim/claim_connection.c",
           "        queue_found_paused(queue, now);\n", "        (void)now;\n"),
    Mutant("claims_into_a_transaction_that_is_settled_by_halves", ["G3"], "relay/claim/claim.c",
           "->extends_open_transaction || claim->settling == CLAIM_SETTLES_HALVES ||", "->extends_open_transaction ||"),
    Mutant("takes_rows_that_stay_for_gone", ["G3"], "ordering/settler.c",
           "[SETTLE_UNDELETED] = (placed ? 0 : s->done_count) + s->buried_count > 0", "[SETTLE_UNDELETED] = false"),
    Mutant("looks_for_no_wait_on_an_ordinary_day", ["G6"], "ordering/claim_fresh.c",
           "fresh->due = result_bigint(res, 0, LOCK_DUE, &id) && id;", "fresh->due = false;"),
    Mutant("takes_an_ordinary_day_for_granted", ["G2", "G6"], "ordering/per_key.c",
           "id_range_is_empty(plan->scan.newest) && id_range_is_empty(plan->scan.oldest)", "true", soon=True),
    Mutant("blames_a_row_that_was_updated", ["attempts"], "relay/settle/refusal.c",
           "if (moved)", "if (false)", soon=True),
    Mutant("goes_by_place_again_and_again", ["spin"], "relay/settle/refusal.c",
           "queue->refusal.go_by_id = GO_BY_ID;", "", soon=True),
    Mutant("rests_without_waiting_for_writers", ["G6"], "relay/rest/rest.c", "} else if (queue->rest_answer.writers) {", "} else if (false) {"),
    Mutant("rests_with_events_left", ["G6"], "relay/rest/rest.c", "(answer->waiting && !answer->idle)", "false"),
    Mutant("rests_past_what_becomes_due", ["G6"], "relay/rest/rest.c", "    if (answer->due)\n", "    if (false)\n", soon=True),
    Mutant("forgets_a_notification_on_the_way_to_rest", ["G6"], "relay/rest/rest.c",
           "    else\n        wake(queue, \"notified\", now);\n", "    else if (rest->state == REST_RESTING)\n        wake(queue, \"notified\", now);\n"),
    Mutant("looks_again_before_the_claim_that_was_notified", ["G6", "spin"], "relay/rest/rest.c",
           "    else if (!is_busy(queue, now) && is_quiet(queue, now))\n        ask(queue, REST_ASKS_LOOK, REST_LOOKING, now);\n", "    else\n        ask(queue, REST_ASKS_LOOK, REST_LOOKING, now);\n"),
    Mutant("rests_on_without_its_locks", ["G6"], "relay/rest/rest.c", "        wake(queue, \"connection lost\", now);\n", "        (void)now;\n"),
    Mutant("rests_without_listening", ["G6"], "relay/rest/waking.c", "send(waking, WAKING_SUBSCRIBES, &st);", "(void)st, waking->state = WAKING_IDLE;", soon=True),
]


def quietly(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def compile_mutant(mutant, folder):
    """The mutated source as an object file."""
    with open(os.path.join(REPO, mutant.path), encoding="utf-8") as file:
        text = file.read()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.path} holds its text {text.count(mutant.old)} times, not once")
    source, target = os.path.join(folder, os.path.basename(mutant.path)), os.path.join(folder, "mutant.o")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text.replace(mutant.old, mutant.new))
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        entry = next(entry for entry in json.load(file) if entry["file"] == os.path.join(REPO, mutant.path))
    command = shlex.split(entry["command"])
    command[command.index("-o") + 1] = target
    command[command.index("-c") + 1] = source
    quietly([*command, "-Wno-error", "-w"], cwd=BUILD)
    return target


def link_mutant(target, folder):
    command = quietly(["ninja", "-C", BUILD, "-t", "commands", "simulation"]).strip().splitlines()[-1]
    program = os.path.join(folder, "mutant")
    command = re.sub(r" -o simulation ", f" -o {shlex.quote(program)} ", command)
    command = command.replace("libcore.a", f"{shlex.quote(target)} libcore.a", 1)
    quietly(["sh", "-c", command], cwd=BUILD)
    return program


LINE = re.compile(r"seed \d+: (?:([^:]+): |(hangs|crashes)$)")  # a guarantee of judge.c; or what simulation.c says of a run


def found_as(line):
    """What the judge calls it; None when the line is no violation."""
    found = LINE.match(line)
    return found and (found.group(1) or found.group(2))


def run(program, first, count):
    """The lines that name a violation of one of these seeds, some of them when there are many."""
    command = [program, "--seed", str(first), "--count", str(count), "--jobs", str(os.cpu_count())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if found_as(line)]
    if done.returncode != 0 and not lines:
        raise SystemExit(f"{shlex.join(command)}: exit code {done.returncode} and no seed:\n{done.stdout}{done.stderr}")
    return lines


def failures(mutant):
    """The lines that name a violation, from the first seeds on, until one is what the mutant has to be found as."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        program = link_mutant(compile_mutant(mutant, folder), folder)
        first = 1
        for count in STRETCHES:
            found += run(program, first, count)
            if is_found(mutant, found):
                return found
            first += count
    return found


def is_found(mutant, lines):
    return any(found_as(line) in mutant.found_as for line in lines)


def main(names):
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    missed = 0
    for mutant in chosen:
        lines = failures(mutant)
        missed += not is_found(mutant, lines)
        all_names = ", ".join(f"{name} {times} times" for name, times in Counter(map(found_as, lines)).most_common())
        print(f"{mutant.name}: {'' if is_found(mutant, lines) else 'NOT '}found as {' or '.join(mutant.found_as)};"
              f" as {all_names or 'nothing'}; {lines[0] if lines else ''}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
