/* Numbers with units, words, URLs and ${VAR}: every text means what a second, slower reading of the rules says. */
#include "tests/fuzz/fuzz.h"

#include "relay/base/setting.h"
#include "relay/config/config_expand.h"

#include <ctype.h>
#include <strings.h>

struct values {
    int64_t number;
    bool flag;
    int choice;
    char *text;
};

static const char *const words[] = {"delete", "archive", NULL};
static const char *const schemes[] = {"http", "https", NULL}, *const proxies[] = {"socks5", "http", NULL};

static const struct setting rows[] = {
    {"count", SETTING_COUNT, .offset = offsetof(struct values, number), .min = 0},
    {"few", SETTING_COUNT, .offset = offsetof(struct values, number), .min = 1, .max = 100},
    {"negative", SETTING_COUNT, .offset = offsetof(struct values, number), .min = INT32_MIN, .max = INT32_MAX},
    {"size", SETTING_SIZE, .offset = offsetof(struct values, number), .min = 0},
    {"buffer", SETTING_SIZE, .offset = offsetof(struct values, number), .min = 4096, .max = INT64_C(1) << 40},
    {"wait", SETTING_DURATION, .offset = offsetof(struct values, number), .min = 0},
    {"poll", SETTING_DURATION, .offset = offsetof(struct values, number), .min = 1000, .max = INT64_C(3600000000)},
    {"flag", SETTING_BOOL, .offset = offsetof(struct values, flag)},
    {"after", SETTING_CHOICE, .offset = offsetof(struct values, choice), .choices = words},
    {"url", SETTING_URL, .offset = offsetof(struct values, text), .choices = schemes},
    {"proxy", SETTING_URL, .offset = offsetof(struct values, text), .choices = proxies},
    {"text", SETTING_TEXT, .offset = offsetof(struct values, text)},
    {"secret", SETTING_SECRET, .offset = offsetof(struct values, text)},
    {.name = NULL},
};

#define ROWS (sizeof rows / sizeof rows[0] - 1)

/* ---- numbers, as docs/configuration.md has them ---- */

static const struct {
    enum setting_kind kind;
    const char *unit;
    int64_t factor;
} units[] = {
    {SETTING_SIZE, "b", 1},
    {SETTING_SIZE, "kb", INT64_C(1) << 10},
    {SETTING_SIZE, "mb", INT64_C(1) << 20},
    {SETTING_SIZE, "gb", INT64_C(1) << 30},
    {SETTING_DURATION, "us", 1},
    {SETTING_DURATION, "ms", 1000},
    {SETTING_DURATION, "s", 1000000},
    {SETTING_DURATION, "m", 60000000},
    {SETTING_DURATION, "h", INT64_C(3600000000)},
    {SETTING_DURATION, "d", INT64_C(86400000000)},
};

/* Digits as a number that stops growing where no unit brings it back into 64 bits. */
static wide_int digits_value(const char *text, size_t size)
{
    wide_int value = 0;
    for (size_t i = 0; i < size; i++)
        if (value <= INT64_MAX)
            value = value * 10 + (text[i] - '0');
    return value;
}

static bool number_meant(const struct setting *row, const char *text, wide_int *ret)
{
    bool negative = *text == '-';
    text += negative;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0)
        return false;
    int64_t factor = text[digits] ? 0 : 1;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (units[i].kind == row->kind && strcasecmp(units[i].unit, text + digits) == 0)
            factor = units[i].factor;
    *ret = digits_value(text, digits) * factor * (negative ? -1 : 1);
    bool unit_missing = row->kind == SETTING_DURATION && text[digits] == '\0' && *ret != 0;
    return factor != 0 && !unit_missing && *ret >= row->min && *ret < INT64_MAX && (row->max == 0 || *ret <= row->max);
}

static void check_number(const struct setting *row, const char *text, bool taken, int64_t value)
{
    wide_int meant = 0;
    bool good = number_meant(row, text, &meant);
    FUZZ_CHECK(taken == good, "%s \"%s\"", row->name, text);
    FUZZ_CHECK(!taken || value == meant, "%s \"%s\" is %lld", row->name, text, (long long)value);
}

/* ---- the others ---- */

static void check_taken(const struct setting *row, const char *text, const struct values *values)
{
    if (row->kind == SETTING_CHOICE)
        FUZZ_CHECK(strcmp(words[values->choice], text) == 0, "%d", values->choice);
    if (row->kind == SETTING_TEXT || row->kind == SETTING_SECRET || row->kind == SETTING_URL)
        FUZZ_CHECK(strcmp(values->text, text) == 0 && values->text != text, "\"%s\"", values->text);
    for (const char *c = row->kind == SETTING_URL ? text : ""; *c; c++)
        FUZZ_CHECK((unsigned char)*c > ' ' && *c != 0x7f, "a URL with byte 0x%02x", (unsigned char)*c);
}

