#include "relay/deliver/circuit_report.h"

/* A cause may name the event that was tried, and be another one each time. */
#define LOG_AGAIN_US (30 * SECOND_US)

static void report_down(const struct outlet *outlet, const char *fact, const char *destination,
                        const struct error *cause)
{
    LOG(outlet->log, LOG_WARN, fact, log_text("sink", outlet->config->name), log_text("destination", destination),
        log_text("kind", error_kind_name(cause->kind)), log_text("cause", cause->text));
}

void report_circuit_opened(const struct outlet *outlet, struct circuit *circuit, const char *destination,
                           const struct error *cause, instant_us now)
{
    circuit->logged_cause = span_hash(span_of(cause->text));
    circuit->logged_at = now;
    report_down(outlet, "sink.down", destination, cause);
}

void report_circuit_changed(const struct outlet *outlet, struct circuit *circuit, const char *destination,
                            const struct error *cause, instant_us now)
{
    uint64_t cause_hash = span_hash(span_of(cause->text));
    if (cause_hash == circuit->logged_cause || now - circuit->logged_at < LOG_AGAIN_US)
        return;
    circuit->logged_cause = cause_hash;
    circuit->logged_at = now;
    report_down(outlet, "sink.still_down", destination, cause);
}

void report_circuit_closed(const struct outlet *outlet, const char *destination, int64_t open_us)
{
    LOG(outlet->log, LOG_INFO, "sink.up", log_text("sink", outlet->config->name), log_text("destination", destination),
        log_int("down_ms", open_us / MS_US));
}
