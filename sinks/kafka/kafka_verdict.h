/* sinks/kafka/kafka_verdict.h -- what a librdkafka error means for the event that got it. */
#pragma once

#include "sinks/delivery.h"

#include <librdkafka/rdkafka.h>

struct kafka_verdict {
    enum verdict verdict;
    enum error_kind kind; /* ERROR_NONE exactly when ACKED */
    /* A broker refuses a batch as a whole: one bad record in it fails its neighbours too. True when only a delivery
     * in a batch of its own can tell whose fault it was. Then `verdict` is the one for that second try. */
    bool whole_batch;
};

/* The verdict for a delivery report, or for a refusal by produce itself (`status` NOT_PERSISTED). */
struct kafka_verdict kafka_verdict_of(rd_kafka_resp_err_t code, rd_kafka_msg_status_t status);
