/* claim.pml -- the claim of `ordering: per_key`: lock the key, read its events, deliver them in order, settle, commit.
 *
 * One key, because keys share nothing but the lock table. RELAYS relays, a producer that commits EVENTS events in id
 * order, a sink that takes or refuses, and at most FAULTS faults of unknown outcome, each of them anywhere: a relay is
 * killed, it loses its connection and does not notice at once, an answer is lost, a settlement is rolled back, the
 * outcome of COMMIT is not known. A refusal is no fault: an event that is refused TRIES times becomes a dead letter.
 *   -DLATE_COPIES  what a relay gave up waiting for may still arrive, at any time
 *   -DSIDE         acked events are also settled while the claim goes on, on the queue's side connection
 *   -DKEEP         or by the claim's own transaction, while its session keeps the lock
 *
 * The guarantees are assertions; a variant checks those that it names:
 *   -DCHECK_LOSS        G1      a row leaves the table only after its ack, or as a dead letter
 *   -DCHECK_ORDER       G2      at a first delivery every smaller id is acked or a dead letter
 *   -DCHECK_DUPLICATES  G3, G4  extra deliveries <= events in flight at the faults so far; so none without a fault
 *   -DCHECK_EXCLUSION   G5      relays that have not lost their connection never deliver at the same time
 *   -DLIVENESS          G1, G6  every committed event leaves the table in the end, under weak fairness
 *
 * A mutant is this file with one mistake, named by one more -D; models.py has them all. */

#ifndef RELAYS
#define RELAYS 2
#endif
#ifndef EVENTS
#define EVENTS 3
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef TRIES
#define TRIES 2
#endif

#define BIT(i) (1 << (i))
#define ALL (BIT(EVENTS) - 1)
#define BELOW(i) (BIT(i) - 1)
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1))
#define LOWEST(set) ((set) & -(set))
#define NOBODY 255
#define FAULT faults < FAULTS -> faults++
#define FINISHED (made == ALL && rows == 0)

#ifdef NEWEST_FIRST
#define NTH(i) (EVENTS - 1 - (i))
#else
#define NTH(i) (i)
#endif
#ifdef GOES_ON_AFTER_A_FAILURE
#define AFTER_A_FAILURE n++
#else
#define AFTER_A_FAILURE break
#endif
#ifdef WAIT_HIDES_THE_EVENT_ALONE
#define CLAIMABLE true
#define READ (waiting -> rows & ~LOWEST(rows) : rows)
#else
#define CLAIMABLE !waiting
#define READ (waiting -> 0 : rows) /* nothing of a key that was parked since it was chosen */
#endif

/* What the database has committed; sets of events are bit masks. */
byte made;            /* by the producer, ever */
byte rows;            /* in the table */
byte dead;            /* dead letters */
byte tries;           /* failures of the oldest event (outbox.parked) */
bit waiting;          /* the key is parked and its wait is not over */
byte holder = NOBODY; /* of the key's advisory lock */
#ifdef LOCKS_ROWS
byte locked_rows;
#endif
#ifdef SIDE
byte side[RELAYS]; /* deletes sent on the side connection and not yet committed */
byte told[RELAYS]; /* of what the relay has acked: sent there, and not known to have failed */
#define UNTOLD (done & ~told[_pid])
#else
#define UNTOLD done
#endif

/* The world. */
byte seen;  /* arrived at the sink at least once */
byte acked; /* and some relay was told so */
#ifdef LATE_COPIES
byte wire; /* copies that may still arrive */
#endif

/* Accounts. */
byte faults;
byte owed;       /* events in flight at the faults so far, less the extra deliveries so far */
byte delivering; /* relays that do, and have not lost their connection */

inline arrive(i)
{
    d_step {
#ifdef CHECK_ORDER
        assert((seen & BIT(i)) || (BELOW(i) & ~(acked | dead)) == 0);
#endif
#ifdef CHECK_DUPLICATES
        assert(!(seen & BIT(i)) || owed > 0);
#endif
        if
        :: (seen & BIT(i)) && owed > 0 -> owed--
        :: else
        fi;
        seen = seen | BIT(i);
    }
}

