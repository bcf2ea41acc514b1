/* relay/bench/bench_schema.h -- the schema of a bench: made, filled, and gone afterwards. */
#pragma once

#include "relay/bench/bench.h"

/* Reads the server's settings. False and *err where a bench cannot run (a standby, a read-only session, behind a
 * pooler) or would reach others (a publication of all tables, locks that they need). */
bool bench_schema_check(struct bench *bench, struct bench_server *ret, struct error *err) MUST_CHECK;

/* Drops the schemas that earlier benches have left behind, whose sessions are gone, and says so on stderr; for as long
 * as that takes or somebody holds locks there, unless a signal ends it. Those of other roles are named only. What is in
 * use is passed over; with `all` it is waited for, 5 s for all of them, and if one is in use then, it is the error
 * (ERROR_CONFLICT), when the others are dropped. */
bool bench_schema_clean(struct bench *bench, bool all, struct error *err) MUST_CHECK;

/* Makes the schema bench->schema, whose name must be new. After a failure it may be there all the same, as the answer
 * to its COMMIT may have been lost: bench_schema_close() follows in any case. */
bool bench_schema_open(struct bench *bench, struct error *err) MUST_CHECK;

/* Exactly options.events events, none of them dead rows. */
bool bench_schema_fill(struct bench *bench, struct error *err) MUST_CHECK;

/* No event. */
bool bench_schema_empty(struct bench *bench, struct error *err) MUST_CHECK;

/* Drops it, if it was ever asked for, on a new connection where bench->conn is lost, for as long as that takes; after a
 * signal, for 30 s. False when it is left behind: *err names it and says what to do. */
bool bench_schema_close(struct bench *bench, struct error *err) MUST_CHECK;
