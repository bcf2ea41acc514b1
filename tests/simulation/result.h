/* tests/simulation/result.h -- results of statements, without libpq: its functions that read one are defined here anew.
 *
 * libpq can build a result, but no failure. */
#ifndef TESTS_SIMULATION_RESULT_H
#define TESTS_SIMULATION_RESULT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the run's arena, all columns null. PQclear() has to be called all the same: result_unread() counts. */
PGresult *result_new(ExecStatusType status, int rows, int columns);
PGresult *result_error(const char *sqlstate);

void result_bigint(PGresult *res, int row, int column, int64_t value);
void result_bool(PGresult *res, int row, int column, bool value);
void result_int(PGresult *res, int row, int column, int32_t value);
void result_text(PGresult *res, int row, int column, const char *text, size_t size); /* a copy */
void result_key(PGresult *res, int row, int column, int64_t key);                    /* its name */

void result_tid(PGresult *res, int row, int column, int64_t id); /* the place of the row `id` */

const char *result_sqlstate(const PGresult *res); /* NULL: no failure */

/* Results that nobody has cleared. */
int64_t result_unread(void);
void result_forget_unread(void);

/* The name of key 3 is k3. */
#define KEY_TEXT_MAX 24
size_t key_text(char *ret, int64_t key);
int64_t key_parse(const char *text, size_t size);

#endif