/* Sent, and given up: it may have arrived, or not, or it is still on its way. */
inline abandon(i)
{
    if
    :: arrive(i)
    :: skip
#ifdef LATE_COPIES
    :: (wire & BIT(i)) == 0 -> wire = wire | BIT(i)
#endif
    fi
}

inline remove(set)
{
#ifdef CHECK_LOSS
    assert((rows & (set) & ~(acked | dead)) == 0);
#endif
    rows = rows & ~(set)
}

/* The end of the session's transaction, and with it of the lock. */
inline unlock()
{
#ifdef LOCKS_ROWS
    locked_rows = locked_rows & ~claimed
#else
    if
    :: holder == _pid -> holder = NOBODY
    :: else
    fi
#endif
}

inline lose_connection()
{
    delivering--;
#ifndef LOCK_OUTLIVES_ITS_RELAY
    unlock()
#endif
}

active [RELAYS] proctype relay() /* declared first: _pid is 0, 1, ... */
{
    byte claimed, done, failed, n;
    bit lost;
#ifdef KEEP
    bit kept;
#endif

again:
    atomic {
        claimed = 0; done = 0; failed = NOBODY; n = 0; lost = 0;
#ifdef KEEP
        kept = 0;
#endif
#ifdef SIDE
        told[_pid] = 0;
#endif
        if /* is there a key to claim? Asked with an older snapshot than the one its events are read with */
        :: FINISHED -> goto stop
        :: rows != 0 && CLAIMABLE
        fi;
#if defined(READS_IN_THE_LOCKING_STATEMENT) || defined(READS_BEFORE_THE_LOCK)
        claimed = rows
#endif
    };

    /* Statement 1: the lock. One that is not free is left alone and tried again later: here, waited for. */
#if defined(NO_LOCK)
    skip;
#elif defined(LOCKS_ROWS)
    atomic { claimed = LOWEST(rows & ~locked_rows); locked_rows = locked_rows | claimed };
#elif defined(READS_IN_THE_LOCKING_STATEMENT)
    atomic {
        if
        :: holder == NOBODY -> holder = _pid
        :: else -> goto again
        fi
    };
#else
    atomic {
        if
        :: holder == NOBODY -> holder = _pid
        :: FINISHED -> goto again
        fi
    };
#endif

    /* Statement 2: the oldest events, as many as a claim may hold, with a snapshot younger than the lock. */
    atomic {
#if !defined(READS_IN_THE_LOCKING_STATEMENT) && !defined(READS_BEFORE_THE_LOCK) && !defined(LOCKS_ROWS)
        claimed = READ;
#endif
        if
        :: skip
        :: claimed = LOWEST(claimed)
        fi;
#ifdef COMMITS_BEFORE_DELIVERY
        remove(claimed); unlock();
#endif
        delivering++;
#ifdef CHECK_EXCLUSION
        assert(delivering == 1)
#endif
    };

    do
    :: n < EVENTS && !(claimed & BIT(NTH(n))) -> n++
    :: n < EVENTS && (claimed & BIT(NTH(n))) ->
        if
        :: arrive(NTH(n)); d_step { acked = acked | BIT(NTH(n)); done = done | BIT(NTH(n)); n++ }
        :: failed = n; AFTER_A_FAILURE /* refused */
        :: atomic { FAULT; owed++; abandon(NTH(n)); failed = n }; AFTER_A_FAILURE /* no answer */
        :: atomic { /* killed */
               !lost && FAULT;
               owed = owed + COUNT(done & rows) + 1;
               abandon(NTH(n));
               lose_connection();
               goto again
           }
        :: atomic { !lost && FAULT; owed = owed + COUNT(claimed & rows); lose_connection(); lost = 1 }
        :: lost -> break /* noticed */
#ifdef CLAIMS_WHAT_IT_KEEPS
        :: kept -> arrive(NTH(n)); d_step { claimed = rows; n = 0 } /* while that is under way */
#endif
        fi
#ifdef SIDE
    :: UNTOLD != 0 && side[_pid] == 0 && !lost -> d_step { side[_pid] = UNTOLD; told[_pid] = done }
#endif
#ifdef KEEP
    :: (done & rows) != 0 && !lost ->
        if
        :: d_step {
               remove(done); tries = 0; kept = 1;
#ifdef LOCK_ENDS_WITH_ITS_TRANSACTION
               unlock()
#endif
           }
        :: atomic { FAULT; owed = owed + COUNT(done & rows); lose_connection(); goto orphaned } /* rolled back */
        :: atomic { FAULT; remove(done); tries = 0; lose_connection(); goto orphaned } /* committed, and not told */
        fi
#endif
    :: n == EVENTS -> break
    od;
    if
    :: lost -> goto orphaned
    :: else
    fi;
#if defined(SIDE) && !defined(COMMIT_OVERTAKES_SIDE)
    side[_pid] == 0; /* the lock has to outlive what is on its way there */
#endif

    /* The settlement and COMMIT. */
    if
    :: delivering--
    :: atomic { FAULT; owed = owed + COUNT(done & rows); lose_connection(); goto orphaned } /* rolled back, or killed */
    fi;
#ifdef UNLOCKS_BEFORE_COMMIT
    d_step { unlock() };
#endif
    d_step {
        if
        :: failed == NOBODY && done == 0
        :: failed == NOBODY && done != 0 -> tries = 0
        :: failed != NOBODY ->
            tries = (done != 0 -> 1 : tries + 1);
            if
            :: tries >= TRIES -> dead = dead | (BIT(NTH(failed)) & rows); remove(BIT(NTH(failed))); tries = 0
            :: else -> waiting = 1
            fi
        fi;
#ifdef SETTLES_THE_WHOLE_CLAIM
        remove(claimed)
#else
        remove(UNTOLD)
#endif
    };
    d_step { unlock() }; /* visible first, unlocked afterwards: CommitTransaction() in xact.c */
    if
    :: goto again
    :: FAULT -> goto orphaned /* committed, and the relay was not told */
    fi;

orphaned: /* of a claim that was lost only this is certain: what was acked is done */
    if
    :: done != 0 ->
#ifdef SIDE
        atomic { side[_pid] == 0; side[_pid] = UNTOLD }
#else
        d_step { remove(done) }
#endif
    :: true /* killed meanwhile */
    fi;
    goto again;
stop:
    skip
}

