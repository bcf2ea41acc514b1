/* wake.pml -- rest and wake: a relay that finds nothing rests, and a producer wakes it (sql/schema/004_wake.sql).
 *
 * A relay listens, takes its lock, which relays share, notes which transactions have the table's lock, waits for them to
 * end, looks a last time, and sleeps until it is notified or its connection is lost. A producer gets the table's lock,
 * tries the relays' lock up to three times, exclusively, and remembers to notify if each try was refused; then it
 * commits or rolls back. What is committed is visible before the table's lock goes, and that before the notification
 * is sent. Nothing here looks again after a time.
 *
 * At most FAULTS times, anywhere, a relay loses its connection, which it notices later; a relay that is killed and
 * started again is one that notices at once.
 *
 *   -DCHECK_STRANDED    never does an event wait while every relay sleeps and no notification is on its way
 *   -DLIVENESS          every committed event is taken in the end, under weak fairness
 *
 * A mutant is this file with one mistake, named by one more -D; models.py has them all. */

#ifndef RELAYS
#define RELAYS 2
#endif
#define PRODUCERS 2
#ifndef EVENTS
#define EVENTS 2 /* of each producer, a transaction each */
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define NOBODY 255

#if RELAYS == 1
#define EVERY(condition) (condition(0))
#else
#define EVERY(condition) (condition(0) && condition(1))
#endif
#define AWAKE_NO_MORE(r) (asleep[r] && connected[r] && !notified[r])
#define NO_LOCK(r) (!rests[r])
#define STRANDED (rows > 0 && EVERY(AWAKE_NO_MORE) && !on_its_way[0] && !on_its_way[1])
#define FINISHED (ended == PRODUCERS && rows == 0)

/* The table: events that are committed; who writes to it, and which of a producer's transactions that is. */
byte rows, ended;
bit writes[PRODUCERS];
byte transaction[PRODUCERS];
bit on_its_way[PRODUCERS]; /* a notification: committed, and not sent */

/* The relays' sessions, as the server has them. */
bit rests[RELAYS];   /* has the lock */
bit listens[RELAYS];
byte asks = NOBODY;  /* the producer that has the same lock */

/* The relays. */
bit connected[RELAYS]; /* nothing has happened to the connection */
bit notified[RELAYS];
bit asleep[RELAYS];

byte faults;

inline lose(r)
{
    d_step { rests[r] = 0; listens[r] = 0; notified[r] = 0; connected[r] = 0 }
}

inline listen_to()
{
    d_step { connected[_pid] = 1; listens[_pid] = 1 }
}

inline note_writers()
{
    d_step {
        waits_for[0] = writes[0]; waits_for[1] = writes[1];
        number[0] = transaction[0]; number[1] = transaction[1]
    }
}

inline forget_writers()
{
    d_step { waits_for[0] = 0; waits_for[1] = 0; number[0] = 0; number[1] = 0 }
}

#define ENDED(p) (!waits_for[p] || !writes[p] || transaction[p] != number[p])

inline look_a_last_time()
{
    if
    :: rows > 0 -> goto wakes
    :: rows == 0
    fi
}

