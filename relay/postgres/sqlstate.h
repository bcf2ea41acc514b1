/* relay/postgres/sqlstate.h -- what a PostgreSQL error means for the relay, by SQLSTATE. */
#pragma once

#include "relay/base/error.h"

enum db_remedy {
    DB_RETRY,      /* roll back and try again after a short, growing wait */
    DB_RECONNECT,  /* this connection is of no more use */
    DB_UNPREPARED, /* a pooler shares sessions: reconnect and prepare nothing */
    DB_SHRINK,     /* the lock table is full: roll back, take fewer keys */
    DB_FIX         /* somebody has to mend something; keep trying, slowly, and say so */
};

/* A settlement that fails may pass when fewer rows are in it: see relay/settle/refusal.h. */
enum db_refusal {
    REFUSAL_NONE,    /* whatever is in it, it fails */
    REFUSAL_OF_ROW,  /* what is in one row may be the cause */
    REFUSAL_BY_LOCK, /* somebody else holds what one of them needs */
    REFUSAL_BY_TIME  /* they were too many for the time there is, or somebody has cancelled it */
};

struct sqlstate_rule {
    const char *prefix; /* of the SQLSTATE: 2 or 5 characters */
    enum db_remedy remedy;
    enum error_kind kind;
    const char *why;
    enum db_refusal refusal;
};

/* The rule for `sqlstate` (NULL: the connection broke without one). Never NULL. */
const struct sqlstate_rule *sqlstate_rule(const char *sqlstate);