static void check_setting(const struct setting *row, const char *text)
{
    struct values values = {.number = -7, .choice = -7};
    struct error err = {0};
    bool taken = setting_parse(row, text, &values, &err);
    if (row->kind == SETTING_COUNT || row->kind == SETTING_SIZE || row->kind == SETTING_DURATION)
        check_number(row, text, taken, values.number);
    if (taken) {
        check_taken(row, text, &values);
    } else {
        fuzz_check_error(&err);
        FUZZ_CHECK(values.number == -7 && values.choice == -7 && !values.text, "%s changed by \"%s\"", row->name, text);
        FUZZ_CHECK(row->kind != SETTING_SECRET || *text == '\0', "a secret was refused: %s", err.text);
    }
    free(values.text);
}

/* What is shown of a URL never holds its userinfo, and never more than there is room for. */
static void check_show(struct span before, struct span after, struct span rest, size_t room)
{
    static const char secret[] = "c4n4ry";
    char *a = fuzz_text(before), *b = fuzz_text(after), *c = fuzz_text(rest);
    a[strcspn(a, "/?#")] = b[strcspn(b, "/?#")] = '\0'; /* these end the userinfo, wherever they stand */
    size_t size = strlen(a) + strlen(b) + strlen(c) + sizeof secret + sizeof "http://@";
    char *url = memory_new(size), *shown = memory_new(room + 1);
    snprintf(url, size, "http://%s%s%s@%s", a, secret, b, c);
    setting_url_show(url, shown, room + 1);
    FUZZ_CHECK(strlen(shown) <= room, "%zu bytes", strlen(shown));
    FUZZ_CHECK(!strstr(shown, secret) || strstr(c, secret), "%s shown as %s", url, shown);
    struct error err = {0};
    struct values values = {0};
    if (!setting_parse(&rows[9], url, &values, &err))
        FUZZ_CHECK(!strstr(err.text, secret) || strstr(c, secret), "%s reported: %s", url, err.text);
    free(values.text);
    free(a);
    free(b);
    free(c);
    free(url);
    free(shown);
}

/* ---- ${VAR} ---- */

struct reference {
    char *out;
    size_t size;
};

static void put(struct reference *r, const char *text, size_t size)
{
    memcpy(r->out + r->size, text, size);
    r->size += size;
    r->out[r->size] = '\0';
}

/* The length of one ${...} at `text`, its meaning added to `r`; 0 when it has none. */
static size_t expand_one(struct reference *r, const char *text)
{
    const char *close = strchr(text, '}');
    size_t name = 2;
    while (isalnum((unsigned char)text[name]) || text[name] == '_')
        name++;
    if (!close || name == 2 || isdigit((unsigned char)text[2]) || name - 2 >= 128)
        return 0;
    bool has_default = text[name] == ':' && text[name + 1] == '-';
    bool set = name == 6 && strncmp(text + 2, "NAME", 4) == 0;
    bool empty = name == 7 && strncmp(text + 2, "EMPTY", 5) == 0;
    if (!has_default && (text[name] != '}' || (!set && !empty)))
        return 0;
    if (set)
        put(r, "$${NAME}", 8);
    else if (has_default)
        put(r, text + name + 2, (size_t)(close - text) - name - 2);
    return (size_t)(close - text) + 1;
}

static bool expand_slowly(struct reference *r, const char *text)
{
    for (; *text; text++) {
        size_t reference = text[0] == '$' && text[1] == '{' ? expand_one(r, text) : 0;
        bool dollars = text[0] == '$' && text[1] == '$';
        if (*text == '$' && !reference && !dollars)
            return false;
        if (!reference)
            put(r, text, 1);
        text += reference ? reference - 1 : dollars;
    }
    return true;
}

static void check_expand(const char *text)
{
    struct reference r = {.out = memory_new(strlen(text) * 8 + 1)};
    struct error err = {0};
    bool good = expand_slowly(&r, text);
    char *out = config_expand(text, &err);
    FUZZ_CHECK(good == (out != NULL), "\"%s\": %s", text, out ? out : err.text);
    if (out)
        FUZZ_CHECK(strcmp(out, r.out) == 0, "\"%s\" became \"%s\", not \"%s\"", text, out, r.out);
    else
        fuzz_check_error(&err);
    free(out);
    free(r.out);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    clearenv();
    setenv("NAME", "$${NAME}", 1);
    setenv("EMPTY", "", 1);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    unsigned char what = fuzz_byte(&in);
    if (what % 16 == 15) {
        size_t room = fuzz_byte(&in);
        struct span before = fuzz_span(&in), after = fuzz_span(&in);
        check_show(before, after, fuzz_rest(&in), room);
        return 0;
    }
    char *text = fuzz_text(fuzz_rest(&in));
    if (what % 16 < ROWS)
        check_setting(&rows[what % 16], text);
    else
        check_expand(text);
    free(text);
    return 0;
}
