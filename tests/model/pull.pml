/* pull.pml -- workers that pull beside a relay: a lease is the entry of a key that waits, with a token.
 *
 * One key. take() takes the advisory lock in one statement and reads and writes the entry in the next; the commit lets the
 * lock go and leaves the entry. A relay's claim keeps the lock while it delivers. A verdict looks at the entry and tries the
 * lock in one statement; in the next it counts if the entry still has its token, and if it has the lock or the term was not
 * over. A worker may be late with everything, or vanish. sql/schema/009_workers_text.sql is what this stands for.
 *
 *   -DCHECK_LOSS        a row leaves the table only after its ack
 *   -DCHECK_ORDER       at a first delivery every smaller id is acked
 *   -DCHECK_DUPLICATES  extra deliveries <= terms that ran out
 *   -DCHECK_EXCLUSION   two have the key at once only after a term ran out
 *   -DCHECK_VERDICTS    a verdict counts only while its event is there, and while no relay has it or it came in its term
 *   -DLIVENESS          every event leaves the table in the end, under weak fairness
 *
 * A mutant is this file with one mistake, named by one more -D; models.py has them all. */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef TERMS
#define TERMS 2 /* that may run out */
#endif

#define BIT(i) (1 << (i))
#define ALL (BIT(EVENTS) - 1)
#define BELOW(i) (BIT(i) - 1)
#define NOBODY 255
#define RELAY WORKERS
#define HEAD ((rows & 1) -> 0 : ((rows & 2) -> 1 : 2))

#ifdef SETTLES_WITHOUT_TOKEN
#define MINE true
#else
#define MINE (token == _pid)
#endif
#ifdef LATE_VERDICTS_NEED_NO_LOCK
#define MAY_COUNT(got) true
#else
#define MAY_COUNT(got) (got || !over)
#endif
#ifdef TAKES_WHAT_WAITS
#define FREE true
#else
#define FREE (!parked || over)
#endif

byte rows = ALL; /* what is committed: the events, */
bit parked;      /* the key's entry, */
bit over = 1;    /* its wait is over, */
byte token = NOBODY; /* whose token it has */
byte lock = NOBODY;
byte seen, acked, ran_out, extra;
byte having; /* of those that deliver: a bit each */

inline arrive(i)
{
    d_step {
#ifdef CHECK_ORDER
        assert((seen & BIT(i)) || (BELOW(i) & ~acked) == 0);
#endif
        extra = extra + ((seen & BIT(i)) != 0 -> 1 : 0);
#ifdef CHECK_DUPLICATES
        assert(extra <= ran_out);
#endif
#ifdef CHECK_EXCLUSION
        assert((having & ~BIT(_pid)) == 0 || ran_out > 0);
#endif
        seen = seen | BIT(i)
    }
}

inline remove(set)
{
#ifdef CHECK_LOSS
    assert((rows & (set) & ~acked) == 0);
#endif
    rows = rows & ~(set)
}

active [WORKERS] proctype worker()
{
    byte head;
    bit got, held, in_time;

again:
    if
    :: rows == 0 -> goto stop
    :: atomic { rows != 0 && lock == NOBODY; lock = _pid } /* take(): the lock, */
    fi;
    atomic { /* then the entry, read by a younger snapshot */
        if
        :: FREE && rows != 0 -> head = HEAD; parked = 1; over = 0; token = _pid; having = having | BIT(_pid)
        :: else -> head = EVENTS
        fi
    };
    lock = NOBODY;
    if
    :: head == EVENTS -> goto again
    :: else
    fi;
    if
    :: ran_out < TERMS -> having = having & ~BIT(_pid); goto again /* it vanishes, and somebody is started in its place */
    :: arrive(head)
    fi;
    acked = acked | BIT(head);
    having = having & ~BIT(_pid);

    atomic { /* done(): who has it, and the lock if it is to be had, */
        got = (lock == NOBODY); in_time = !over;
        held = (MINE && MAY_COUNT(got));
        if
        :: got && MINE -> lock = _pid
        :: else -> got = 0
        fi
    };
    atomic { /* then by the entry's row lock */
        if
        :: held && MINE ->
#ifdef CHECK_VERDICTS
            assert((rows & BIT(head)) && (in_time || (having & BIT(RELAY)) == 0));
#endif
            remove(BIT(head));
            token = NOBODY; over = 1; parked = (rows != 0)
        :: else
        fi
    };
    atomic {
        if
        :: got -> lock = NOBODY
        :: else
        fi;
        got = 0; held = 0; in_time = 0; head = 0
    };
    goto again;
stop:
    skip
}

active proctype relay()
{
    byte held, done, n;

again:
    if
    :: rows == 0 -> goto stop
    :: atomic { rows != 0 && lock == NOBODY; lock = _pid }
    fi;
    atomic {
        held = (FREE -> rows : 0); done = 0; n = 0;
        if
        :: held != 0 -> having = having | BIT(_pid)
        :: else
        fi
    };
    do
    :: n == EVENTS -> break
    :: n < EVENTS && !(held & BIT(n)) -> n++
    :: n < EVENTS && (held & BIT(n)) ->
        arrive(n);
        acked = acked | BIT(n); done = done | BIT(n); n++
    od;
    atomic {
        having = having & ~BIT(_pid);
        if
        :: done != 0 ->
            remove(done);
#ifndef RELAY_LEAVES_THE_TOKEN
            token = NOBODY;
#endif
            over = 1; parked = (rows != 0)
        :: else
        fi;
        lock = NOBODY
    };
    goto again;
stop:
    skip
}

/* The database's clock. */
active proctype clock()
{
end:
    do
    :: atomic { token != NOBODY && !over && ran_out < TERMS; over = 1; ran_out++ }
    od
}

#ifdef LIVENESS
ltl drained { <> (rows == 0) }
#endif
