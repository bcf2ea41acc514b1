/* The vectors are what the packages standardwebhooks 1.1.1 of npm and 1.1.0 of PyPI both answered to sign(id, time,
 * body) with each of the secrets. */
#include "sinks/http/http_signature.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define SECRET_24 "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
#define SECRET_32 "whsec_cGdjb3VyaWVyIHRlc3Qgc2VjcmV0LCBub3QgeW91cnM="
#define SECRET_64 "whsec_v8DBwsPExcbHyMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/g=="
#define UNPADDED_25 "whsec_5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/g"

static const struct {
    const char *secrets[4], *id, *timestamp, *body, *signatures;
} vectors[] = {
    {{SECRET_24}, "812", "1700000000", "{}", "v1,kjfsOtxkmbPT5IGASfynv2xnnDhaLNnEPRN45udXpvk="},
    {{SECRET_32},
     "5f1b9a3e-0c1d-4f5e-8a6b-1c2d3e4f5a6b",
     "1763719200",
     "{\"total\": 12.50, \"name\": \"Zo\xc3\xab\"}\n",
     "v1,OEsR7X0stS5wZD7P8G6mQZ+hW5FROxwSylFs+VXPLjs="},
    {{SECRET_64}, "a%20%C3%BC", "1763719200", NULL, "v1,6jZ8Q0rcLjGyaPVAWFcJFoPSaCxqG0jXCYq1TLDtD3c="},
    {{UNPADDED_25}, "812", "1700000000", "{}", "v1,bcIEla3jM87ScmD9hqCpZmwBLc6I+9ye1H/Kjo2DQHU="},
    {{SECRET_64, SECRET_32, SECRET_24},
     "812",
     "1700000000",
     "{}",
     "v1,nHBVhAX77uRD2ghEpTYMqmofH1YjqeWaVWXeP6Qttac= v1,s0woUtK6mHQ7CG3qsi9knC0jrxlBj657lTvvdDZvAbw= "
     "v1,kjfsOtxkmbPT5IGASfynv2xnnDhaLNnEPRN45udXpvk="},
    {{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
     "msg_p5jXN8AQM9LWM0D4loKWxJek",
     "1614265330",
     "{\"test\": 2432232314}",
     "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
};

static struct error err;

static struct http_signer *signer_of(const char *const *texts, size_t count)
{
    struct setting_list secrets = {(char **)(uintptr_t)texts, count};
    struct http_signer *signer = http_signer_open(&secrets, &err);
    ck_assert_msg(signer != NULL, "%s", err.text);
    return signer;
}

START_TEST(signatures_are_those_of_the_receivers_libraries)
{
    size_t count = 0;
    for (; vectors[_i].secrets[count]; count++)
        ck_assert_msg(http_secret_check(vectors[_i].secrets[count], &err), "%s", err.text);
    struct http_signer *signer = signer_of(vectors[_i].secrets, count);
    const struct http_signed what = {span_of(vectors[_i].id), span_of(vectors[_i].timestamp),
                                     vectors[_i].body ? span_of(vectors[_i].body) : (struct span){NULL, 0}};
    for (int again = 0; again < 2; again++) {
        char signatures[HTTP_SIGNATURES_BYTES_MAX];
        ck_assert_msg(http_signer_sign(signer, &what, signatures, &err), "%s", err.text);
        ck_assert_str_eq(signatures, vectors[_i].signatures);
    }
    http_signer_close(signer);
}
END_TEST

START_TEST(as_many_secrets_as_there_may_be_fill_the_room_exactly)
{
    const char *texts[HTTP_SECRETS_MAX];
    for (size_t i = 0; i < HTTP_SECRETS_MAX; i++)
        texts[i] = SECRET_64;
    struct http_signer *signer = signer_of(texts, HTTP_SECRETS_MAX);
    const struct http_signed what = {SPAN_LITERAL("1"), SPAN_LITERAL("2"), SPAN_LITERAL("a\0b")};
    char *signatures = malloc(HTTP_SIGNATURES_BYTES_MAX);
    ck_assert(http_signer_sign(signer, &what, signatures, &err));
    ck_assert_uint_eq(strlen(signatures) + 1, HTTP_SIGNATURES_BYTES_MAX);
    free(signatures);
    http_signer_close(signer);
}
END_TEST

START_TEST(each_part_and_each_byte_of_the_body_is_signed)
{
    const struct http_signed parts[] = {
        {SPAN_LITERAL("12"), SPAN_LITERAL("3"), SPAN_LITERAL("a\0b")},
        {SPAN_LITERAL("13"), SPAN_LITERAL("3"), SPAN_LITERAL("a\0b")},
        {SPAN_LITERAL("1"), SPAN_LITERAL("23"), SPAN_LITERAL("a\0b")},
        {SPAN_LITERAL("12"), SPAN_LITERAL("4"), SPAN_LITERAL("a\0b")},
        {SPAN_LITERAL("12"), SPAN_LITERAL("3"), SPAN_LITERAL("a\0c")},
        {SPAN_LITERAL("12"), SPAN_LITERAL("3"), SPAN_LITERAL("a")},
    };
    const char *texts[] = {SECRET_32};
    struct http_signer *signer = signer_of(texts, 1);
    char signatures[sizeof parts / sizeof parts[0]][HTTP_SIGNATURES_BYTES_MAX];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ck_assert(http_signer_sign(signer, &parts[i], signatures[i], &err));
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(signatures[i], signatures[j]);
    }
    http_signer_close(signer);
}
END_TEST

static const struct {
    const char *text, *message;
} bad[] = {
    {"", "is empty; write whsec_ and the secret in base64, or leave it out"},
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "does not begin with whsec_; write whsec_ and the secret in base64"},
    {"whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "does not begin with whsec_; write whsec_ and the secret in base64"},
    {"WHSEC_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "does not begin with whsec_; write whsec_ and the secret in base64"},
    {"whsec_AAECAwQFBgcICQ-LDA0ODxAREhMUFRYX",
     "byte 21 is not of base64, which has A-Z a-z 0-9 + / and = at the end; copy the secret again"},
    {"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX ",
     "byte 39 is not of base64, which has A-Z a-z 0-9 + / and = at the end; copy the secret again"},
    {"whsec_AAEC=wQFBgcICQoLDA0ODxAREhMUFRYX",
     "byte 12 is not of base64, which has A-Z a-z 0-9 + / and = at the end; copy the secret again"},
    {SECRET_24 "A", "its base64 is not whole; copy the secret again"},
    {SECRET_24 "=", "its base64 is not whole; copy the secret again"},
    {SECRET_24 "====", "its base64 is not whole; copy the secret again"},
    {SECRET_32 "=", "its base64 is not whole; copy the secret again"},
    {"whsec_", "has 0 bytes, and 24 are the least; make one: echo whsec_$(openssl rand -base64 32)"},
    {"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY=",
     "has 23 bytes, and 24 are the least; make one: echo whsec_$(openssl rand -base64 32)"},
    {"whsec_v8DBwsPExcbHyMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8=",
     "has 65 bytes, and 64 are the most; make one: echo whsec_$(openssl rand -base64 32)"},
};

START_TEST(text_that_is_no_secret_is_refused_and_not_repeated)
{
    ck_assert(!http_secret_check(bad[_i].text, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_str_eq(err.text, bad[_i].message);
    ck_assert(strlen(bad[_i].text) < 7 || !strstr(err.text, bad[_i].text + 6));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_signature");
    TCase *tcase = tcase_create("http_signature");
    tcase_add_loop_test(tcase, signatures_are_those_of_the_receivers_libraries, 0,
                        (int)(sizeof vectors / sizeof vectors[0]));
    tcase_add_test(tcase, as_many_secrets_as_there_may_be_fill_the_room_exactly);
    tcase_add_test(tcase, each_part_and_each_byte_of_the_body_is_signed);
    tcase_add_loop_test(tcase, text_that_is_no_secret_is_refused_and_not_repeated, 0,
                        (int)(sizeof bad / sizeof bad[0]));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
