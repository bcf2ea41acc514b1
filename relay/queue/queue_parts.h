/* relay/queue/queue_parts.h -- what a queue keeps for the modules that work on it. */
#pragma once

#include "ordering/guarded_text.h"
#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/base/halving.h"
#include "relay/queue/keyset.h"
#include "relay/queue/side_requests.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct db;
struct sql_variable;

/* The texts of the queue's own statements. Written by relay/queue_open.c only. */
struct queue_sql {
    struct arena *names; /* holds `variables` */
    const struct sql_variable *variables;
    char *purge;
    char *rest_look;
    struct guarded_text empty;
    struct guarded_text due;   /* only where what is not due lets others pass */
    struct guarded_text after; /* only where events come after others */
};

/* What other modules read of the side connection. Written by relay/side/side.c only. */
struct side_status {
    struct db *db;            /* leases end with its backend */
    const char *lock_timeout; /* of its statements */
    bool connected;           /* it has a session */
    bool settling;            /* a settlement is under way on it */
};

/* A module sets one for a module in a later folder, which reads it in its turn and takes it back. Written by
 * relay/settle/settle.c, relay/queue_open.c, relay/side/unreadable.c, relay/claim/claim.c only. */
struct wakeups {
    bool next_queue;    /* it got events: settle.c sets this for queue_hand_on() */
    bool failed_claims; /* claims that wait after a failure may be sent at once, because a row was found, or can be
                         * read: unreadable.c sets this for claim.c */
};

/* The queue is paused: nothing is claimed, nothing more is sent. Written by relay/side/upkeep.c,
 * relay/queue/queue.h only: by queue_found_paused(). */
struct pause {
    bool on;
    bool refused; /* on, as another relay serves the table by other locks, or did until now: there may be events */
    bool known;   /* the side connection has looked once */
    instant_us found_at; /* by a claim; its locks may be younger than what the side connection has looked at */
};

/* The time of day in which a queue is served. Written by relay/side/upkeep.c only. */
struct window {
    bool closed; /* or nobody knows yet: nothing is claimed */
    bool known;  /* whether it is open; true where there is none */
};

/* What the claims of a queue have in common. Written by relay/claim/, relay/queue_open.c only. */
struct claiming {
    instant_us asking_since; /* of the claims under way, when the first was sent; INSTANT_NEVER: none is */
    bool *offered;           /* one a claim: the side connection may settle what is finished of it; claim_offer() */
    int64_t key_limit;       /* keys_per_claim, or less while the lock table is full */
    int64_t keys_locked;     /* by the last claim that brought events, also those that it brought none of */
    bool lean; /* the last claim that ended had an event or two of each key, and was quickly done with them */
};

/* Claims move keys out of it, and those that they settle into it. Written by relay/queue/key_book.c,
 * relay/claim/ only. */
struct key_book {
    struct keyset more;                 /* keys with more events; owner: the claim that holds the key, or NULL */
    struct keyset busy_elsewhere;       /* such keys that another relay had locked; asked for again at entry->at */
    struct keyset destination_down;     /* keys whose destination is down: no claim takes them before entry->at */
    struct keyset destination_down_ids; /* the same for events without a key; entry->key is the bytes of the id */
};

/* When the queue is claimed from again. Written by relay/queue/pace.c, relay/claim/peek.c,
 * relay/queue_open.c only. */
struct pace {
    instant_us poll_at;     /* the next look at the table */
    instant_us earliest_at; /* nothing is claimed before, so that claims are worth what they cost */
    instant_us claim_by;    /* and not only look whether there is something */
    int64_t idle_us;        /* between the last two looks */
    instant_us found_at;    /* a claim has found something */
    bool found;             /* the last claim found something, */
    bool work_known;        /* and the one before as well */
    bool took_all;          /* no event is known that it has left */
    uint64_t finds;         /* claims that have found something */
};

enum rest_state {
    REST_AWAKE,   /* events are looked for */
    REST_ASKING,  /* may the queue rest? */
    REST_LOCKING, /* the locks are wanted that tell producers to notify */
    REST_WAITING, /* whoever wrote before that has to end */
    REST_LOOKING, /* is there anything left? */
    REST_RESTING, /* nothing is sent: a notification, or `until`, wakes the queue */
    REST_ROUSED   /* a few events come: they are claimed, and the locks are held on, so that each is announced */
};

#define REST_FINDS_MAX 32

enum rest_lock { REST_UNLOCKED, REST_LOCK_WANTED, REST_LOCK_ASKED, REST_LOCKED, REST_UNLOCK_WANTED, REST_UNLOCK_ASKED };

