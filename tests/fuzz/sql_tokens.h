/* tests/fuzz/sql_tokens.h -- SQL text as PostgreSQL's lexer cuts it, with standard_conforming_strings on.
 *
 *   struct sql_token token;  for (const char *p = sql; (p = sql_token_next(p, &token)) != NULL;) ... */
#ifndef TESTS_FUZZ_SQL_TOKENS_H
#define TESTS_FUZZ_SQL_TOKENS_H

#include "tests/fuzz/fuzz.h"

#include <ctype.h>

enum sql_token_kind { SQL_NAME, SQL_QUOTED_NAME, SQL_STRING, SQL_NUMBER, SQL_OTHER };

struct sql_token {
    enum sql_token_kind kind;
    struct span text; /* as it stands there */
};

static inline bool sql_starts_name(char c)
{
    return isalpha((unsigned char)c) || c == '_' || (c & 0x80);
}

/* Past the quote that ends what begins at `p`; NULL when there is none. Doubled quotes do not end it. */
static inline const char *sql_quoted_end(const char *p, bool backslashes)
{
    char quote = *p;
    for (p++; *p; p++) {
        if ((backslashes && *p == '\\' && p[1]) || (*p == quote && p[1] == quote))
            p++;
        else if (*p == quote)
            return p + 1;
    }
    return NULL;
}

static inline const char *sql_skip_blanks(const char *p)
{
    for (;;) {
        p += strspn(p, " \t\n\r\f\v");
        if (strncmp(p, "--", 2) == 0)
            p += strcspn(p, "\n\r");
        else if (strncmp(p, "/*", 2) == 0)
            p = strstr(p, "*/") ? strstr(p, "*/") + 2 : p + strlen(p);
        else
            return p;
    }
}

/* The token at or after `p`; returns the place behind it, or NULL at the end. An unclosed quote is a failure. */
static inline const char *sql_token_next(const char *p, struct sql_token *ret)
{
    p = sql_skip_blanks(p);
    if (*p == '\0')
        return NULL;
    const char *end = p + 1;
    bool escaped = (*p == 'E' || *p == 'e') && p[1] == '\'';
    ret->kind = SQL_OTHER;
    if (*p == '"' || *p == '\'' || escaped) {
        ret->kind = *p == '"' ? SQL_QUOTED_NAME : SQL_STRING;
        end = sql_quoted_end(p + escaped, escaped);
        FUZZ_CHECK(end, "an open quote at: %s", p);
    } else if (sql_starts_name(*p)) {
        ret->kind = SQL_NAME;
        while (sql_starts_name(*end) || isdigit((unsigned char)*end) || *end == '$')
            end++;
    } else if (isdigit((unsigned char)*p) || *p == '$') { /* a parameter's $1, too */
        ret->kind = SQL_NUMBER;
        while (isdigit((unsigned char)*end) || *end == '.')
            end++;
    }
    ret->text = (struct span){p, (size_t)(end - p)};
    return end;
}

/* What a quoted name or a string stands for. memory_new()'ed, with a NUL behind it. */
static inline char *sql_token_value(const struct sql_token *token)
{
    bool escaped = token->text.data[0] != '"' && token->text.data[0] != '\'';
    const char *p = token->text.data + 1 + escaped, *end = token->text.data + token->text.size - 1;
    char *value = memory_new(token->text.size), *out = value;
    for (; p < end; p++) {
        if (*p == *end || (escaped && *p == '\\'))
            p++; /* the second of the two is meant */
        *out++ = *p;
    }
    return value;
}

#endif
