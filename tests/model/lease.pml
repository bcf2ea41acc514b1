/* lease.pml -- a protocol of leases: a claim that is committed at once, with an owner, a token and an expiry.
 *
 * One key. A claim takes the lease when there is none or its term is over by the database's clock, draws a new token,
 * and reads the key's events, in one transaction. The owner renews at a third of the term, and settles by token: of a
 * token that is not the newest nothing is written. A relay's clock counts from when the claim was *sent*, may be slow
 * by a third, and decides only about the relay itself: when it renews, and when it stops sending.
 *
 * At most FAULTS faults, anywhere: killed, cut off from the database, standing still together with its clock, an
 * answer lost or late, a settlement executed long after its sender gave it up. A refusal is no fault.
 *
 *   -DBACKEND           the lease ends with its owner's session, too, whenever somebody looks; who is cut off sends what
 *                       it has begun to
 *
 *   -DCHECK_LOSS        a row leaves the table only after its ack, or as a dead letter
 *   -DCHECK_ORDER       at a first delivery every smaller id is acked or a dead letter
 *   -DCHECK_DUPLICATES  no term ends without a fault; extra deliveries <= events of the claims whose terms did, and
 *                       events without an answer
 *   -DCHECK_TERMS       nobody gets the key before the term granted to another is over by the database's clock
 *   -DCHECK_EXCLUSION   a relay that is not hung sends only while the term it was granted lasts
 *   -DLIVENESS          every committed event leaves the table in the end, under weak fairness
 *
 * A mutant is this file with one mistake, named by one more -D; models.py has them all. */

#define RELAYS 2
#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define TRIES 2
#define TERM 3
#define STOP 2 /* by a clock that may have missed one tick of the three */
#ifdef RENEWS_AT_TWO_THIRDS
#define RENEW 2
#else
#define RENEW 1
#endif

#define BIT(i) (1 << (i))
#define ALL (BIT(EVENTS) - 1)
#define BELOW(i) (BIT(i) - 1)
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define NOBODY 255
#define FAULT faults < FAULTS -> faults++
#ifdef BACKEND
#define UNAWARE cut[_pid]
#else
#define UNAWARE false
#endif
#define FINISHED (made == ALL && rows == 0)

#ifdef EXPIRY_BY_A_RELAYS_CLOCK
#define OVER (left <= 1) /* it is ahead */
#else
#define OVER (left == 0)
#endif
#if defined(SETTLES_WITHOUT_TOKEN)
#define MAY_SETTLE(by, newest) true
#elif defined(SETTLES_BY_OWNER)
#define MAY_SETTLE(by, newest) (owner == by)
#elif defined(SETTLES_BY_OWN_CLOCK)
#define MAY_SETTLE(by, newest) (since[by] < STOP)
#else
#define MAY_SETTLE(by, newest) newest
#endif
#ifdef RENEWS_WITHOUT_TOKEN
#define MAY_RENEW true
#else
#define MAY_RENEW token[_pid]
#endif

/* What the database has committed; sets of events are bit masks. */
byte made, rows, dead;
byte tries;          /* failures of the oldest event */
byte owner = NOBODY; /* the lease: */
byte left; /* of its term, by the database's clock */

/* Every claim draws a greater token, so all that matters of one is whether it is still the newest. */
bit token[RELAYS]; /* that of the relay's claim is */
bit wire_token;    /* that of the settlement on the wire is */

/* The relays. */
byte held[RELAYS];   /* events of the claim */
bit running[RELAYS]; /* has a claim */
byte since[RELAYS];  /* time since it was sent, by the relay's clock */
bit lag[RELAYS];     /* that clock has missed a tick since then */
bit cut[RELAYS];     /* nothing passes between it and the database */
bit waits[RELAYS];   /* for the answer to its claim, which is late: nothing passes, but its session is there */
bit hung[RELAYS];    /* its clock may stand still, and it may be late with everything */

/* The world. */
byte seen, acked;
chan wire = [1] of { byte, byte, byte }; /* a settlement that its sender has given up */

/* Accounts. */
byte faults, owed;
byte term[RELAYS]; /* what is left of the term that this relay was granted */

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

inline remove(set)
{
#ifdef CHECK_LOSS
    assert((rows & (set) & ~(acked | dead)) == 0);
#endif
    rows = rows & ~(set)
}

inline grant()
{
#ifdef CHECK_TERMS
    assert(term[1 - _pid] == 0);
#endif
    left = TERM;
    term[_pid] = TERM;
    since[_pid] = 0;
    lag[_pid] = 0
}

/* One transaction; `without`: the event that failed. */
inline settle(by, newest, done, without)
{
    if
    :: MAY_SETTLE(by, newest) ->
        if
        :: without == NOBODY && done == 0
        :: without == NOBODY && done != 0 -> tries = 0
        :: without != NOBODY ->
            tries = (done != 0 -> 1 : tries + 1);
            if
            :: tries >= TRIES -> dead = dead | (BIT(without) & rows); remove(BIT(without)); tries = 0
            :: else
            fi
        fi;
        remove(done);
        if /* the term was given back by the one it was granted to */
        :: newest -> term[by] = 0; held[by] = 0
        :: else
        fi;
        owner = NOBODY;
        left = 0
    :: else
    fi
}

