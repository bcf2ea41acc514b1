/* relay/queue/queue_parts.h -- what a queue keeps for the modules that work on it. */
#ifndef RELAY_QUEUE_PARTS_H
#define RELAY_QUEUE_PARTS_H

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/queue/keyset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Everybody reads. Beside key_book.c, only relay/claim/claim_request.c writes: it moves keys into a claim. */
struct key_book {
    struct keyset more;                 /* keys with more events; owner: the claim that holds the key, or NULL */
    struct keyset busy_elsewhere;       /* such keys that another relay had locked; asked for again at entry->at */
    struct keyset destination_down;     /* keys whose destination is down: no claim takes them before entry->at */
    struct keyset destination_down_ids; /* the same for events without a key; entry->key is the bytes of the id */
};

struct pace {
    instant_us poll_at;     /* the next look at the table */
    instant_us earliest_at; /* nothing is claimed before, so that claims are worth what they cost */
    instant_us claim_by;    /* and not only look whether there is something */
    int64_t idle_us;
    bool work_known;      /* the last claim found something */
    bool took_all;        /* and left nothing, that is known */
    int64_t coming_milli; /* thousandths of an event, by what claims have found; see pace.c */
    instant_us coming_at;
};

struct refusal {
    instant_us doubt_at;    /* it has refused something, and let nothing go since; 0: no doubt */
    instant_us blame_until; /* it has let others go, so what it refuses is to blame itself */
    instant_us trial_at;    /* no key is claimed to find out before */
    int64_t blamed_id;      /* the event whose row was blamed last, */
    bool blamed;            /* if one was */
    size_t most;            /* things that are settled at once, since more took too long; 0: as many as there are */
};

struct blocked {
    instant_us wake_at;         /* the first wait is over; 0: there is none */
    instant_us impatient_until; /* somebody has held something */
};

struct ahead {
    instant_us measured_at; /* when `delivered` events had been, in all */
    uint64_t delivered;
    bool known;              /* that has been measured once */
    bool slow;               /* few events a second were, then */
    bool brief;              /* many for each place were: none waits long for one */
    instant_us behind_until; /* and more lanes wait for the sink than it has places */
};

struct leases {
    bool used;                /* `ordering: lease` */
    char *owner;              /* who we are, in its leases */
    bool doubted;             /* some lease may not be ours any more */
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

/* Only unreadable.c writes here. */
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
    unsigned vain;                    /* searches in a row that have found none */
};

#endif
