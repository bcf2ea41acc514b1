#include "sinks/kafka/kafka_verdict.h"

struct row {
    rd_kafka_resp_err_t code;
    enum verdict verdict; /* if the message did not reach the log */
    enum error_kind kind;
    bool whole_batch;
};

/* Retriable broker errors (leader changes, too few replicas, throttling) are not here: librdkafka retries them itself
 * and reports _MSG_TIMED_OUT in the end. A code that is not here counts against the event, so that it cannot circle
 * for ever. */
static const struct row rows[] = {
    /* clang-format off */
    /* The record itself. */
    {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,               VERDICT_REJECTED, ERROR_REFUSED,     true},
    {RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE,                 VERDICT_REJECTED, ERROR_REFUSED,     true},
    {RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,            VERDICT_REJECTED, ERROR_REFUSED,     true},
    {RD_KAFKA_RESP_ERR_INVALID_RECORD,                   VERDICT_REJECTED, ERROR_REFUSED,     true}, /* no key in a compacted topic */
    {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,                VERDICT_REJECTED, ERROR_REFUSED,     true},
    {RD_KAFKA_RESP_ERR_INVALID_MSG,                      VERDICT_REJECTED, ERROR_REFUSED,     true},
    {RD_KAFKA_RESP_ERR__INVALID_ARG,                     VERDICT_REJECTED, ERROR_REFUSED,     false},

    /* The topic, for every event that goes there. */
    {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,            VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,                   VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,               VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION,                  VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,       VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,     VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT,   VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE,     VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION,              VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS,            VERDICT_RETRY,    ERROR_ROUTE,       false},
    {RD_KAFKA_RESP_ERR_POLICY_VIOLATION,                 VERDICT_RETRY,    ERROR_ROUTE,       false},

    /* The cluster, or our way to it. Purged: we gave up waiting. */
    {RD_KAFKA_RESP_ERR__TRANSPORT,                       VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,                VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__RESOLVE,                         VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__SSL,                             VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__AUTHENTICATION,                  VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED,       VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__PURGE_QUEUE,                     VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,                  VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__DESTROY,                         VERDICT_RETRY,    ERROR_UNREACHABLE, false},

    /* This producer is finished and a new one takes over. */
    {RD_KAFKA_RESP_ERR__FATAL,                           VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE,               VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR__FENCED,                          VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,     VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,              VERDICT_RETRY,    ERROR_UNREACHABLE, false},
    {RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,           VERDICT_RETRY,    ERROR_UNREACHABLE, false},

    /* One partition can be without a leader while the others take everything, so the engine has to look around. */
    {RD_KAFKA_RESP_ERR__MSG_TIMED_OUT,                   VERDICT_RETRY,    ERROR_TIMEOUT,     false},
    {RD_KAFKA_RESP_ERR__TIMED_OUT,                       VERDICT_RETRY,    ERROR_TIMEOUT,     false},
    {RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,                VERDICT_RETRY,    ERROR_TIMEOUT,     false},
    {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,              VERDICT_RETRY,    ERROR_OVERLOADED,  false},
    {RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, VERDICT_RETRY,    ERROR_OVERLOADED,  false},
    {RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED,        VERDICT_RETRY,    ERROR_OVERLOADED,  false},
    {RD_KAFKA_RESP_ERR__QUEUE_FULL,                      VERDICT_RETRY,    ERROR_OVERLOADED,  false},
    /* clang-format on */
};

struct kafka_verdict kafka_verdict_of(rd_kafka_resp_err_t code, rd_kafka_msg_status_t status)
{
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && status == RD_KAFKA_MSG_STATUS_PERSISTED)
        return (struct kafka_verdict){VERDICT_ACKED, ERROR_NONE, false};
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return (struct kafka_verdict){VERDICT_UNKNOWN, ERROR_PROTOCOL, false};
    struct kafka_verdict result = {VERDICT_RETRY, ERROR_PROTOCOL, false};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].code == code)
            result = (struct kafka_verdict){rows[i].verdict, rows[i].kind, rows[i].whole_batch};
    /* A refused record was in the request, so librdkafka calls it possibly persisted; but brokers check a batch
     * before they append it. For everything else the doubt stands. */
    if (result.verdict == VERDICT_RETRY && status != RD_KAFKA_MSG_STATUS_NOT_PERSISTED && result.kind != ERROR_ROUTE)
        result.verdict = VERDICT_UNKNOWN;
    return result;
}
