#include "ordering/claim_rows.h"

#define ROWS_START 1024
#define ROWS_MAX 16384
#define LOOK_MIN 9
#define LOOK_MAX 32
#define LOOK_LESS 4 /* after a claim that was not thin one part in so many less of what need not be looked at */

void claim_rows_init(struct claim_rows *rows)
{
    *rows = (struct claim_rows){.limit = ROWS_START, .look = LOOK_MIN};
}

int64_t claim_rows_look(const struct claim_rows *rows, int64_t keys, bool most)
{
    return keys * (most ? LOOK_MAX : rows->look) / 8 + 4;
}

bool claim_rows_split(const struct scan_plan *scan, int64_t rows, int64_t share, int64_t *ret_newest,
                      int64_t *ret_oldest)
{
    *ret_newest = *ret_oldest = rows;
    struct id_range oldest = scan->oldest;
    if (id_range_is_empty(scan->newest) || id_range_is_empty(oldest))
        return false;
    *ret_oldest = rows * share / 100;
    if (oldest.hi < id_add(oldest.lo, *ret_oldest))
        *ret_oldest = oldest.hi - oldest.lo + 1;
    *ret_newest = rows - *ret_oldest;
    return true;
}

bool claim_rows_suffice(const struct claim_rows *rows)
{
    return rows->look == LOOK_MIN;
}

/* Where there is one place, what comes first in the order of many would take it each time. It may fail again and again,
 * and as the one trial of a destination keep all others waiting: chance has to decide. */
int64_t claim_rows_share(const struct claim_request *request, int64_t share)
{
    if (request->max_keys > 1)
        return share;
    return (int64_t)(request->draw / 2 % 100) < share ? 100 : 0;
}

int64_t claim_rows_part(const struct claim_request *request, int64_t share)
{
    return (request->max_keys * share + (int64_t)(request->draw / 2 % 100)) / 100;
}

bool claim_rows_waits_last(const struct claim_request *request)
{
    return request->max_keys == 1 && request->draw % 2 == 1;
}

/* Of those that were under way together each would halve it. */
static void ask_for_fewer(struct claim_rows *rows, const struct claim_plan *plan)
{
    int64_t fewer = plan->rows_limit / 2;
    if (plan->room > 0 && plan->room * 2 < fewer)
        fewer = plan->room * 2; /* what is left out has travelled in vain */
    if (fewer < 1)
        fewer = 1;
    if (fewer < rows->limit)
        rows->limit = fewer;
}

void claim_rows_failed(struct claim_rows *rows, const struct claim_plan *plan)
{
    if (plan->rows > 0)
        ask_for_fewer(rows, plan);
}

void claim_rows_done(struct claim_rows *rows, const struct claim_plan *plan)
{
    if (plan->thin)
        rows->look = rows->look * 2 < LOOK_MAX ? rows->look * 2 : LOOK_MAX;
    else /* also one that sees nothing: what comes after it may be of another kind */
        rows->look -= (rows->look - LOOK_MIN + LOOK_LESS - 1) / LOOK_LESS;
    if (plan->spilled)
        ask_for_fewer(rows, plan);
    else if (plan->rows >= rows->limit / 2 && rows->limit < ROWS_MAX)
        rows->limit *= 2;
}