inline leave()
{
    running[_pid] = 0; token[_pid] = 0; since[_pid] = 0; lag[_pid] = 0; cut[_pid] = 0; hung[_pid] = 0;
    if
    :: owner != _pid -> held[_pid] = 0
    :: else
    fi
}

/* The session that the newest token was drawn for is there. */
#define LIVES(r) (token[r] && (!cut[r] || waits[r]))

#define DUE (since[_pid] >= RENEW && !cut[_pid] && !renewed)

active [RELAYS] proctype relay()
{
    byte done, failed, n;
    bit renewed; /* while this event was under way: a delivery does not take for ever */

again:
    atomic {
        leave(); done = 0; failed = NOBODY; n = 0; renewed = 0;
        if
        :: FINISHED -> goto stop
        :: rows != 0 && OVER
#ifdef LEASES_THE_EVENTS_ALONE
        :: owner == 1 - _pid && (rows & ~held[owner]) != 0
#endif
        fi;
#ifdef READS_BEFORE_THE_LEASE
        held[_pid] = rows
#endif
    };

    /* The claim: take the lease, then read, then commit. The lease's row is locked in between, so it is one step. */
    atomic {
        if
        :: OVER ->
            if
            :: owner != NOBODY ->
#ifdef CHECK_DUPLICATES
                assert(faults > 0);
#endif
                owed = owed + COUNT(held[owner] & rows)
            :: else
            fi;
            token[1 - _pid] = 0; wire_token = 0; token[_pid] = 1; owner = _pid;
            grant();
            running[_pid] = 1;
#ifndef READS_BEFORE_THE_LEASE
            held[_pid] = rows
#endif
#ifdef LEASES_THE_EVENTS_ALONE
        :: !OVER && owner == 1 - _pid -> held[_pid] = rows & ~held[owner]; token[_pid] = 1; running[_pid] = 1
#endif
        :: else -> goto again
        fi
    };
    if
    :: skip
    :: atomic { FAULT; cut[_pid] = 1; waits[_pid] = 1 }; /* the answer comes late */
        atomic {
            cut[_pid] = 0; waits[_pid] = 0;
#ifdef COUNTS_FROM_THE_ANSWER
            since[_pid] = 0; lag[_pid] = 0
#endif
        }
    :: FAULT -> goto again /* or never */
    fi;

    do
    :: n == EVENTS -> break
    :: n < EVENTS && !(held[_pid] & BIT(n)) -> n++
    :: n < EVENTS && (held[_pid] & BIT(n)) ->
        if
        :: since[_pid] >= STOP -> goto again /* the rest of the term is not for sending */
        :: atomic {
               since[_pid] < STOP;
#ifdef CHECK_EXCLUSION
               assert(hung[_pid] || UNAWARE || (token[_pid] && left > 0));
#endif
           }
        fi;
        do /* in flight */
        :: atomic { DUE && MAY_RENEW; grant(); renewed = 1 }
        :: DUE && !MAY_RENEW -> goto again
        :: arrive(n); d_step { acked = acked | BIT(n); done = done | BIT(n) }; break
        :: failed = n; break /* refused */
        :: atomic { FAULT; owed++; arrive(n); failed = n; break } /* no answer */
        od;
        renewed = 0;
        if
        :: failed != NOBODY -> break
        :: else -> n++
        fi
    :: atomic { DUE && MAY_RENEW; grant(); renewed = 1 }
    :: DUE && !MAY_RENEW -> goto again
    :: atomic { !hung[_pid] && FAULT; hung[_pid] = 1 }
    :: atomic { !cut[_pid] && FAULT; cut[_pid] = 1 }
    :: FAULT -> goto again /* killed */
    od;

    if
    :: atomic { !cut[_pid]; settle(_pid, token[_pid], done, failed) }
    :: atomic { nfull(wire) && FAULT; wire!_pid, done, failed; wire_token = token[_pid] }
    :: cut[_pid]
    fi;
    goto again;
stop:
    skip
}

active proctype producer()
{
    byte i;
    do
    :: i == EVENTS -> break
    :: i < EVENTS -> atomic { made = made | BIT(i); rows = rows | BIT(i); i++ }
    od
}

active proctype server()
{
    byte by, done, without;
end:
    do
    :: atomic {
           wire?by, done, without;
           settle(by, wire_token, done, without);
           by = 0; done = 0; without = 0; wire_token = 0
       }
    od
}

#ifdef BACKEND
/* Some relay, now and then. */
active proctype upkeep()
{
end:
    do
    :: atomic { owner != NOBODY && left > 0 && !LIVES(owner); left = 0; term[owner] = 0 }
    od
}
#endif

/* A relay that is well renews in time, by its own clock; others are not waited for. */
#define LATE(r) (running[r] && !cut[r] && !hung[r] && since[r] >= RENEW)

inline pass(r)
{
    if
    :: term[r] > 0 -> term[r]--
    :: else
    fi;
    if
    :: !running[r] || since[r] >= STOP
    :: running[r] && since[r] < STOP -> since[r]++
    :: running[r] && since[r] < STOP && (!lag[r] || hung[r]) -> lag[r] = 1
    fi
}

active proctype clock()
{
end:
    do
    :: atomic {
           !LATE(0) && !LATE(1) && (left > 0 || running[0] || running[1]);
#ifndef NEVER_EXPIRES
           left = (left > 0 -> left - 1 : 0);
#endif
           pass(0);
           pass(1)
       }
    od
}

#ifdef LIVENESS
ltl drained { <> FINISHED }
#endif
