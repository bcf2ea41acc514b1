/* Which sinks talk over a network to somebody whom TLS does not verify. */
#include "sinks/http/http_request.h"
#include "sinks/kafka/kafka_conf.h"
#include "sinks/redis/redis_settings.h"
#include "sinks/sink.h"
#include "tests/support/run_suite.h"

#include <stdlib.h>

static void is_exposed(const struct sink_type *type, const void *settings, const char *hosts, const char *setting)
{
    struct exposure exposure;
    bool exposed = type->exposed(settings, &exposure);
    ck_assert_msg(exposed == (hosts != NULL), "%s", exposed ? exposure.hosts : hosts);
    if (!exposed)
        return;
    ck_assert_str_eq(exposure.hosts, hosts);
    ck_assert_str_eq(exposure.setting, setting);
    ck_assert_ptr_nonnull(exposure.why);
    ck_assert_ptr_nonnull(exposure.remedy);
}

static const struct {
    const char *url, *hosts; /* NULL: not exposed */
} redis[] = {
    {"redis://cache.example", "cache.example"},
    {"redis://me:s3cret@cache.example:6380/1", "cache.example"},
    {"redis://me:a@s3cret@cache.example", "cache.example"},
    {"redis://[2001:db8::1]:6380", "2001:db8::1"},
    {"redis://10.0.0.1", "10.0.0.1"},
    {"rediss://cache.example", NULL},
    {"redis://localhost:6380", NULL},
    {"redis://:p@127.0.0.1", NULL},
    {"redis://[::1]", NULL},
    {"unix:///run/redis.sock", NULL},
    {"redis://", NULL}, /* refused by check() */
};

START_TEST(redis_is_exposed_without_tls)
{
    struct redis_settings settings = {.url = (char *)redis[_i].url};
    is_exposed(sink_type_find("redis"), &settings, redis[_i].hosts, "url");
}
END_TEST

static const struct {
    const char *url, *proxy, *hosts, *setting;
} http[] = {
    {"http://hooks.example/in", NULL, "hooks.example", "url"},
    {"HTTP://hooks.example", NULL, "hooks.example", "url"},
    {"http://me:s3cret@hooks.example:8080/in?t=s3cret", NULL, "hooks.example", "url"},
    {"http://[2001:db8::1]:80/", NULL, "[2001:db8::1]", "url"},
    {"https://hooks.example/in", NULL, NULL, NULL},
    {"http://localhost:8080/in", NULL, NULL, NULL},
    {"http://127.1/in", NULL, NULL, NULL},
    {"http://[::1]:8080/", NULL, NULL, NULL},
    {"http://", NULL, NULL, NULL}, /* refused by check() */
    {"http://localhost/", "http://proxy.example:3128", "proxy.example", "url"},
    {"http://hooks.example/", "http://localhost:3128", "hooks.example", "url"},
    {"http://hooks.example/", "https://proxy.example", "hooks.example", "url"}, /* TLS, as far as the proxy */
    {"http://hooks.example/", "http://proxy.example", "hooks.example, proxy.example", "url"},
    {"http://localhost/", "socks5://127.0.0.1:1080", NULL, NULL},
    {"https://hooks.example/", "http://proxy.example:3128", NULL, NULL},
    {"https://hooks.example/", "http://me:s3cret@proxy.example:3128", "proxy.example", "proxy"},
    {"https://hooks.example/", "socks5h://me:s3cret@proxy.example", "proxy.example", "proxy"},
    {"https://hooks.example/", "https://me:s3cret@proxy.example", NULL, NULL},
    {"https://hooks.example/", "http://me:s3cret@localhost:3128", NULL, NULL},
};

START_TEST(http_is_exposed_without_https)
{
    struct http_settings settings = {.url = (char *)http[_i].url, .proxy = (char *)http[_i].proxy};
    is_exposed(sink_type_find("http"), &settings, http[_i].hosts, http[_i].setting);
}
END_TEST

#define SERVERS "bootstrap.servers"
#define PROTOCOL "security.protocol"
#define VERIFICATION "enable.ssl.certificate.verification"
#define NAME_CHECK "ssl.endpoint.identification.algorithm"

static const struct {
    const char *properties[3][2], *hosts, *setting;
} kafka[] = {
    {{{SERVERS, "k1.example"}}, "k1.example", "properties." PROTOCOL},
    {{{"metadata.broker.list", "k1.example"}}, "k1.example", "properties." PROTOCOL},
    {{{SERVERS, "k1.example:9092, k2.example,localhost:1"}}, "k1.example, k2.example", "properties." PROTOCOL},
    {{{SERVERS, "PLAINTEXT://k1.example:9092,[2001:db8::1]:9092,x"}},
     "k1.example, [2001:db8::1], x",
     "properties." PROTOCOL},
    {{{SERVERS, "k1.example"}, {PROTOCOL, "PLAINTEXT"}}, "k1.example", "properties." PROTOCOL},
    {{{SERVERS, "k1.example"}, {PROTOCOL, "sasl_plaintext"}}, "k1.example", "properties." PROTOCOL},
    {{{SERVERS, "localhost:9092,[::1]:9092,127.0.0.1"}}, NULL, NULL},
    {{{"test.mock.num.brokers", "1"}}, NULL, NULL},
    {{{"no.such.property", "1"}}, NULL, NULL}, /* refused by check() */
    {{{SERVERS, "k1.example"}, {PROTOCOL, "ssl"}}, NULL, NULL},
    {{{SERVERS, "k1.example"}, {PROTOCOL, "SASL_SSL"}}, NULL, NULL},
    {{{SERVERS, "k1.example"}, {PROTOCOL, "ssl"}, {VERIFICATION, "false"}}, "k1.example", "properties." VERIFICATION},
    {{{SERVERS, "k1.example"}, {PROTOCOL, "sasl_ssl"}, {NAME_CHECK, "none"}}, "k1.example", "properties." NAME_CHECK},
    {{{SERVERS, "k1.example"}, {PROTOCOL, "ssl"}, {NAME_CHECK, "https"}}, NULL, NULL},
    {{{SERVERS, "localhost"}, {PROTOCOL, "ssl"}, {VERIFICATION, "false"}}, NULL, NULL},
};

START_TEST(kafka_is_exposed_without_verified_tls)
{
    struct setting_pair pairs[3];
    struct kafka_settings settings = {.properties.pairs = pairs};
    for (size_t i = 0; i < 3 && kafka[_i].properties[i][0]; i++)
        pairs[settings.properties.count++] =
            (struct setting_pair){(char *)kafka[_i].properties[i][0], (char *)kafka[_i].properties[i][1]};
    is_exposed(sink_type_find("kafka"), &settings, kafka[_i].hosts, kafka[_i].setting);
}
END_TEST

START_TEST(sinks_without_a_network_say_nothing)
{
    static const char *const names[] = {"file", "exec", "discard"};
    for (size_t i = 0; i < 3; i++)
        ck_assert(!sink_type_find(names[i])->exposed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sink_exposed");
    TCase *tcase = tcase_create("sink_exposed");
    tcase_add_loop_test(tcase, redis_is_exposed_without_tls, 0, (int)(sizeof redis / sizeof redis[0]));
    tcase_add_loop_test(tcase, http_is_exposed_without_https, 0, (int)(sizeof http / sizeof http[0]));
    tcase_add_loop_test(tcase, kafka_is_exposed_without_verified_tls, 0, (int)(sizeof kafka / sizeof kafka[0]));
    tcase_add_test(tcase, sinks_without_a_network_say_nothing);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
