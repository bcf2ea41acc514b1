#include "relay/base/halving.h"

size_t halving_room(const struct halving *halving, size_t count)
{
    return halving->most > 0 && halving->most < count ? halving->most : count;
}

bool halving_failed(struct halving *halving, size_t tried, size_t divide_by)
{
    halving->most = tried > divide_by ? tried / divide_by : 1;
    return tried == 1;
}

void halving_succeeded(struct halving *halving, size_t limit)
{
    halving->most = halving->most < limit / 2 ? halving->most * 2 : limit;
}

static void push(struct halving_list *list, size_t at, size_t count)
{
    list->parts[list->count++] = (struct halving_part){at, count};
}

void halving_list_begin(struct halving_list *list, size_t row_count)
{
    list->count = 0;
    if (row_count > 0)
        push(list, 0, row_count);
}

struct halving_part halving_list_part(const struct halving_list *list)
{
    return list->count > 0 ? list->parts[list->count - 1] : (struct halving_part){0, 0};
}

void halving_list_succeeded(struct halving_list *list)
{
    list->count--;
}

bool halving_list_failed(struct halving_list *list)
{
    struct halving_part part = list->parts[--list->count];
    if (part.count == 1)
        return true;
    push(list, part.at + part.count / 2, part.count - part.count / 2);
    push(list, part.at, part.count / 2);
    return false;
}
