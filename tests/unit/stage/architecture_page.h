/* tests/unit/stage/architecture_page.h -- tables of docs/architecture.md that the code prints. */
#ifndef TESTS_UNIT_ARCHITECTURE_PAGE_H
#define TESTS_UNIT_ARCHITECTURE_PAGE_H

#include "relay/base/file.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES_MAX ((size_t)1 << 20)

static inline void assert_page_has(void (*print)(FILE *out))
{
    struct error err;
    size_t page_size, table_size;
    char *table, *page = file_read("docs/architecture.md", PAGE_BYTES_MAX, &page_size, &err);
    ck_assert_msg(page != NULL, "%s", err.text);
    FILE *out = open_memstream(&table, &table_size);
    print(out);
    fclose(out);
    ck_assert_msg(memmem(page, page_size, table, table_size) != NULL, "docs/architecture.md lacks this table:\n%s",
                  table);
    free(table);
    free(page);
}

#endif
