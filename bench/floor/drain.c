/* How fast can a table be emptied at all? drain CONNINFO SQL CONNECTIONS runs one prepared statement on so many
 * connections, each again and again until it takes no row, and prints `ROWS SECONDS`: from the first execution, when
 * all are connected, to the last result. Nothing is done with the rows. */
#include "bench/floor/drainers.h"
#include "bench/floor/session.h"
#include "relay/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        session_fail("usage", "drain CONNINFO SQL CONNECTIONS");
    struct drainers *drainers = drainers_open(argv[1], argv[2], strtol(argv[3], NULL, 10));
    instant_us begun = clock_now();
    drainers_start(drainers);
    int64_t rows = drainers_join(drainers);
    printf("%" PRId64 " %.6f\n", rows, (double)(clock_now() - begun) / SECOND_US);
    return 0;
}
