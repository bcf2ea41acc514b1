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

/* A settlement that fails, and whose session lives, may pass when fewer rows are in it: see relay/settle/refusal.h. A
 * trigger may raise for one row whatever the server raises on its own account. */
enum db_refusal {
    REFUSAL_NONE,    /* whatever is in it, it fails */
    REFUSAL_OF_ROW,  /* what is in one row may be the cause */
    REFUSAL_BY_LOCK, /* one of them needs what another session holds, or the server lacks: nobody's fault */
    REFUSAL_BY_TIME  /* they were too many for the time there is, or somebody has cancelled it */
};

struct sqlstate_rule {
    const char *prefix; /* of the SQLSTATE: 2 or 5 characters */
    enum db_remedy remedy;
    enum error_kind kind;
    const char *why;
    enum db_refusal refusal;
};

/* Of 0A000 that the server raises because a prepared statement is older than the table as it is. */
extern const struct sqlstate_rule sqlstate_stale_plan;

/* The rule for `sqlstate` (NULL: the connection broke without one). Never NULL. */
const struct sqlstate_rule *sqlstate_rule(const char *sqlstate);
