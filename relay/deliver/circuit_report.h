/* relay/deliver/circuit_report.h -- what the log says of destinations that are down. */
#pragma once

#include "relay/deliver/outlet.h"

/* Why a destination is down: first, and when the cause is another than the logged one. Each cause once, and one in 30
 * s at most: circuit->logged_cause remembers. */
void report_circuit_opened(const struct outlet *outlet, struct circuit *circuit, const char *destination,
                           const struct error *cause, instant_us now);
void report_circuit_changed(const struct outlet *outlet, struct circuit *circuit, const char *destination,
                            const struct error *cause, instant_us now);
void report_circuit_closed(const struct outlet *outlet, const char *destination, int64_t open_us);
