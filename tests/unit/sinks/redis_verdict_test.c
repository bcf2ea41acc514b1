#include "sinks/redis/redis_verdict.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

static const struct {
    const char *reply;
    enum verdict verdict;
    enum error_kind kind;
    bool reconnect;
} replies[] = {
    {"LOADING Redis is loading the dataset in memory", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"BUSY Redis is busy running a script.", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"TRYAGAIN Multiple keys request during rehashing of slot", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"MASTERDOWN Link with MASTER is down", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"NOREPLICAS Not enough good replicas to write.", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"CLUSTERDOWN Hash slot not served", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"MISCONF Redis is configured to save RDB snapshots", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"OOM command not allowed when used memory > 'maxmemory'.", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"ERR max number of clients reached", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"READONLY You can't write against a read only replica.", VERDICT_RETRY, ERROR_UNREACHABLE, true},
    {"NOAUTH Authentication required.", VERDICT_RETRY, ERROR_ROUTE, true},
    {"WRONGPASS invalid username-password pair", VERDICT_RETRY, ERROR_ROUTE, true},
    {"NOPERM this user has no permissions", VERDICT_RETRY, ERROR_ROUTE, false},
    {"DENIED Redis is running in protected mode", VERDICT_RETRY, ERROR_ROUTE, true},
    {"MOVED 3999 127.0.0.1:6381", VERDICT_RETRY, ERROR_ROUTE, false},
    {"ASK 3999 127.0.0.1:6381", VERDICT_RETRY, ERROR_ROUTE, false},
    {"WRONGTYPE Operation against a key holding the wrong kind of value", VERDICT_RETRY, ERROR_ROUTE, false},
    {"ERR unknown command 'XADD'", VERDICT_RETRY, ERROR_ROUTE, false},
    {"ERR unknown command, with args beginning with: 's3cret'", VERDICT_RETRY, ERROR_ROUTE, false},
    /* the same, as they are worded in a script */
    {"The user executing the script can't run this command or subcommand", VERDICT_RETRY, ERROR_ROUTE, false},
    {"ERR The user executing the script can't run this command or subcommand", VERDICT_RETRY, ERROR_ROUTE, false},
    {"ERR ACL failure in script: User relay has no permissions to run the 'xadd' command", VERDICT_RETRY, ERROR_ROUTE,
     false},
    {"Unknown Redis command called from Lua script", VERDICT_RETRY, ERROR_ROUTE, false},
    {"ERR Unknown Redis command called from Lua script", VERDICT_RETRY, ERROR_ROUTE, false},
    {"ERR Unknown Redis command called from script", VERDICT_RETRY, ERROR_ROUTE, false},
    {"ERR Unknown command called from script", VERDICT_RETRY, ERROR_ROUTE, false},
    /* the event itself */
    {"ERR Protocol error: invalid bulk length", VERDICT_REJECTED, ERROR_REFUSED, false},
    {"ERR string exceeds maximum allowed size (proto-max-bulk-len)", VERDICT_REJECTED, ERROR_REFUSED, false},
    {"ERR Element too large", VERDICT_REJECTED, ERROR_REFUSED, false},
    {"ERR Elements are too large to be stored", VERDICT_REJECTED, ERROR_REFUSED, false},
    {"ERR syntax error", VERDICT_REJECTED, ERROR_REFUSED, false},
    {"ERR value is not an integer or out of range", VERDICT_REJECTED, ERROR_REFUSED, false},
    {"ERR wrong number of arguments for 'xadd' command", VERDICT_REJECTED, ERROR_REFUSED, false},
    {"Wrong number of args calling Redis command From Lua script", VERDICT_REJECTED, ERROR_REFUSED, false},
    {"ERR Wrong number of args calling Redis command from script", VERDICT_REJECTED, ERROR_REFUSED, false},
    /* nobody knows: a proxy's, perhaps */
    {"ERR upstream failure", VERDICT_RETRY, ERROR_REFUSED, false},
    {"ERR Protocol error: unauthenticated bulk length", VERDICT_RETRY, ERROR_REFUSED, false},
    {"BUSYKEY Target key name already exists.", VERDICT_RETRY, ERROR_REFUSED, false},
    {"LOADINGX", VERDICT_RETRY, ERROR_REFUSED, false},
    {"OOM", VERDICT_RETRY, ERROR_OVERLOADED, false},
    {"", VERDICT_RETRY, ERROR_REFUSED, false},
};

START_TEST(each_error_reply_has_its_meaning)
{
    const struct redis_verdict *rule = redis_verdict_find(span_of(replies[_i].reply));
    ck_assert_int_eq(rule->verdict, replies[_i].verdict);
    ck_assert_int_eq(rule->kind, replies[_i].kind);
    ck_assert_int_eq(rule->reconnect, replies[_i].reconnect);
}
END_TEST

static const char *explain(const char *reply, struct error *err)
{
    redis_verdict_explain(redis_verdict_find(span_of(reply)), span_of(reply), err);
    return err->text;
}

START_TEST(explanation_says_what_to_do)
{
    struct error err;
    ck_assert_str_eq(explain("MOVED 3999 127.0.0.1:6381", &err),
                     "MOVED 3999 127.0.0.1:6381; Redis Cluster is not supported; give a single primary");
    ck_assert_int_eq(err.kind, ERROR_ROUTE);
    ck_assert_str_eq(explain("ERR odd", &err), "ERR odd");
}
END_TEST

START_TEST(explanation_never_holds_the_payload)
{
    struct error err;
    explain("ERR unknown command 'XADD', with args beginning with: 'orders' '*' 's3cret' ", &err);
    ck_assert_ptr_null(strstr(err.text, "s3cret"));
    ck_assert_ptr_nonnull(strstr(err.text, "unknown command 'XADD'"));
}
END_TEST

START_TEST(explanation_of_a_long_reply_keeps_its_hint)
{
    struct error err;
    char reply[2000] = "OOM ";
    memset(reply + 4, 'x', sizeof reply - 5);
    ck_assert_ptr_nonnull(strstr(explain(reply, &err), "; raise maxmemory"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_verdict");
    TCase *tcase = tcase_create("redis_verdict");
    tcase_add_loop_test(tcase, each_error_reply_has_its_meaning, 0, (int)(sizeof replies / sizeof replies[0]));
    tcase_add_test(tcase, explanation_says_what_to_do);
    tcase_add_test(tcase, explanation_never_holds_the_payload);
    tcase_add_test(tcase, explanation_of_a_long_reply_keeps_its_hint);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