active proctype producer()
{
    byte i;
#ifdef IDS_COMMIT_OUT_OF_ORDER
    do
    :: made == ALL -> break
    :: made != ALL ->
        atomic {
            select(i : 0 .. EVENTS - 1);
            if
            :: !(made & BIT(i)) -> made = made | BIT(i); rows = rows | BIT(i)
            :: else
            fi
        }
    od
#else
    do
    :: i == EVENTS -> break
    :: i < EVENTS -> atomic { made = made | BIT(i); rows = rows | BIT(i); i++ }
    od
#endif
}

/* The waits of parked keys come to their end. */
active proctype clock()
{
end:
    do
#ifdef WAITS_NEVER_END
    :: false
#else
    :: waiting -> waiting = 0
#endif
    od
}

#ifdef LATE_COPIES
active proctype network()
{
    byte i;
end:
    do
    :: wire != 0 ->
        atomic {
            i = 0;
            do
            :: (wire & BIT(i)) == 0 -> i++
            :: wire & BIT(i) -> wire = wire & ~BIT(i); break
            od;
            arrive(i)
        }
    od
}
#endif

#ifdef SIDE
#ifdef LATE_COPIES
#define SIDE_SESSIONS_FROM (RELAYS + 3)
#else
#define SIDE_SESSIONS_FROM (RELAYS + 2)
#endif
/* The server's end of the relays' side connections: what was sent is committed, or the connection breaks. */
active [RELAYS] proctype side_session() /* declared last */
{
#define RELAY (_pid - SIDE_SESSIONS_FROM)
end:
    do
    :: atomic { side[RELAY] != 0; remove(side[RELAY]); side[RELAY] = 0 }
    :: atomic { side[RELAY] != 0 && FAULT; told[RELAY] = told[RELAY] & ~side[RELAY]; side[RELAY] = 0 }
    od
}
#endif

#ifdef LIVENESS
ltl drained { <> FINISHED }
#endif
