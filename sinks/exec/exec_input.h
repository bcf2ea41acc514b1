/* sinks/exec/exec_input.h -- what a command reads from its standard input. */
#pragma once

#include "relay/base/json_writer.h"
#include "sinks/delivery.h"

/* A new file, in memory and open at its beginning, with a line of JSON for each of the deliveries that are linked from
 * `first` on. `buffer` is room to write them in. The caller closes it. -1 and errno. */
int exec_input_make(struct json_writer *buffer, const struct delivery *first);