/* See relay/rest/rest.h. Written by relay/rest/ only. */
struct rest {
    enum rest_state state;
    bool never;                          /* it is not to rest */
    enum rest_lock lock;                 /* on the waking connection, */
    int backend_pid;                     /* which is this one */
    int64_t number;                      /* what notifications call the queue */
    instant_us busy_at;                  /* there was something to do */
    uint64_t finds;                      /* claims that have found something, */
    instant_us found_at[REST_FINDS_MAX]; /* and when the last of them did: that of number n at n % REST_FINDS_MAX */
    instant_us roused_at;
    instant_us try_at;    /* it does not try to rest before */
    instant_us may_until; /* until then it is known that it may */
    instant_us asked_at, ask_again_at;
    int64_t pause_us, left_us; /* between questions who still writes; between last looks that find something */
    instant_us until;
    instant_us check_at; /* whether the queue may still rest is asked; INSTANT_NEVER: it is being asked */
    int64_t family;      /* the table's partitions, when the queue began to rest */
};

/* What the side connection has found out for the queue to rest. Written by relay/side/rest_question.c only. */
struct rest_answer {
    enum rest_question_kind asked; /* under way, */
    unsigned asked_number;         /* with this number, */
    bool taken;                    /* and its result is here */
    unsigned number;               /* of the question that is answered */
    bool failed;
    bool may, held;    /* the queue may rest; producers see its locks */
    char obstacle[80]; /* why it may not */
    int64_t family;    /* another number: the table has other partitions */
    char *writers;     /* that have not ended, as an array in text; NULL: none */
    bool idle;         /* nobody may claim now */
    bool waiting;      /* there is something to claim */
    bool due;          /* in due_us something becomes due */
    int64_t due_us;
};

/* Settlements that the database has refused. Written by relay/settle/refusal.c, relay/settle/blame.c only. */
struct refusal {
    instant_us all_refused_since; /* no settlement has passed since; 0: the last one has */
    instant_us blame_until;       /* others have passed, so a row that is refused is to blame */
    instant_us test_claim_at;     /* no key is claimed to test the table before */
    int64_t blamed_id;            /* the event whose row was blamed last, */
    bool blamed;                  /* if one was */
    struct halving in_time;       /* of all settlements, since one took too long */
    size_t go_by_id; /* so many settlements to come name no places, because a row was updated since it was read */
};

/* Rows that another session holds. Written by relay/settle/blocked.c only. */
struct blocked {
    instant_us wake_at;           /* the first lane's wait is over; 0: none waits */
    instant_us short_waits_until; /* lock waits are short, because another session held a row */
};

/* How far claims run ahead of the sink. Written by relay/claim/ahead.c only. */
struct ahead {
    instant_us measured_at; /* when `delivered` events had been, in all */
    uint64_t delivered;
    bool known;              /* that has been measured once */
    bool slow;               /* few events a second were, then */
    bool brief;              /* many for each place were: none waits long for one */
    instant_us behind_until; /* and more lanes wait for the sink than it has places */
};

/* Of `ordering: lease`. Written by relay/hold/lease.c, relay/queue_open.c only. */
struct leases {
    bool used;                /* `ordering: lease`. Ask holding_of_queue() instead */
    char *owner;              /* who we are, in its leases */
    bool maybe_lost;          /* some lease may not be ours any more */
    size_t unrenewed;         /* those whose entries the last renewal has found locked by somebody */
    instant_us renew_at;      /* no lease is renewed before */
    instant_us owner_lost_at; /* the backend with which leases end, for the last time */
};

struct unreadable_search;

struct unreadable_row {
    struct error cause;
    instant_us tried_at; /* and could not be read */
    bool due;            /* to be tried again */
};

/* Rows that cannot be read. Written by relay/side/unreadable.c only. */
struct unreadable {
    char *ids_sql, *key_ids_sql, *where_sql, *read_sql, *known_sql;
    int64_t *ids;                /* of the rows, in no order; */
    struct unreadable_row *rows; /* these have the same places */
    size_t count;
    instant_us all_at;                /* all rows are tried again then */
    struct unreadable_search *search; /* under way; NULL: none is */
    bool read_some;                   /* a claim has brought events */
    bool eager;                       /* the last search has found some: there may be more */
    instant_us suspected_at;          /* a claim failed, maybe for a row; 0: none has */
    instant_us search_at;             /* no search before */
    instant_us held_until;            /* no claim before, while it goes on: it would fail again */
    unsigned fruitless;               /* searches in a row that have found none */
};