active [RELAYS] proctype relay()
{
    bit waits_for[PRODUCERS];
    byte number[PRODUCERS];

awake:
    do
    :: atomic { rows > 0; rows-- }
    :: rows == 0 -> break
    od;

#ifndef LISTENS_AFTER_THE_LAST_LOOK
    listen_to();
#endif
#ifdef NOTES_WRITERS_BEFORE_THE_LOCK
    note_writers();
#endif
#ifndef LOCKS_AFTER_THE_LAST_LOOK
    if
    :: atomic { asks == NOBODY && connected[_pid]; rests[_pid] = 1 }
#ifdef LISTENS_AFTER_THE_LAST_LOOK
    :: atomic { asks == NOBODY && !connected[_pid]; connected[_pid] = 1; rests[_pid] = 1 }
#else
    :: !connected[_pid] -> goto awake
#endif
    :: asks != NOBODY -> goto awake
    fi;
#endif
#ifndef NOTES_WRITERS_BEFORE_THE_LOCK
    note_writers();
#endif
#ifdef LOOKS_BEFORE_THE_WRITERS_END
    look_a_last_time();
#endif
#ifndef WAITS_FOR_NO_WRITER
    atomic { ENDED(0) && ENDED(1); forget_writers() };
#endif
#ifndef LOOKS_BEFORE_THE_WRITERS_END
    look_a_last_time();
#endif
#ifdef LOCKS_AFTER_THE_LAST_LOOK
    if
    :: atomic { asks == NOBODY && connected[_pid]; rests[_pid] = 1 }
    :: !connected[_pid] -> goto awake
    :: asks != NOBODY -> goto awake
    fi;
#endif
#ifdef LISTENS_AFTER_THE_LAST_LOOK
    if
    :: atomic { connected[_pid]; listens[_pid] = 1 }
    :: !connected[_pid] -> goto awake
    fi;
#endif
#ifdef FORGETS_WHAT_CAME_EARLY
    notified[_pid] = 0;
#endif
    asleep[_pid] = 1;
end:
    if
    :: notified[_pid]
#ifndef SLEEPS_ON_WITHOUT_A_CONNECTION
    :: !connected[_pid]
#endif
    fi;
wakes:
    atomic { asleep[_pid] = 0; notified[_pid] = 0; rests[_pid] = 0; forget_writers() };
    goto awake
}

#define ME (_pid - RELAYS)

#ifdef ASKS_IN_SHARED_MODE
#define REFUSED (asks != NOBODY)
#else
#define REFUSED (!EVERY(NO_LOCK) || asks != NOBODY)
#endif

inline ask()
{
    tries = 0;
    do
    :: tries < 3 ->
        if
        :: atomic { REFUSED; tries++ }
        :: atomic { !REFUSED; asks = ME; tries = 0 }; asks = NOBODY; break
        fi
    :: tries == 3 -> will_notify = 1; break
    od;
    tries = 0
}

inline unlock_table()
{
    d_step { writes[ME] = 0; transaction[ME]++ }
}

active [PRODUCERS] proctype producer()
{
    byte n, tries;
    bit will_notify;

    do
    :: n == EVENTS -> break
    :: n < EVENTS ->
#ifdef ASKS_BY_AN_OLD_SNAPSHOT
        will_notify = !EVERY(NO_LOCK);
#endif
#ifdef ASKS_BEFORE_IT_HAS_THE_TABLE
        ask();
#endif
        writes[ME] = 1;
#if !defined(ASKS_BEFORE_IT_HAS_THE_TABLE) && !defined(ASKS_BY_AN_OLD_SNAPSHOT)
        ask();
#endif
        if
        :: /* commits */
#ifdef UNLOCKS_BEFORE_IT_IS_VISIBLE
            unlock_table();
#endif
            d_step { rows++; on_its_way[ME] = will_notify };
#ifndef UNLOCKS_BEFORE_IT_IS_VISIBLE
            unlock_table();
#endif
            d_step {
                if
                :: on_its_way[ME] && listens[0] -> notified[0] = 1
                :: else
                fi;
#if RELAYS > 1
                if
                :: on_its_way[ME] && listens[1] -> notified[1] = 1
                :: else
                fi;
#endif
                on_its_way[ME] = 0
            }
        :: unlock_table() /* rolls back */
        fi;
        atomic { will_notify = 0; n++ }
    od;
    ended++
}

/* Connections are lost whatever a relay does. */
active proctype network()
{
    byte r;
end:
    do
    :: atomic {
           faults < FAULTS;
           if
           :: connected[0] -> r = 0
#if RELAYS > 1
           :: connected[1] -> r = 1
#endif
           fi;
           faults++;
           lose(r);
           r = 0
       }
    od
}

#ifdef CHECK_STRANDED
active proctype judge()
{
end:
    atomic { STRANDED -> assert(!STRANDED) }
}
#endif

#ifdef LIVENESS
ltl taken { <> FINISHED }
#endif
