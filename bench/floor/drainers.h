/* bench/floor/drainers.h -- the bare drain: one prepared statement on several connections, each again and again until
 * it finds no row.
 *
 *   drainers_open -> drainers_start -> drainers_join
 *
 * Every failure ends the program. */
#ifndef BENCH_FLOOR_DRAINERS_H
#define BENCH_FLOOR_DRAINERS_H

#include <stdint.h>

struct drainers;

/* Connects and prepares; `connections` from 1 to 64. drainers_join() frees it. */
struct drainers *drainers_open(const char *conninfo, const char *sql, long connections);

/* Begins, a thread for each connection. Once. */
void drainers_start(struct drainers *drainers);

/* Waits for all to find no row; frees. Returns how many rows they took in all. */
int64_t drainers_join(struct drainers *drainers);

#endif
